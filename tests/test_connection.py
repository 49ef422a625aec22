"""The connection: orientation, gradients, read and write by hand, outputs of branches, errors."""

from __future__ import annotations

import collections
import dataclasses

import pytest
import torch
from conftest import branch, supported
from torch import nn

import hyperconn as hc

MAPPINGS = ("flat", "per-stream", "static")


class Zero(nn.Module):
    def forward(self, x):
        return torch.zeros_like(x)


class FixedMatrix(hc.Constraint):
    """A constraint that is one given matrix, as a user would write it, without registering it."""

    nonnegative = unit_row_sums = unit_column_sums = nonexpansive = closed_under_product = False
    coordinate_sizes = ()

    def __init__(self, matrix):
        super().__init__(len(matrix))
        self.register_buffer("fixed", matrix)

    def matrix(self, coordinates):
        return self.fixed.to(coordinates.dtype).expand(*coordinates.shape[:-1], *self.fixed.shape)

    def identity_coordinates(self):
        return torch.zeros(0)

    def violation(self, matrix):
        return (matrix - self.fixed).abs().amax((-2, -1))


def randomized(connection, scale=1.0):
    """Weights as after training, so that the dynamic part of every mapping is at work."""
    with torch.no_grad():
        for parameter in connection.mapping.parameters():
            parameter.add_(scale * torch.randn_like(parameter))
    return connection


@pytest.mark.parametrize("mapping", MAPPINGS)
def test_the_mix_carries_source_j_into_destination_i(mapping):
    shift = torch.roll(torch.eye(4), 1, 0)
    connection = hc.HyperConnection(8, 4, Zero(), constraint=FixedMatrix(shift), mapping=mapping)
    streams = torch.randn(2, 5, 4, 8)
    out = connection(streams)
    assert torch.equal(out, streams.roll(1, -2))
    assert torch.equal(out, torch.einsum("ij,...jc->...ic", shift, streams))
    assert not torch.equal(out, torch.einsum("ji,...jc->...ic", shift, streams))


@pytest.mark.parametrize(("name", "n"), supported(sizes=(2, 3, 4)))
@pytest.mark.parametrize("mapping", MAPPINGS)
def test_forward_is_the_documented_formula(name, n, mapping):
    block = branch(8)
    connection = randomized(hc.HyperConnection(8, n, block, constraint=name, mapping=mapping)).double()
    streams = torch.randn(3, n, 8, dtype=torch.float64)
    pre, post, res = connection.mappings(streams)
    expected = torch.stack(
        [
            sum(res[t, i, j] * streams[t, j] for j in range(n))[None]
            + post[t, i] * block((pre[t, :, None] * streams[t]).sum(0))[None]
            for t in range(3)
            for i in range(n)
        ]
    ).view(3, n, 8)
    torch.testing.assert_close(connection(streams), expected)


@pytest.mark.parametrize(("name", "n"), supported(sizes=(2, 4)))
@pytest.mark.parametrize("mapping", MAPPINGS)
@pytest.mark.parametrize("retraction", [None, "projection"])
def test_every_parameter_receives_gradient(name, n, mapping, retraction):
    connection = hc.HyperConnection(8, n, branch(8), constraint=name, mapping=mapping, retraction=retraction)
    streams = torch.randn(4, n, 8)
    out = connection(streams if retraction is None else connection.retraction.project(streams))
    (out * torch.randn_like(out)).sum().backward()
    for parameter_name, parameter in connection.named_parameters():
        assert parameter.grad is not None, parameter_name
        assert parameter.grad.isfinite().all(), parameter_name
    if connection.constraint.num_coordinates:
        assert connection.mapping.bias.grad[2 * n :].abs().max() > 1e-4, "the residual logits are dead"


@pytest.mark.parametrize("mapping", MAPPINGS)
@pytest.mark.parametrize(("name", "n"), supported(sizes=(3, 4)))
def test_gradcheck_through_the_whole_site(name, n, mapping):
    connection = randomized(hc.HyperConnection(4, n, nn.Tanh(), constraint=name, mapping=mapping), 0.3).double()
    streams = torch.randn(2, n, 4, dtype=torch.float64, requires_grad=True)
    parameters = tuple(connection.mapping.parameters())
    assert torch.autograd.gradcheck(lambda *inputs: connection(inputs[0]), (streams, *parameters), atol=1e-6)


