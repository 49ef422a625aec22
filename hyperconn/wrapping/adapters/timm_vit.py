"""The block of ``timm``'s ``VisionTransformer``."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from .base import Adapter, Sublayer
from .matching import has_children, same_forward
from .registry import register_adapter


@register_adapter
class TimmViT(Adapter):
    """Self-attention and MLP, with layer scale and stochastic depth where the model has them."""

    def matches(self, block: nn.Module) -> bool:
        children = ("norm1", "attn", "ls1", "drop_path1", "norm2", "mlp", "ls2", "drop_path2")
        return has_children(block, *children) and same_forward(block, "timm.models.vision_transformer:Block")

    def sublayers(self, block: nn.Module) -> tuple[Sublayer, ...]:
        return _attention, _mlp


def _attention(block: Any, x: Tensor, attn_mask: Tensor | None = None, is_causal: bool = False) -> Tensor:
    return block.drop_path1(block.ls1(block.attn(block.norm1(x), attn_mask=attn_mask, is_causal=is_causal)))


def _mlp(block: Any, x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    return block.drop_path2(block.ls2(block.mlp(block.norm2(x))))
