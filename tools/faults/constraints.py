"""The sets of residual matrices."""

from .fault import Fault

LAWS = "tests/test_constraint_laws.py::"
CORE = "tests/test_constraints_core.py::"
FIELD = "tests/test_constraints_field.py::"
CONSTRAINTS = (
    Fault(
        "one Sinkhorn iteration, whatever was asked for",
        "hyperconn/constraints/sinkhorn.py",
        "balance(logits, self.iterations)",
        "balance(logits, 1)",
        (CORE + "test_sinkhorn_equals_alternate_normalisation",),
    ),
    Fault(
        "Sinkhorn normalises the columns last",
        "hyperconn/constraints/balancing.py",
        "for axis in (0, 1) * iterations:",
        "for axis in (1, 0) * iterations:",
        (CORE + "test_sinkhorn_rows_are_exact_for_any_logits",),
    ),
    Fault(
        "Sinkhorn starts from exp without the maximum subtracted",
        "hyperconn/constraints/balancing.py",
        "_tokens_last(logits).log_softmax(0).softmax(1)",
        "_tokens_last(logits).exp()\n    matrix = matrix / matrix.sum(0)\n    matrix = matrix / matrix.sum(1, True)",
        (CORE + "test_sinkhorn_rows_are_exact_for_any_logits", LAWS + "test_lands_in_the_set"),
    ),
    Fault(
        "gradient of the first Sinkhorn pair left out",
        "hyperconn/constraints/balancing.py",
        "    _unscale(d_log, columns.exp_(), 0)\n",
        "",
        (CORE + "test_sinkhorn_has_the_gradient_of_its_few_iterations",),
    ),
    Fault(
        "compiled Sinkhorn with the gradient of one iteration",
        "hyperconn/constraints/balancing.py",
        "_gradient_opaquely(logits, gradient, ctx.iterations)",
        "_gradient_opaquely(logits, gradient, 1)",
        ("tests/test_compile.py::test_compiled_equals_eager_for_gradients_from_one_to_1e8",),
    ),
    Fault(
        "permutations in another order",
        "hyperconn/constraints/permutation.py",
        "list(itertools.permutations(range(size)))",
        "sorted(itertools.permutations(range(size)), key=lambda p: (p != tuple(range(size)), p[::-1]))",
        (CORE + "test_permutation_table_is_lexicographic_and_shared",),
    ),
    Fault(
        "spectrum of the spectral sphere not bounded",
        "hyperconn/constraints/spectral_sphere.py",
        "bounded[..., None, 2 * k :]",
        "coordinates[..., None, 2 * k :]",
        (CORE + "test_spectral_sphere_holds_for_huge_coordinates",),
    ),
    Fault(
        "spectral sphere without its mean direction",
        "hyperconn/constraints/spectral_sphere.py",
        "basis.mT) + 1 / self.streams",
        "basis.mT)",
        (LAWS + "test_lands_in_the_set",),
    ),
    Fault(
        "factors of the Kronecker product swapped",
        "hyperconn/constraints/kronecker.py",
        "left[..., :, None, :, None] * right[..., None, :, None, :]",
        "left[..., None, :, None, :] * right[..., :, None, :, None]",
        (FIELD + "test_kronecker_equals_torch_kron_of_its_factors",),
    ),
    Fault(
        "quaternions not normalised",
        "hyperconn/constraints/quaternion.py",
        "(nu * (nu.square().sum(-1, keepdim=True) + EPSILON).rsqrt())",
        "nu",
        (FIELD + "test_quaternion_lies_in_so4_and_is_the_identity_at_zero",),
    ),
    Fault(
        "quaternion multiplied by r instead of its conjugate",
        "hyperconn/constraints/quaternion.py",
        "[1.0, -1.0, -1.0, -1.0]",
        "[1.0, 1.0, 1.0, 1.0]",
        (FIELD + "test_quaternion_multiplies_from_both_sides",),
    ),
    Fault(
        "Cayley map inverted",
        "hyperconn/constraints/cayley.py",
        "(skew @ skew - skew)",
        "(skew @ skew + skew)",
        (CORE + "test_cayley_closed_forms_equal_geotorch", FIELD + "test_orthogonal_is_the_cayley_map"),
    ),
    Fault(
        "shifts of the circulant in the other direction",
        "hyperconn/constraints/circulant.py",
        "shifts[(i - j) % n]",
        "shifts[(j - i) % n]",
        (FIELD + "test_circulant_eigenvalues_are_the_dft_of_its_weights",),
    ),
    Fault(
        "transport without its lower bound",
        "hyperconn/constraints/transport.py",
        "(left - room).clamp_min(0)",
        "0 * (left - room)",
        (LAWS + "test_lands_in_the_set", FIELD + "test_transport_is_the_published_procedure"),
    ),
    Fault(
        "orthostochastic entries not squared",
        "hyperconn/constraints/orthostochastic.py",
        "blocks = squares.unflatten",
        "blocks = squares.sqrt().unflatten",
        (LAWS + "test_lands_in_the_set",),
    ),
)
