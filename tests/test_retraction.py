"""The p-family of retractions, and streams that live on spheres."""

from __future__ import annotations

import math

import pytest
import torch
from conftest import branch, relative_error, supported
from torch import nn

import hyperconn as hc
from hyperconn.retraction import _algebraic_arc, _trigonometric_arc

ORDERS = [1.0, 2.0, 3.0, 8.0, 0.5, 1.5, 9.0, math.inf]


def as_published(p, **options):
    return hc.SphericalRetraction(p, rescale=False, step=1.0, learn_step=False, **options).double()


def point_and_tangent(width=16, size=0.7):
    x = torch.randn(32, width, dtype=torch.float64)
    x = x / x.norm(dim=-1, keepdim=True) * math.sqrt(width)
    u = size * torch.randn(32, width, dtype=torch.float64)
    return x, u - (x * u).sum(-1, keepdim=True) / width * x


def test_projection_has_its_closed_form():
    x, u = point_and_tangent()
    r = u.norm(dim=-1, keepdim=True) / 4
    torch.testing.assert_close(as_published("projection")(x, x + u), (x + u) / (1 + r**2).sqrt(), atol=1e-12, rtol=0)


def test_cayley_has_its_closed_and_its_matrix_form():
    x, u = point_and_tangent()
    moved = as_published("cayley")(x, x + u)
    quarter = (u.norm(dim=-1, keepdim=True) / 4) ** 2 / 4
    torch.testing.assert_close(moved, ((1 - quarter) * x + u) / (1 + quarter), atol=1e-12, rtol=0)
    generator = (u.unsqueeze(-1) * x.unsqueeze(-2) - x.unsqueeze(-1) * u.unsqueeze(-2)) / 16
    eye = torch.eye(16, dtype=torch.float64)
    matrix_form = torch.linalg.solve(eye - generator / 2, (eye + generator / 2) @ x.unsqueeze(-1)).squeeze(-1)
    torch.testing.assert_close(moved, matrix_form, atol=1e-12, rtol=0)


def test_exponential_has_its_closed_form():
    x, u = point_and_tangent()
    r = u.norm(dim=-1, keepdim=True) / 4
    torch.testing.assert_close(
        as_published("exponential")(x, x + u), r.cos() * x + r.sin() / r * u, atol=1e-12, rtol=0
    )


@pytest.mark.parametrize("p", ORDERS)
def test_the_angle_is_p_arctan_r_over_p(p):
    x, u = point_and_tangent()
    r = u.norm(dim=-1) / 4
    angle = r if math.isinf(p) else p * (r / p).atan()
    cosine = (as_published(p)(x, x + u) * x).sum(-1) / 16
    torch.testing.assert_close(cosine, angle.cos(), atol=1e-12, rtol=0)


def test_whole_orders_agree_with_the_trigonometric_formula():
    r_squared = torch.logspace(-12, 4, 100, dtype=torch.float64)
    for p in range(1, 7):
        for algebraic, trigonometric in zip(
            _algebraic_arc(r_squared, p), _trigonometric_arc(r_squared, p), strict=True
        ):
            torch.testing.assert_close(algebraic, trigonometric, atol=1e-11, rtol=1e-11)


@pytest.mark.parametrize("p", ORDERS)
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-6), (torch.bfloat16, 1e-3)])
def test_norms_are_kept_over_a_thousand_steps(p, dtype, tolerance):
    retraction = hc.SphericalRetraction(p)
    x = retraction.project(torch.randn(8, 256).to(dtype))
    for _ in range(1000):
        x = retraction(x, x + retraction.scale_branch(torch.randn(8, 256).to(dtype)).detach())
    assert x.dtype == dtype
    norms = x.detach().double().norm(dim=-1) / 16
    assert (norms - 1).abs().max() <= tolerance


