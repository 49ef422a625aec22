"""``torch.nn.TransformerEncoderLayer`` with ``norm_first=True``."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from .base import Adapter, Sublayer
from .matching import same_forward
from .registry import register_adapter

POST_NORM = "norm_first=False normalises after the residual is added. Use level='block'."


@register_adapter
class TorchEncoder(Adapter):
    """Self-attention and feed-forward."""

    def matches(self, block: nn.Module) -> bool:
        return same_forward(block, "torch.nn:TransformerEncoderLayer")

    def unsupported(self, block: Any) -> str | None:
        return None if block.norm_first else POST_NORM

    def sublayers(self, block: nn.Module) -> tuple[Sublayer, ...]:
        return _attention, _feed_forward


def _attention(
    block: Any,
    x: Tensor,
    src_mask: Tensor | None = None,
    src_key_padding_mask: Tensor | None = None,
    is_causal: bool = False,
) -> Tensor:
    return block._sa_block(block.norm1(x), src_mask, src_key_padding_mask, is_causal)


def _feed_forward(block: Any, x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    return block._ff_block(block.norm2(x))
