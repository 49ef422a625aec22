"""How the blocks of model families fall into sublayers, one file each; every file registers its adapter."""

from .base import Adapter, WholeBlock
from .gpt2 import GPT2
from .llama import Llama
from .registry import adapter_for, list_adapters, register_adapter
from .timm_vit import TimmViT
from .torch_decoder import TorchDecoder
from .torch_encoder import TorchEncoder
from .vit import ViT

__all__ = [
    "GPT2",
    "Adapter",
    "Llama",
    "TimmViT",
    "TorchDecoder",
    "TorchEncoder",
    "ViT",
    "WholeBlock",
    "adapter_for",
    "list_adapters",
    "register_adapter",
]
