"""Vision transformers of the ViT shape in ``transformers``."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from .base import Adapter, Sublayer
from .matching import has_children, same_forward
from .registry import register_adapter


@register_adapter
class ViT(Adapter):
    """Self-attention and MLP, each with its norm before and its dropout behind it."""

    def matches(self, block: nn.Module) -> bool:
        reference = "transformers.models.vit.modeling_vit:ViTLayer"
        children = ("layernorm_before", "attention", "layernorm_after", "mlp", "dropout")
        return has_children(block, *children) and same_forward(block, reference)

    def sublayers(self, block: nn.Module) -> tuple[Sublayer, ...]:
        return _attention, _mlp


def _attention(block: Any, x: Tensor, attention_mask: Tensor | None = None, **kwargs: Any) -> Tensor:
    return block.dropout(block.attention(block.layernorm_before(x), attention_mask, **kwargs)[0])


def _mlp(block: Any, x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    return block.dropout(block.mlp(block.layernorm_after(x)))
