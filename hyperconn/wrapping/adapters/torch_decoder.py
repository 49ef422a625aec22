"""``torch.nn.TransformerDecoderLayer`` with ``norm_first=True``."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from .base import Adapter, Sublayer
from .matching import same_forward
from .registry import register_adapter
from .torch_encoder import POST_NORM


@register_adapter
class TorchDecoder(Adapter):
    """Self-attention, attention to the memory, and feed-forward."""

    def matches(self, block: nn.Module) -> bool:
        return same_forward(block, "torch.nn:TransformerDecoderLayer")

    def unsupported(self, block: Any) -> str | None:
        return None if block.norm_first else POST_NORM

    def sublayers(self, block: nn.Module) -> tuple[Sublayer, ...]:
        return _self_attention, _cross_attention, _feed_forward


def _self_attention(
    block: Any,
    x: Tensor,
    memory: Tensor,
    tgt_mask: Tensor | None = None,
    memory_mask: Tensor | None = None,
    tgt_key_padding_mask: Tensor | None = None,
    memory_key_padding_mask: Tensor | None = None,
    tgt_is_causal: bool = False,
    memory_is_causal: bool = False,
) -> Tensor:
    return block._sa_block(block.norm1(x), tgt_mask, tgt_key_padding_mask, tgt_is_causal)


def _cross_attention(
    block: Any,
    x: Tensor,
    memory: Tensor,
    tgt_mask: Tensor | None = None,
    memory_mask: Tensor | None = None,
    tgt_key_padding_mask: Tensor | None = None,
    memory_key_padding_mask: Tensor | None = None,
    tgt_is_causal: bool = False,
    memory_is_causal: bool = False,
) -> Tensor:
    return block._mha_block(block.norm2(x), memory, memory_mask, memory_key_padding_mask, memory_is_causal)


def _feed_forward(block: Any, x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    return block._ff_block(block.norm3(x))