@pytest.mark.parametrize("mapping", MAPPINGS)
def test_gradgradcheck_through_the_whole_site(mapping):
    site = randomized(hc.HyperConnection(2, 2, nn.Tanh(), constraint="unconstrained", mapping=mapping), 0.3).double()
    streams = torch.randn(1, 2, 2, dtype=torch.float64, requires_grad=True)
    parameters = tuple(site.mapping.parameters())
    assert torch.autograd.gradgradcheck(lambda *inputs: site(inputs[0]), (streams, *parameters), atol=1e-6)


def test_the_specification_is_its_formulas():
    X, H, W = (torch.randn(*shape, dtype=torch.float64) for shape in ((3, 2), (3, 3), (5, 6)))
    pre, post, y, scale, bias = (torch.randn(size, dtype=torch.float64) for size in (3, 3, 2, 5, 5))
    length = (sum(x**2 for x in X.flatten().tolist()) / 6 + 0.1) ** 0.5
    projected = [scale[m] * sum(W[m, 2 * j + c] * X[j, c] for j in range(3) for c in range(2)) for m in range(5)]
    mixed = [sum(H[i, j] * X[j] for j in range(3)) + post[i] * y for i in range(3)]
    torch.testing.assert_close(hc.functional.project(X, W, scale, bias, 0.1), torch.stack(projected) / length + bias)
    torch.testing.assert_close(hc.functional.read(X, pre), sum(pre[j] * X[j] for j in range(3)))
    torch.testing.assert_close(hc.functional.write(X, post, H, y), torch.stack(mixed))


@pytest.mark.parametrize("mapping", MAPPINGS)
def test_a_compiled_site_computes_the_same(mapping):
    site = randomized(hc.HyperConnection(4, 3, nn.Tanh(), constraint="unconstrained", mapping=mapping)).double()
    streams = torch.randn(5, 3, 4, dtype=torch.float64, requires_grad=True)
    wanted, cotangent = (streams, *site.mapping.parameters()), torch.randn(5, 3, 4, dtype=torch.float64)
    torch._dynamo.reset()
    eager, compiled = site(streams), torch.compile(site, backend="aot_eager", fullgraph=True)(streams)
    torch.testing.assert_close(compiled, eager)
    gradients = (torch.autograd.grad(output, wanted, cotangent) for output in (compiled, eager))
    torch.testing.assert_close(*gradients)


@pytest.mark.parametrize("mapping", MAPPINGS)
def test_a_gradient_that_somebody_else_holds_is_not_written_to(mapping):
    site = randomized(hc.HyperConnection(4, 3, constraint="unconstrained", mapping=mapping))
    given, handed_on = torch.randn(5, 3, 4), torch.randn(5, 3, 4, requires_grad=True)
    branch_input, carry = site.read(handed_on)
    before = given.clone()
    torch.autograd.backward((branch_input, carry.streams), (torch.randn(5, 4), given))
    assert torch.equal(given, before)
    branch_input, carry = site.read(handed_on)
    carry.streams.retain_grad()
    site.write(branch_input, carry).backward(given)
    torch.testing.assert_close(carry.streams.grad, carry.res.detach().mT @ given)


def test_arguments_reach_the_branch_untouched():
    class Recorder(nn.Module):
        def forward(self, *args, **kwargs):
            self.seen = args[1:], kwargs
            return args[0]

    recorder = Recorder()
    context, mask = object(), torch.ones(3)
    hc.HyperConnection(8, 2, recorder)(torch.randn(3, 2, 8), context, None, 7, mask=mask, flag=False)
    assert recorder.seen == ((context, None, 7), {"mask": mask, "flag": False})


def test_a_second_input_by_position_and_by_keyword_is_the_same():
    class CrossAttention(nn.Module):
        def __init__(self):
            super().__init__()
            self.attention = nn.MultiheadAttention(8, 2, batch_first=True)

        def forward(self, x, context, *, key_padding_mask=None):
            return self.attention(x, context, context, key_padding_mask=key_padding_mask)

    connection = hc.HyperConnection(8, 4, CrossAttention())
    streams, context = torch.randn(2, 5, 4, 8), torch.randn(2, 7, 8)
    by_position, weights = connection(streams, context)
    by_keyword, _ = connection(streams, context=context)
    assert torch.equal(by_position, by_keyword)
    assert weights.shape == (2, 5, 7)


