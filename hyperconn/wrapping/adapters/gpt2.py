"""GPT-2 in ``transformers``, with cross-attention if it was built with it."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from .base import Adapter, Sublayer
from .matching import has_children, other_arguments, same_forward
from .registry import register_adapter


@register_adapter
class GPT2(Adapter):
    """Self-attention, cross-attention where there is one, and MLP."""

    def matches(self, block: nn.Module) -> bool:
        reference = "transformers.models.gpt2.modeling_gpt2:GPT2Block"
        return has_children(block, "ln_1", "attn", "ln_2", "mlp") and same_forward(block, reference)

    def unsupported(self, block: nn.Module) -> str | None:
        return other_arguments(block, "hidden_states", "cache", "attention_mask", "encoder_hidden_states")

    def sublayers(self, block: nn.Module) -> tuple[Sublayer, ...]:
        cross = (_cross_attention,) if has_children(block, "crossattention") else ()
        return _attention, *cross, _mlp


def _attention(
    block: Any,
    x: Tensor,
    cache: Any = None,
    attention_mask: Tensor | None = None,
    encoder_hidden_states: Tensor | None = None,
    encoder_attention_mask: Tensor | None = None,
    use_cache: bool | None = False,
    **kwargs: Any,
) -> Tensor:
    if encoder_hidden_states is not None and not has_children(block, "crossattention"):
        raise ValueError("GPT2: expected add_cross_attention=True in the config for encoder_hidden_states.")
    x = block.ln_1(x)
    return block.attn(x, cache=cache, attention_mask=attention_mask, use_cache=use_cache, **kwargs)[0]


def _cross_attention(
    block: Any,
    x: Tensor,
    cache: Any = None,
    attention_mask: Tensor | None = None,
    encoder_hidden_states: Tensor | None = None,
    encoder_attention_mask: Tensor | None = None,
    use_cache: bool | None = False,
    **kwargs: Any,
) -> Tensor | None:
    if encoder_hidden_states is None:
        return None
    return block.crossattention(
        block.ln_cross_attn(x),
        cache=cache,
        attention_mask=attention_mask,
        encoder_hidden_states=encoder_hidden_states,
        encoder_attention_mask=encoder_attention_mask,
    )[0]


def _mlp(block: Any, x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    return block.mlp(block.ln_2(x))
