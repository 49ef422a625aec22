"""Modules around a site: expansion, collapse, spheres, states, switches."""

from .fault import Fault

CONNECTION = "tests/test_connection.py::"
RETRACTION = "tests/test_retraction.py::"
MODULES = (
    Fault(
        "expansion into one stream and zeros",
        "hyperconn/streams.py",
        "return x.unsqueeze(-2).expand(*x.shape[:-1], n, x.shape[-1]).contiguous()",
        "return nn.functional.pad(x.unsqueeze(-2), (0, 0, 0, n - 1))",
        ("tests/test_streams.py::test_expand_and_collapse",),
    ),
    Fault(
        "sum for mean at the collapse",
        "hyperconn/streams.py",
        'return streams.mean(-2) if self.how == "mean"',
        'return streams.sum(-2) if self.how == "mean"',
        ("tests/test_streams.py::test_expand_and_collapse",),
    ),
    Fault(
        "mean for sum at the collapse",
        "hyperconn/streams.py",
        "else streams.sum(-2)",
        "else streams.mean(-2)",
        ("tests/test_streams.py::test_expand_and_collapse",),
    ),
    Fault(
        "dropout on the streams themselves",
        "hyperconn/connection.py",
        "return rebuild(self.write(output, carry))",
        "return rebuild(nn.functional.dropout(self.write(output, carry), 0.1, self.training))",
        ("tests/test_parts.py::test_dropout_acts_on_what_the_branch_writes_only",),
    ),
    Fault(
        "one instance of a constraint for all branches",
        "hyperconn/streams.py",
        "constraint=copy.deepcopy(constraint),",
        "constraint=constraint,",
        ("tests/test_streams.py::test_instances_are_copied_for_every_branch",),
    ),
    Fault(
        "input that was not expanded is taken",
        "hyperconn/connection.py",
        "        check_streams(self._signature(), streams, n, self.dim)\n",
        "",
        (CONNECTION + "test_bad_input_says_who_what_and_what_to_try",),
    ),
    Fault(
        "the rest of a tuple is lost",
        "hyperconn/outputs.py",
        "return (tensor, *output[1:])",
        "return (tensor,)",
        (CONNECTION + "test_the_first_element_is_connected_and_the_rest_passed_on",),
    ),
    Fault(
        "the description of a state is not checked",
        "hyperconn/connection.py",
        "check_description(self._signature(), self.description(), state)",
        "pass",
        ("tests/test_state.py::test_the_state_of_another_kind_is_refused_with_both_names",),
    ),
    Fault(
        "disabling does nothing",
        "hyperconn/switch.py",
        "module.enabled = enabled",
        "module.enabled = True",
        ("tests/test_parts.py::test_a_disabled_network_is_its_plain_residual_twin_and_comes_back",),
    ),
    Fault(
        "a connection ignores the switch",
        "hyperconn/connection.py",
        "n = self.streams if self.enabled else 1",
        "n = self.streams",
        ("tests/test_parts.py::test_a_disabled_network_is_its_plain_residual_twin_and_comes_back",),
    ),
    Fault(
        "retraction not applied",
        "hyperconn/connection.py",
        "return self.retraction(streams, proposal)",
        "return proposal.to(streams.dtype)",
        (RETRACTION + "test_streams_stay_on_the_sphere_and_start_as_the_single_stream_network",),
    ),
    Fault(
        "norm over the streams instead of the channels",
        "hyperconn/retraction.py",
        "x.square().mean(-1, keepdim=True)",
        "x.square().mean(-2, keepdim=True)",
        (RETRACTION + "test_the_per_stream_step_is_the_documented_formula",),
    ),
    Fault(
        "proposal not projected on the tangent",
        "hyperconn/retraction.py",
        "return vector - (x * vector).sum(-1, keepdim=True) / radius_squared * x",
        "return vector - x",
        (RETRACTION + "test_norms_are_kept_over_a_thousand_steps",),
    ),
    Fault(
        "angle of a retraction without its order",
        "hyperconn/retraction.py",
        "p * torch.atan(r / p)",
        "torch.atan(r)",
        (RETRACTION + "test_the_angle_is_p_arctan_r_over_p",),
    ),
    Fault(
        "step of a retraction does not learn",
        "hyperconn/retraction.py",
        "nn.Parameter(torch.empty(1, dtype=parameter_dtype())) if learn_step",
        "nn.Parameter(torch.empty(1, dtype=parameter_dtype()), requires_grad=False) if learn_step",
        (RETRACTION + "test_the_step_is_learned_positive_and_starts_by_depth",),
    ),
    Fault(
        "step of a retraction ignores the depth",
        "hyperconn/streams.py",
        "retraction.for_depth(len(branches))",
        "retraction.for_depth(1)",
        (RETRACTION + "test_the_step_is_learned_positive_and_starts_by_depth",),
    ),
)