Pair = collections.namedtuple("Pair", "hidden loss")


@dataclasses.dataclass
class Output:
    hidden: torch.Tensor
    loss: str


@pytest.mark.parametrize(
    "wrap",
    [
        lambda y: (y, "loss"),
        lambda y: [y, "loss"],
        lambda y: {"hidden": y, "loss": "loss"},
        lambda y: collections.OrderedDict(hidden=y, loss="loss"),
        lambda y: Pair(y, "loss"),
        lambda y: Output(y, "loss"),
    ],
    ids=["tuple", "list", "dict", "OrderedDict", "namedtuple", "dataclass"],
)
def test_the_first_element_is_connected_and_the_rest_passed_on(wrap):
    class Wrapped(nn.Module):
        def forward(self, x):
            return wrap(x)

    streams = torch.randn(3, 4, 8)
    out = hc.HyperConnection(8, 4, Wrapped())(streams)
    expected = wrap(hc.HyperConnection(8, 4, nn.Identity())(streams))
    assert type(out) is type(expected)
    (got, rest), (want, _) = elements(out), elements(expected)
    torch.testing.assert_close(got, want)
    assert rest == "loss"


def elements(output):
    if dataclasses.is_dataclass(output):
        output = vars(output)
    return tuple(output.values()) if isinstance(output, dict) else tuple(output)


@pytest.mark.parametrize("output", [None, "text", (), (None, 1), {}])
def test_an_output_without_a_tensor_in_front_is_refused(output):
    class Odd(nn.Module):
        def forward(self, x):
            return output

    with pytest.raises(TypeError, match=rf"the branch returned {type(output).__name__}; expected a tensor"):
        hc.HyperConnection(8, 4, Odd())(torch.randn(3, 4, 8))


@pytest.mark.parametrize("retraction", [None, "cayley"])
@pytest.mark.parametrize("n", [1, 4])
def test_read_and_write_by_hand_equal_the_call(n, retraction):
    block = branch(8)
    connection = hc.HyperConnection(8, n, block, retraction=retraction)
    streams = torch.randn(2, 3, n, 8)
    branch_input, carry = connection.read(streams)
    assert branch_input.shape == (2, 3, 8)
    assert torch.equal(connection.write(block(branch_input), carry), connection(streams))


@pytest.mark.parametrize("name", hc.list_constraints())
@pytest.mark.parametrize("mapping", MAPPINGS)
def test_one_stream_is_the_plain_residual_without_parameters(name, mapping):
    block = branch(8)
    connection = hc.HyperConnection(8, 1, block, constraint=name, mapping=mapping)
    x = torch.randn(2, 3, 8)
    assert torch.equal(connection(x.unsqueeze(-2)).squeeze(-2), x + block(x))
    assert len(list(connection.parameters())) == len(list(block.parameters()))
    assert [m.shape for m in connection.mappings(x.unsqueeze(-2))] == [(2, 3, 1), (2, 3, 1), (2, 3, 1, 1)]


@pytest.mark.parametrize(("name", "n"), supported(sizes=(1, 2, 4)))
@pytest.mark.parametrize("mapping", MAPPINGS)
def test_mappings_have_the_shapes_of_the_tokens_and_float32(name, n, mapping):
    connection = hc.HyperConnection(8, n, constraint=name, mapping=mapping)
    for dtype in (torch.float32, torch.bfloat16):
        maps = connection.mappings(torch.randn(2, 3, n, 8, dtype=dtype))
        assert [m.shape for m in maps] == [(2, 3, n), (2, 3, n), (2, 3, n, n)]
        assert {m.dtype for m in maps} == {torch.float32}
    assert connection.residual_matrix().shape == (n, n)
    assert connection.residual_matrix(torch.randn(5, n, 8)).shape == (5, n, n)


def test_the_residual_matrix_is_a_snapshot():
    connection = hc.HyperConnection(8, 4, constraint="unconstrained")
    before = connection.residual_matrix().detach()
    with torch.no_grad():
        connection.mapping.bias.add_(1)
    assert torch.equal(before, torch.eye(4))


