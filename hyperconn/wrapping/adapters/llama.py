"""Decoders of the Llama shape in ``transformers``: Llama, Mistral, Qwen, Gemma 1, OLMo and some sixty more."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from .base import Adapter, Sublayer
from .matching import has_children, other_arguments, same_forward
from .registry import register_adapter

CHILDREN = ("input_layernorm", "self_attn", "post_attention_layernorm", "mlp")
ARGUMENTS = ("attention_mask", "position_ids", "cache", "use_cache", "position_embeddings")
REFERENCES = (
    "transformers.models.llama.modeling_llama:LlamaDecoderLayer",
    "transformers.models.mixtral.modeling_mixtral:MixtralDecoderLayer",
)


@register_adapter
class Llama(Adapter):
    """Self-attention and MLP (or mixture of experts), each with its norm before it."""

    def matches(self, block: nn.Module) -> bool:
        return has_children(block, *CHILDREN) and same_forward(block, *REFERENCES)

    def unsupported(self, block: nn.Module) -> str | None:
        return other_arguments(block, "hidden_states", *ARGUMENTS)

    def sublayers(self, block: nn.Module) -> tuple[Sublayer, ...]:
        return _attention, _mlp


def _attention(block: Any, x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    kwargs.update(zip(ARGUMENTS, args, strict=False))
    return block.self_attn(hidden_states=block.input_layernorm(x), **kwargs)[0]


def _mlp(block: Any, x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    return block.mlp(block.post_attention_layernorm(x))
