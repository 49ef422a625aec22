"""One site of ours and of each peer, all with an empty branch, and the bare pass they are compared with."""

from __future__ import annotations

import types
from collections.abc import Callable

import torch
from torch import Tensor, nn

import hyperconn as hc

Site = Callable[[Tensor], Tensor]
PEERS = ("DeepseekV4HyperConnection", "hyper-connections mHCv2")


def bare_pass(x: Tensor) -> Tensor:
    """The least anything can do: read the streams once and write them once."""
    return x + 1


def ours(constraint: str, streams: int, dim: int, **options) -> nn.Module:
    site = hc.HyperConnection(dim, streams, nn.Identity(), constraint=constraint, **options)
    stir(site)
    return site


def stir(module: nn.Module) -> None:
    """Away from the start, where weights are zero and products with them might come cheap."""
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            if name.endswith(("mapping.weight", "fn")):
                parameter.normal_(std=0.02)


def peer(name: str, streams: int, dim: int) -> Site:
    return deepseek(streams, dim) if name == PEERS[0] else mhc_v2(streams, dim)


def deepseek(streams: int, dim: int) -> Site:
    """The site of ``transformers`` with the merge that its decoder layer does."""
    from transformers.models.deepseek_v4.modeling_deepseek_v4 import DeepseekV4HyperConnection

    sizes = {"hc_mult": streams, "hc_sinkhorn_iters": 20, "hc_eps": 1e-6, "rms_norm_eps": 1e-6, "hidden_size": dim}
    module = DeepseekV4HyperConnection(types.SimpleNamespace(**sizes))
    with torch.no_grad():
        module.fn.normal_(std=0.02)
        module.base.zero_()
        module.scale.fill_(1.0)

    def site(x: Tensor) -> Tensor:
        post, comb, read = module(x)
        written = post.to(x.dtype).unsqueeze(-1) * read.unsqueeze(-2)
        return written + torch.matmul(comb.to(x.dtype).transpose(-1, -2), x)

    return site


def mhc_v2(streams: int, dim: int) -> Site:
    from hyper_connections.mHCv2 import ManifoldConstrainedHyperConnections

    return ManifoldConstrainedHyperConnections(streams, dim=dim, branch=nn.Identity(), layer_index=0)


def kept_for_backward(site: Site, x: Tensor) -> int:
    """Bytes a call keeps, parameters apart."""
    sizes: dict[int, int] = {}

    def note(tensor: Tensor) -> Tensor:
        if not isinstance(tensor, nn.Parameter):
            sizes[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        output = site(x)
    parameters = {p.untyped_storage().data_ptr() for p in site.parameters()} if isinstance(site, nn.Module) else set()
    assert output.requires_grad
    return sum(size for pointer, size in sizes.items() if pointer not in parameters)