def test_ranks_two_to_five_equal_the_flattened_call():
    connection = randomized(hc.HyperConnection(8, 4, branch(8), constraint="shc"))
    streams = torch.randn(2, 3, 2, 4, 8)
    flat = connection(streams.flatten(0, 2))
    torch.testing.assert_close(connection(streams).flatten(0, 2), flat, rtol=0, atol=1e-6)
    torch.testing.assert_close(connection(streams[0, 0, 0]), flat[0], rtol=0, atol=1e-6)


def test_a_custom_constraint_needs_no_registration_and_a_registered_one_is_found_by_name():
    @hc.register_constraint("test-shift", "test-alias")
    class Shift(FixedMatrix):
        set_description = "cyclic shifts"
        reference = "this test. Reference: none"

        def __init__(self, streams):
            super().__init__(torch.roll(torch.eye(streams), 1, 0))

    try:
        streams = torch.randn(3, 4, 8)
        assert torch.equal(hc.HyperConnection(8, 4, Zero(), constraint="test-alias")(streams), streams.roll(1, -2))
        assert "test-shift" in hc.list_constraints()
    finally:
        for known_as in ("test-shift", "test-alias"):
            del hc.constraints.registry._CLASS_OF_NAME[known_as]


def connect(**options):
    return hc.HyperConnection(8, 4, branch(8), **options)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: connect()(torch.randn(2, 16, 8)), ValueError, r"HyperConnection\(dim=8, streams=4\): expected \(\.\.\., 4, 8\), got \(2, 16, 8\). Was the input expanded\?"),
        (lambda: connect()(torch.randn(2, 4, 9)), ValueError, r"expected \(\.\.\., 4, 8\), got \(2, 4, 9\)"),
        (lambda: connect()(torch.randn(8)), ValueError, r"expected \(\.\.\., 4, 8\), got \(8,\)"),
        (lambda: connect()(torch.ones(2, 4, 8, dtype=torch.long)), TypeError, r"expected a floating-point tensor, got torch.int64. Embed or cast it first"),
        (lambda: hc.HyperConnection(8, 0), ValueError, r"expected streams >= 1, got 0"),
        (lambda: hc.HyperConnection(8, 2.0), TypeError, r"expected streams to be an integer, got 2.0"),
        (lambda: hc.HyperConnection(0, 2), ValueError, r"expected dim >= 1, got 0"),
        (lambda: connect(constraint="sinkhron"), ValueError, r"unknown constraint 'sinkhron'. Did you mean 'sinkhorn'\? Known: .*spectral-sphere/shc"),
        (lambda: connect(constraint=7), TypeError, r"expected a name or a Constraint instance, got 7"),
        (lambda: connect(constraint=hc.make_constraint("mhc", 3)), ValueError, r"Sinkhorn was built for 3 streams, expected 4"),
        (lambda: connect(mapping="fat"), ValueError, r"unknown mapping 'fat'; known: flat, per-stream, static"),
        (lambda: connect(init="random"), ValueError, r"unknown start init='random'; known: 'residual', 'paper'"),
        (lambda: connect(retraction="cubic"), ValueError, r"unknown retraction 'cubic'; known: projection, cayley, exponential"),
        (lambda: connect(retraction=0), ValueError, r"expected p > 0, got 0"),
        (lambda: hc.HyperConnection(8, 4)(torch.randn(3, 4, 8)), TypeError, r"no branch was given. Pass one, or use read\(\) and write\(\)"),
        (lambda: hc.HyperConnection(8, 4, nn.Linear(8, 5))(torch.randn(3, 4, 8)), ValueError, r"expected a branch output \(3, 8\), got \(3, 5\). A branch must keep the shape of its input"),
        (lambda: connect(mapping=hc.HyperConnection(8, 3).mapping), ValueError, r"FlatMapping: expected dim=8 and groups \(4, 4, 16\) for Sinkhorn\(streams=4\), got dim=8 and groups \(3, 3, 9\)"),
        (lambda: hc.register_constraint("mhc")(FixedMatrix), ValueError, r"register_constraint\('mhc'\): the name belongs to Sinkhorn"),
        (lambda: hc.register_constraint("new")(nn.Linear), TypeError, r"expected a subclass of Constraint"),
    ],
)  # fmt: skip
def test_bad_input_says_who_what_and_what_to_try(call, error, message):
    with pytest.raises(error, match=message):
        call()
