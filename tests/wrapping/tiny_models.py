"""Tiny models with random weights of every family that wrap knows, and inputs for them."""

from __future__ import annotations

import copy
import functools
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import nn
from torchvision_operators import define_missing_operators

define_missing_operators()
WIDTH = 16
VOCABULARY = 40


@dataclass(frozen=True)
class Family:
    """How to build one model, what to feed it, and which levels its family supports."""

    build: Callable[[], nn.Module]
    inputs: Callable[[], dict[str, Any]]
    blocks: str
    levels: tuple[str, ...] = ("block", "sublayer")
    package: str = "transformers"


def make(name: str) -> nn.Module:
    """A fresh copy of the tiny model of a family, in eval mode; skips where its package is absent."""
    package = FAMILIES[name].package
    pytest.importorskip(package, reason=f"NOT TESTED: {name} needs {package} and what it imports")
    return copy.deepcopy(_built(name))


def inputs(name: str) -> dict[str, Any]:
    torch.manual_seed(1)
    return FAMILIES[name].inputs()


def run(model: nn.Module, name: str) -> torch.Tensor:
    """The model's output tensor: logits, or the last hidden state."""
    output = model(**inputs(name))
    if isinstance(output, torch.Tensor):
        return output
    return output.logits if hasattr(output, "logits") else output.last_hidden_state


def connection_parameters(model: nn.Module) -> list[nn.Parameter]:
    return [parameter for parameter in model.parameters() if getattr(parameter, "is_connection", False)]


@torch.no_grad()
def perturb(model: nn.Module, scale: float = 0.3) -> nn.Module:
    """Move every connection parameter, as training would: the streams differ and every token has its own matrix."""
    generator = torch.Generator().manual_seed(2)
    for parameter in connection_parameters(model):
        parameter.add_(scale * torch.randn(parameter.shape, generator=generator))
    return model


@functools.cache
def _built(name: str) -> nn.Module:
    torch.manual_seed(0)
    return _unlike(FAMILIES[name].build()).eval()


def _llama() -> nn.Module:
    from transformers import LlamaConfig, LlamaForCausalLM

    return LlamaForCausalLM(LlamaConfig(**_decoder_sizes()))


def _qwen() -> nn.Module:
    from transformers import Qwen3Config, Qwen3ForCausalLM

    return Qwen3ForCausalLM(Qwen3Config(**_decoder_sizes(), head_dim=4))


def _mistral() -> nn.Module:
    from transformers import MistralConfig, MistralForCausalLM

    return MistralForCausalLM(MistralConfig(**_decoder_sizes(), sliding_window=None))


def _decoder_sizes() -> dict[str, Any]:
    return {
        "hidden_size": WIDTH,
        "intermediate_size": 24,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "vocab_size": VOCABULARY,
        "initializer_range": 0.2,
        "pad_token_id": 0,
        "bos_token_id": 1,
        "eos_token_id": None,
    }


def _gpt2() -> nn.Module:
    from transformers import GPT2Config, GPT2LMHeadModel

    logging.getLogger("transformers").setLevel(logging.ERROR)
    sizes = {"n_embd": WIDTH, "n_layer": 2, "n_head": 4, "n_positions": 64, "vocab_size": VOCABULARY}
    return GPT2LMHeadModel(
        GPT2Config(**sizes, initializer_range=0.2, pad_token_id=0, bos_token_id=1, eos_token_id=None)
    )


def _vit() -> nn.Module:
    from transformers import ViTConfig, ViTForImageClassification

    sizes = {"hidden_size": WIDTH, "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 4}
    return ViTForImageClassification(ViTConfig(**sizes, image_size=8, patch_size=4, initializer_range=0.2))


def _bert() -> nn.Module:
    from transformers import BertConfig, BertModel

    sizes = {"hidden_size": WIDTH, "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 4}
    return BertModel(BertConfig(**sizes, vocab_size=VOCABULARY, initializer_range=0.2))


def _torch_encoder(norm_first: bool = True) -> nn.Module:
    layer = nn.TransformerEncoderLayer(WIDTH, 4, 24, batch_first=True, norm_first=norm_first)
    return nn.TransformerEncoder(layer, 2, nn.LayerNorm(WIDTH), enable_nested_tensor=False)


def _torch_decoder() -> nn.Module:
    layer = nn.TransformerDecoderLayer(WIDTH, 4, 24, batch_first=True, norm_first=True)
    return nn.TransformerDecoder(layer, 2, nn.LayerNorm(WIDTH))


@torch.no_grad()
def _unlike(model: nn.Module) -> nn.Module:
    """Fresh norms are all alike, and so are the layers of torch's stacks; in a trained model none are."""
    for parameter in model.parameters():
        parameter.add_(0.2 * torch.randn_like(parameter))
    return model


def _timm() -> nn.Module:
    from timm.models.vision_transformer import VisionTransformer

    return VisionTransformer(
        img_size=8, patch_size=4, embed_dim=WIDTH, depth=2, num_heads=4, num_classes=5, init_values=0.5
    )


def tokens() -> dict[str, Any]:
    """Two sequences, the first padded on the left."""
    ids = torch.randint(3, VOCABULARY, (2, 7))
    ids[0, :3] = 0
    return {"input_ids": ids, "attention_mask": (ids != 0).long()}


def _padded() -> torch.Tensor:
    return torch.tensor([[False] * 6, [False] * 4 + [True] * 2])


def _causal() -> torch.Tensor:
    return torch.ones(6, 6, dtype=torch.bool).triu(1)


FAMILIES = {
    "llama": Family(_llama, tokens, "model.layers"),
    "qwen": Family(_qwen, tokens, "model.layers"),
    "mistral": Family(_mistral, tokens, "model.layers"),
    "gpt2": Family(_gpt2, tokens, "transformer.h"),
    "vit": Family(_vit, lambda: {"pixel_values": torch.randn(2, 3, 8, 8)}, "vit.layers"),
    "bert": Family(_bert, tokens, "encoder.layer", levels=("block",)),
    "torch-encoder": Family(
        _torch_encoder,
        lambda: {"src": torch.randn(2, 6, WIDTH), "src_key_padding_mask": _padded()},
        "layers",
        package="torch",
    ),
    "torch-encoder-post-norm": Family(
        functools.partial(_torch_encoder, norm_first=False),
        lambda: {"src": torch.randn(2, 6, WIDTH), "src_key_padding_mask": _padded()},
        "layers",
        levels=("block",),
        package="torch",
    ),
    "torch-decoder": Family(
        _torch_decoder,
        lambda: {
            "tgt": torch.randn(2, 6, WIDTH),
            "memory": torch.randn(2, 5, WIDTH),
            "tgt_mask": _causal(),
            "tgt_key_padding_mask": _padded(),
        },
        "layers",
        package="torch",
    ),
    "timm-vit": Family(_timm, lambda: {"x": torch.randn(2, 3, 8, 8)}, "blocks", package="timm"),
}
LEVELS = [(name, level) for name, family in FAMILIES.items() for level in family.levels]
DECODERS = ("llama", "gpt2")
