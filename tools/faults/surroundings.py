"""Models in the wild, wrapped models and the example."""

from .fault import Fault

INTEROP = "tests/interop/test_interop.py::"
WRAP = "tests/wrapping/test_wrap_structure.py::"
SURROUNDINGS = (
    Fault(
        "epsilon added after the division, not before",
        "hyperconn/interop/deepseek_sinkhorn.py",
        "matrix / (matrix.sum(axis, keepdim=True) + self.epsilon)",
        "matrix / matrix.sum(axis, keepdim=True) + self.epsilon",
        (INTEROP + "test_a_site_of_few_iterations_and_another_epsilon",),
    ),
    Fault(
        "epsilon of the softmax left out",
        "hyperconn/interop/deepseek_sinkhorn.py",
        ".softmax(-1) + self.epsilon",
        ".softmax(-1)",
        (INTEROP + "test_a_site_of_few_iterations_and_another_epsilon",),
    ),
    Fault(
        "imported matrix not turned from [source, destination]",
        "hyperconn/interop/deepseek_sinkhorn.py",
        "return source_destination.mT",
        "return source_destination",
        (INTEROP + "test_a_site_gives_the_same_mappings_output_and_gradients",),
    ),
    Fault(
        "epsilon of the pre weights left out",
        "hyperconn/interop/families.py",
        "SigmoidGates(pre_epsilon=options.hc_eps)",
        "SigmoidGates()",
        (INTEROP + "test_a_site_of_few_iterations_and_another_epsilon",),
    ),
    Fault(
        "norm epsilon of a head left out",
        "hyperconn/interop/heads.py",
        "norm_epsilon=numbers.rms_norm_eps,",
        "norm_epsilon=None,",
        (INTEROP + "test_the_epsilon_of_the_norms_is_that_of_the_model",),
    ),
    Fault(
        "norm epsilon of a site left out",
        "hyperconn/interop/sites.py",
        "gates, epsilon=options.rms_norm_eps)",
        "gates)",
        (INTEROP + "test_the_epsilon_of_the_norms_is_that_of_the_model",),
    ),
    Fault(
        "unwrapping forgets a block",
        "hyperconn/wrapping/wrap.py",
        "for block in list(_wrapped_blocks(model)):",
        "for block in list(_wrapped_blocks(model))[1:]:",
        (WRAP + "test_unwrap_gives_the_original_model_back",),
    ),
    Fault(
        "a wrapped block drops its further arguments",
        "hyperconn/wrapping/path.py",
        "output = sublayer(branch_input, *args, **kwargs)",
        "output = sublayer(branch_input)",
        ("tests/wrapping/test_wrap_step_zero.py::test_wrapped_model_is_the_unwrapped_one_at_step_zero",),
    ),
    Fault(
        "hidden states shown as streams",
        "hyperconn/wrapping/wrapped_block.py",
        "return self.hyper_connections.view(output), output, None",
        "return output, output, None",
        (WRAP + "test_output_hidden_states_have_the_usual_shape_and_are_collapsed_views",),
    ),
    Fault(
        "pickled code in a checkpoint of the example runs",
        "examples/gpt/checkpoint.py",
        "weights_only=True",
        "weights_only=False",
        ("tests/test_train_gpt.py::TestForgedCheckpoints::test_code_is_not_executed",),
    ),
)
