"""What one site costs, in passes over its streams: constraints and peers, sizes, memory."""

from __future__ import annotations

import pytest
import torch
from sites import PEERS, Site, bare_pass, kept_for_backward, ours, peer
from torch import Tensor

import hyperconn as hc

TOKENS, STREAMS, DIM = (4, 256), 4, 512
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


def streams(tokens: tuple[int, ...], n: int, dim: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(*tokens, n, dim, dtype=dtype, requires_grad=True)


def both_ways(site: Site, x: Tensor):
    cotangent = torch.randn_like(x)

    def run() -> None:
        x.grad = None
        site(x).backward(cotangent)

    return run


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("way", ["forward", "forward + backward"])
@pytest.mark.parametrize("name", [*hc.list_constraints(), *PEERS])
def test_eager(against, name, way, dtype):
    x = streams(TOKENS, STREAMS, DIM, DTYPES[dtype])
    if name in PEERS and dtype == "bfloat16":
        pytest.skip("the peers are compared in float32, in which they are the most accurate")
    site = peer(name, STREAMS, DIM) if name in PEERS else ours(name, STREAMS, DIM)
    kept = kept_for_backward(site, x) / (x.numel() * x.element_size())
    measure(against, site, x, way, mode="eager", name=name, dtype=dtype, kept=kept)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", hc.list_constraints())
def test_compiled(against, name, dtype):
    x = streams(TOKENS, STREAMS, DIM, DTYPES[dtype])
    site = torch.compile(ours(name, STREAMS, DIM), fullgraph=True)
    measure(against, site, x, "forward + backward", mode="compiled", name=name, dtype=dtype)


def measure(against, site: Site, x: Tensor, way: str, **facts) -> None:
    if way == "forward":
        with torch.no_grad():
            against(lambda: site(x), lambda: bare_pass(x), kind="site", way=way, **facts)
    else:
        against(both_ways(site, x), both_ways(bare_pass, x), kind="site", way=way, **facts)


@pytest.mark.parametrize("name", [*hc.list_constraints(), *PEERS])
def test_beside_sinkhorn(against, name):
    """Two sites in turn, which says more of their ratio than each beside the short bare pass."""
    x = streams(TOKENS, STREAMS, DIM)
    site = peer(name, STREAMS, DIM) if name in PEERS else ours(name, STREAMS, DIM)
    against(both_ways(site, x), both_ways(ours("sinkhorn", STREAMS, DIM), x), 25, kind="beside sinkhorn", name=name)


@pytest.mark.parametrize("recompute", [True, hc.recompute.keep_nothing], ids=["keep_products", "keep_nothing"])
def test_recompute(against, recompute):
    x = streams(TOKENS, STREAMS, DIM)
    site, plain = ours("sinkhorn", STREAMS, DIM, recompute=recompute), ours("sinkhorn", STREAMS, DIM)
    kept = kept_for_backward(site, x) / (x.numel() * x.element_size())
    policy = recompute if recompute is True else "keep_nothing"
    against(both_ways(site, x), both_ways(plain, x), kind="recompute", policy=str(policy), kept=kept)


@pytest.mark.parametrize("n", [2, 4, 8])
@pytest.mark.parametrize("dim", [256, 512, 1024])
def test_width(against, n, dim):
    x, base = streams(TOKENS, n, dim), streams(TOKENS, STREAMS, DIM)
    against(
        both_ways(ours("sinkhorn", n, dim), x),
        both_ways(ours("sinkhorn", STREAMS, DIM), base),
        kind="width", n=n, dim=dim,
    )  # fmt: skip


@pytest.mark.parametrize("tokens", [256, 1024, 4096, 16384])
def test_length(against, tokens):
    x, base = streams((1, tokens), STREAMS, DIM), streams(TOKENS, STREAMS, DIM)
    site = ours("sinkhorn", STREAMS, DIM)
    against(both_ways(site, x), both_ways(site, base), 11, kind="length", tokens=tokens)


def test_a_single_stream(against):
    """Against ``x + F(x)``, with a linear branch."""
    linear = torch.nn.Linear(DIM, DIM)
    connection = hc.HyperConnection(DIM, 1, linear)
    x, plain = streams(TOKENS, 1, DIM), torch.randn(*TOKENS, DIM, requires_grad=True)
    against(both_ways(connection, x), both_ways(lambda x: x + linear(x), plain), 41, kind="single stream")