@pytest.mark.parametrize("p", ORDERS)
def test_a_large_proposal_along_the_point_does_not_leave_the_sphere(p):
    """Its tangent part is a small difference of large numbers."""
    retraction = hc.SphericalRetraction(p)
    x = retraction.project(torch.randn(64, 16))
    proposal = 1e4 * x + torch.randn_like(x)
    norms = retraction(x, proposal).double().norm(dim=-1) / 4
    assert (norms - 1).abs().max() <= 1e-6


@pytest.mark.parametrize("p", ORDERS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_zero_steps_and_zero_streams_are_finite(p, dtype):
    retraction = hc.SphericalRetraction(p)
    for x, proposal in [(torch.ones(2, 8), torch.ones(2, 8)), (torch.zeros(2, 8), torch.zeros(2, 8)), (torch.zeros(2, 8), torch.ones(2, 8))]:  # fmt: skip
        x, proposal = x.to(dtype).requires_grad_(), proposal.to(dtype).requires_grad_()
        out = retraction(retraction.project(x), proposal + retraction.scale_branch(torch.zeros_like(proposal)))
        out.sum().backward()
        assert out.isfinite().all()
        assert max(x.grad.abs().max(), proposal.grad.abs().max()) <= 1e4


def test_a_zero_step_stays_where_it_is():
    x, _ = point_and_tangent()
    for p in ORDERS:
        torch.testing.assert_close(as_published(p)(x, x), x, atol=1e-12, rtol=0)


@pytest.mark.parametrize("p", ORDERS)
def test_gradcheck(p):
    retraction = hc.SphericalRetraction(p).double()
    x, u = point_and_tangent(width=4)
    inputs = (x[:2].requires_grad_(), (x[:2] + u[:2]).detach().requires_grad_())
    assert torch.autograd.gradcheck(retraction, inputs)
    assert torch.autograd.gradcheck(lambda y: retraction.scale_branch(y), inputs[1])
    assert torch.autograd.gradcheck(lambda y: retraction.project(y), inputs[1])
    at_rest = x[:2].detach().clone().requires_grad_()
    assert torch.autograd.gradcheck(retraction, (at_rest, at_rest.detach().clone().requires_grad_()))


@pytest.mark.parametrize("p", [1.0, 2.0, 1.5, math.inf])
def test_large_half_precision_entries_do_not_overflow(p):
    retraction = hc.SphericalRetraction(p)
    x = retraction.project(torch.full((1, 4096), 300.0, dtype=torch.float16))
    out = retraction(x, x + retraction.scale_branch(torch.full((1, 4096), -300.0, dtype=torch.float16)))
    assert x.isfinite().all()
    assert out.isfinite().all()


def test_one_stream_with_the_identity_is_spheretnorm_itself():
    block = branch(16).double()
    connection = hc.HyperConnection(16, 1, block, constraint="identity", retraction=as_published(1.0)).double()
    x = as_published(1.0).project(torch.randn(8, 16, dtype=torch.float64))
    output = block(x)
    tangent = output - (x * output).sum(-1, keepdim=True) / 16 * x
    expected = (x + tangent) / (1 + tangent.square().sum(-1, keepdim=True) / 16).sqrt()
    torch.testing.assert_close(connection(x.unsqueeze(1)).squeeze(1), expected, atol=1e-12, rtol=0)


@pytest.mark.parametrize(("name", "n"), supported(sizes=(1, 2, 4)))
@pytest.mark.parametrize("p", [1.0, 2.0, math.inf])
def test_streams_stay_on_the_sphere_and_start_as_the_single_stream_network(name, n, p):
    blocks = [branch(16) for _ in range(6)]
    stack = hc.HyperStack(blocks, 16, n, constraint=name, retraction=p)
    single = hc.HyperStack(blocks, 16, 1, constraint="identity", retraction=p)
    x = torch.randn(4, 3, 16)
    assert relative_error(stack(x), single(x)) <= 2e-5
    streams = stack.expand(x)
    for connection in stack.connections:
        torch.testing.assert_close(streams.norm(dim=-1), torch.full((4, 3, n), 4.0), atol=1e-5, rtol=0)
        streams = connection(streams)


@pytest.mark.parametrize("n", [1, 4])
def test_the_per_stream_step_is_the_documented_formula(n):
    block, width = branch(16).double(), 16
    connection = hc.HyperConnection(width, n, block, retraction=hc.SphericalRetraction(2, step=0.3)).double()
    streams = torch.randn(5, n, width, dtype=torch.float64)
    streams = streams / streams.norm(dim=-1, keepdim=True) * 4
    pre, post, res = connection.mappings(streams)
    y = block(torch.einsum("tj,tjc->tc", pre, streams))
    y = 0.3 * y * (4 / y.norm(dim=-1, keepdim=True))
    proposal = res @ streams + post.unsqueeze(-1) * y.unsqueeze(-2)
    tangent = proposal - (streams * proposal).sum(-1, keepdim=True) / 16 * streams
    quarter = tangent.square().sum(-1, keepdim=True) / 16 / 4
    expected = ((1 - quarter) * streams + tangent) / (1 + quarter)
    torch.testing.assert_close(connection(streams), expected, atol=1e-7, rtol=0)


def test_the_step_is_learned_positive_and_starts_by_depth():
    stack = hc.HyperStack([branch(8) for _ in range(8)], 8, retraction="projection")
    for connection in stack.connections:
        torch.testing.assert_close(connection.retraction.step.item(), 8**-0.5, atol=1e-6, rtol=0)
    given = hc.HyperStack([branch(8)] * 8, 8, retraction=hc.SphericalRetraction(1.0, step=0.5))
    torch.testing.assert_close(given.connections[3].retraction.step.item(), 0.5, atol=1e-6, rtol=0)
    stack(torch.randn(3, 8)).square().sum().backward()
    assert all(c.retraction.raw_step.grad.abs() > 0 for c in stack.connections)
    with torch.no_grad():
        stack.connections[0].retraction.raw_step.fill_(-30.0)
    assert stack.connections[0].retraction.step > 0


def test_as_published_has_no_step_of_its_own_and_takes_the_output_raw():
    retraction = as_published(1.0)
    y = torch.randn(3, 8, dtype=torch.float64)
    torch.testing.assert_close(retraction.scale_branch(y), y, atol=1e-7, rtol=0)
    assert not list(retraction.parameters())
    assert not retraction.state_dict()


def test_rescaling_makes_the_step_independent_of_the_output_scale():
    retraction, y = hc.SphericalRetraction(), torch.randn(3, 8)
    for factor in (0.01, 1.0, 1e3):
        torch.testing.assert_close(
            retraction.scale_branch(factor * y), retraction.scale_branch(y), rtol=1e-4, atol=1e-5
        )
    torch.testing.assert_close(retraction.scale_branch(y).norm(dim=-1), torch.full((3,), 8**0.5), rtol=1e-5, atol=0)


def test_a_manifold_of_ones_own():
    class Clip(hc.Retraction):
        def forward(self, x, proposal):
            return proposal.clamp(-1, 1)

    stack = hc.HyperStack([branch(8) for _ in range(3)], 8, 2, retraction=Clip())
    assert stack(torch.randn(4, 8)).abs().max() <= 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"p": 0}, r"SphericalRetraction: expected p > 0, got 0"),
        ({"p": -1.5}, r"expected p > 0, got -1.5"),
        ({"p": float("nan")}, r"expected p > 0, got nan"),
        ({"p": "cubic"}, r"unknown retraction 'cubic'; known: projection, cayley, exponential"),
        ({"radius": 0.0}, r"expected radius > 0, got 0.0"),
        ({"step": -1.0}, r"expected step > 0, got -1.0"),
    ],
)
def test_bad_options(options, message):
    with pytest.raises(ValueError, match=message):
        hc.SphericalRetraction(**options)


def test_a_foreign_module_is_not_a_retraction():
    with pytest.raises(ValueError, match="SphericalRetraction: expected p > 0, got Identity"):
        hc.HyperConnection(8, 4, retraction=nn.Identity())
