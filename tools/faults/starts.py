"""Starts, and what is learned from them."""

from .fault import Fault

STARTS = (
    Fault(
        "every sublayer reads the same home stream",
        "hyperconn/mappings.py",
        "layer_index % constraint.streams",
        "0",
        ("tests/test_streams.py::test_home_streams_differ_between_layers_and_never_depend_on_the_seed",),
    ),
    Fault(
        "the stack does not count its layers",
        "hyperconn/streams.py",
        "layer_index=layer_index,",
        "layer_index=0,",
        ("tests/test_streams.py::test_home_streams_differ_between_layers_and_never_depend_on_the_seed",),
    ),
    Fault(
        "a wrapped model does not count its layers",
        "hyperconn/wrapping/wrap.py",
        "layer_index=index,",
        "layer_index=0,",
        ("tests/wrapping/test_wrap_structure.py::test_connections_know_their_place_in_the_network",),
    ),
    Fault(
        "pre weights do not sum to one at the start",
        "hyperconn/gates.py",
        "(1 - HOME_SHARE) / (streams - 1)",
        "(1 - HOME_SHARE) / streams",
        ("tests/test_streams.py::test_the_start_is_the_plain_residual_network",),
    ),
    Fault(
        "scales do not learn",
        "hyperconn/mappings.py",
        "torch.empty(len(self.group_sizes), dtype=parameter_dtype()))",
        "torch.empty(len(self.group_sizes), dtype=parameter_dtype()), requires_grad=False)",
        ("tests/test_state.py::test_scales_are_learned",),
    ),
    Fault(
        "scales cut off from the graph",
        "hyperconn/mappings.py",
        "for s, size in zip(self.scale.unbind()",
        "for s, size in zip(self.scale.detach().unbind()",
        ("tests/test_state.py::test_scales_are_learned",),
    ),
    Fault(
        "static logits decay",
        "hyperconn/optimizers.py",
        "return True, name in module.decayed_parameters",
        "return True, True",
        ("tests/test_state.py::test_parameter_groups_hold_every_parameter_once_and_never_decay_static_ones",),
    ),
    Fault(
        "the parameters follow a cast to half precision",
        "hyperconn/parameters.py",
        "return tensor.to(moved.device) if narrowed else moved",
        "return moved",
        ("tests/test_precision.py::test_casting_a_model_keeps_connection_parameters_bit_for_bit",),
    ),
    Fault(
        "autocast reaches the matrices",
        "hyperconn/numerics.py",
        "return torch.autocast(kind, enabled=False)",
        "return contextlib.nullcontext()",
        (
            "tests/test_precision.py::test_autocast_leaves_the_matrix_alone",
            "tests/test_constraint_laws.py::test_autocast_changes_nothing",
        ),
    ),
    Fault(
        "reset of a mapping does nothing after the meta device",
        "hyperconn/mappings.py",
        "with torch.no_grad():\n            self.bias.copy_(",
        'if self.__dict__.setdefault("_filled", self.bias.is_meta) and not self.bias.is_meta:\n'
        "            return\n"
        "        with torch.no_grad():\n            self.bias.copy_(",
        ("tests/test_state.py::test_meta_device_then_reset_equals_an_ordinary_build",),
    ),
    Fault(
        "reset of a constraint leaves its tables empty",
        "hyperconn/constraints/base.py",
        'e.g. after ``to_empty``."""\n        self._rebuild_tables()',
        'e.g. after ``to_empty``."""',
        ("tests/test_state.py::test_meta_device_then_reset_equals_an_ordinary_build",),
    ),
)
