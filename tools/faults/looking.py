"""Inspection: what is reported must be what the model does."""

from .fault import Fault

LOOKING = (
    Fault(
        "gains of signal and gradient swapped",
        "hyperconn/inspection/quantities.py",
        "matrix.abs().sum(-1).amax(-1)",
        "matrix.abs().sum(-2).amax(-1)",
        (
            "tests/inspection/test_inspect_quantities.py::test_gains_have_the_orientation_of_the_signal_and_of_the_gradient",
        ),
    ),
    Fault(
        "product through depth in the wrong order",
        "hyperconn/inspection/depth.py",
        "return matrix @ before, chain",
        "return before @ matrix, chain",
        ("tests/inspection/test_inspect_quantities.py::test_the_order_of_the_product_is_that_of_the_signal",),
    ),
    Fault(
        "product through depth in the wrong order, in the log",
        "hyperconn/inspection/snapshot.py",
        "matrix @ products[-1]",
        "products[-1] @ matrix",
        ("tests/inspection/test_logger.py::test_entries_are_the_numbers_of_a_static_report",),
    ),
    Fault(
        "product goes on over an expansion",
        "hyperconn/inspection/depth.py",
        "self._running.pop(len(self._reading), None)",
        "pass",
        ("tests/inspection/test_inspect_depth.py::test_a_product_starts_anew_at_an_expansion_and_when_n_changes",),
    ),
    Fault(
        "layers in the order of their names",
        "hyperconn/inspection/depth.py",
        "key=lambda key: key[0])",
        "key=lambda key: key[1])",
        (
            "tests/inspection/test_inspect_depth.py::test_more_than_ten_layers_are_in_call_order_not_in_that_of_their_names",
        ),
    ),
    Fault(
        "a matrix that is not finite gets clean numbers",
        "hyperconn/inspection/quantities.py",
        "torch.where(finite, value, torch.nan)",
        "value",
        ("tests/inspection/test_inspect_quantities.py::test_a_planted_non_finite_value_is_never_a_clean_number",),
    ),
    Fault(
        "inspection leaves the model in evaluation mode",
        "hyperconn/inspection/preserving.py",
        "module.training = mode",
        "pass",
        (
            "tests/inspection/test_inspect_preserves.py::test_outputs_gradients_modes_hooks_and_random_states_are_untouched",
        ),
    ),
    Fault(
        "the logger draws random numbers",
        "hyperconn/inspection/logger.py",
        "rows, matrices = snapshot(self._connections, self._beginnings)",
        "rows, matrices = snapshot(self._connections, self._beginnings)\n        torch.rand(1)",
        ("tests/inspection/test_logger.py::test_it_changes_neither_parameters_gradients_nor_random_numbers",),
    ),
    Fault(
        "left and right directions swapped",
        "hyperconn/inspection/continuity.py",
        "pairwise(right), pairwise(left)",
        "pairwise(left), pairwise(right)",
        ("tests/inspection/test_continuity.py::test_only_the_side_that_is_shared_is_found",),
    ),
    Fault(
        "signs of singular directions count",
        "hyperconn/inspection/directions.py",
        "(first @ first.mT).abs()",
        "(first @ first.mT)",
        ("tests/inspection/test_continuity.py::test_sign_flips_do_not_matter",),
    ),
    Fault(
        "pickled code in a checkpoint runs",
        "hyperconn/inspection/checkpoints/archive.py",
        "weights_only=True",
        "weights_only=False",
        ("tests/inspection/test_checkpoints.py::test_anything_else_is_one_clear_line_and_status_2",),
    ),
)
