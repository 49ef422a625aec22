"""What every site promises, whatever it is built of: one function per law."""

from __future__ import annotations

import torch
from claims import assert_claims, assert_finite
from configurations import Configuration, autocast, build
from torch import Tensor

import hyperconn as hc
from hyperconn.numerics import compute_dtype, tolerance


def check(configuration: Configuration) -> None:
    """Build the site, run it forward and backward, and hold it to shape, dtype, finiteness and claims."""
    connection, leaf, streams = build(configuration)
    with autocast(configuration):
        output = connection(streams)
    assert output.shape == streams.shape
    assert output.dtype == streams.dtype
    (output * torch.randn_like(output)).sum().backward()
    gradients = {name: parameter.grad for name, parameter in connection.named_parameters()}
    assert_finite(output=output, streams=None if gradient_may_overflow(configuration) else leaf.grad, **gradients)
    assert_all_reached(connection, output)
    assert_mappings(connection, configuration, streams)
    assert_on_the_sphere(connection, streams)


def gradient_may_overflow(configuration: Configuration) -> bool:
    """Putting a vanishing vector on the sphere multiplies its gradient by 1e3, each time: too much for float16."""
    vanishing = configuration.tokens in ("zero", "padded", "subnormal")
    return configuration.retraction is not None and configuration.dtype == torch.float16 and vanishing


def assert_all_reached(connection: hc.HyperConnection, output: Tensor) -> None:
    """No parameter is left without a gradient, with no token the gradients are zero."""
    for name, parameter in connection.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.dtype == parameter.dtype, name
        assert output.numel() > 0 or not parameter.grad.any(), name


def assert_mappings(connection: hc.HyperConnection, configuration: Configuration, streams: Tensor) -> None:
    """Mappings come in the compute dtype, autocast or not; gates in their ranges, H in its set."""
    with autocast(configuration):
        inside = connection.mappings(streams)
    outside = connection.mappings(streams)
    for under_autocast, plain in zip(inside, outside, strict=True):
        assert plain.dtype == compute_dtype(streams)
        assert torch.equal(under_autocast, plain)
    if connection.mapping is not None and isinstance(connection.mapping.gates, hc.gates.SigmoidGates):
        assert ((outside.pre >= 0) & (outside.pre <= 1)).all()
        assert ((outside.post >= 0) & (outside.post <= 2)).all()
    assert_claims(connection.constraint, outside.res)


def assert_on_the_sphere(connection: hc.HyperConnection, streams: Tensor) -> None:
    """A retraction keeps every stream of a token on the sphere it was put on."""
    if connection.retraction is None:
        return
    point = connection.retraction.project(streams.detach())
    radius = streams.shape[-1] ** 0.5
    error = (connection(point).to(torch.float64).norm(dim=-1) / radius - 1).abs()
    placed = (point.to(torch.float64).norm(dim=-1) / radius - 1).abs() < 0.1
    assert (error[placed] <= 4 * tolerance(streams.dtype, streams.shape[-1])).all()
