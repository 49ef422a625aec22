"""Files that were damaged or forged: seeded mutations of real ones, on the level of bytes and of meaning."""

from __future__ import annotations

import io
import json
import random
import struct
import zipfile
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

import hyperconn as hc
from hyperconn.description import decode_description, encode_description

Bytes = Callable[[random.Random, bytes], bytes]
DEEP = json.loads("[" * 60 + "]" * 60)
VALUES: list[Any] = [
    None, True, False, 0, -1, 1, 3, 4, 2**31, 2**63, 10**40, -0.5, 1e308, float("nan"), float("inf"), "", "4", "sinkhorn",
    "permutation", "../../outside", "/etc/passwd", "\x1b[2J\r\n\u2028", "\ud800", "x" * 5000, [], {}, [[]], {"name": 1},
    {"name": "sinkhorn", "iterations": 10**9}, {"name": "orthostochastic", "block": 64}, {"kind": "SigmoidGates", "x": 1}, DEEP,
]  # fmt: skip
DTYPES = [
    torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.int8, torch.uint8, torch.uint64, torch.bool,
    torch.complex64, torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e8m0fnu,
]  # fmt: skip


def _place(rng: random.Random, content: bytes) -> tuple[int, int]:
    start = rng.randrange(len(content) + 1)
    return start, min(len(content), start + rng.choice([1, 2, 8, 64, 1024]))


def truncated(rng: random.Random, content: bytes) -> bytes:
    return content[: rng.randrange(len(content))]


def flipped(rng: random.Random, content: bytes) -> bytes:
    changed = bytearray(content)
    for _ in range(rng.choice([1, 2, 8, 64])):
        changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
    return bytes(changed)


def overwritten(rng: random.Random, content: bytes) -> bytes:
    start, end = _place(rng, content)
    filling = rng.choice([bytes(end - start), b"\xff" * (end - start), rng.randbytes(end - start)])
    return content[:start] + filling + content[end:]


def cut(rng: random.Random, content: bytes) -> bytes:
    start, end = _place(rng, content)
    return content[:start] + content[end:]


def repeated(rng: random.Random, content: bytes) -> bytes:
    start, end = _place(rng, content)
    return content[:end] + content[start:end] * rng.choice([1, 20]) + content[end:]


BYTES: list[Bytes] = [truncated, flipped, overwritten, cut, repeated]


def any_bytes(rng: random.Random, content: bytes) -> bytes:
    return rng.choice(BYTES)(rng, content)


def any_value(rng: random.Random, tree: Any) -> Any:
    """The plain data with one value, key or item somewhere replaced, removed or added."""
    if isinstance(tree, (dict, list)) and tree and rng.random() < 0.8:
        keys = list(tree) if isinstance(tree, dict) else range(len(tree))
        key, changed = rng.choice(keys), tree.copy()
        if rng.random() < 0.1:
            del changed[key]
        elif rng.random() < 0.1 and isinstance(changed, dict):
            changed[rng.choice(["", "name", "x", "inf"])] = rng.choice(VALUES)
        else:
            changed[key] = any_value(rng, tree[key])
        return changed
    return rng.choice(VALUES)


def any_description(rng: random.Random, state: Tensor) -> Tensor:
    """Another description, or bytes that are none."""
    if rng.random() < 0.7:
        return encode_description(any_value(rng, decode_description(state)))
    return torch.tensor(list(any_bytes(rng, bytes(state.tolist()))), dtype=torch.uint8)


def any_tensor(rng: random.Random, tensor: Tensor) -> Tensor:
    """Another dtype, another shape, values that are none, no values, or no dense tensor."""
    shape = [rng.choice([0, 1, 2, 3, 4, 24, 25]) for _ in range(rng.randrange(4))]
    return rng.choice(
        [
            lambda: tensor.to(rng.choice(DTYPES)),
            lambda: torch.zeros(shape).to(rng.choice(DTYPES)),
            lambda: tensor.float() * float("nan"),
            lambda: tensor.float() * 1e38 * 10,
            lambda: torch.zeros(1).expand(10**13),
            lambda: tensor.to("meta"),
            lambda: tensor.float().to_sparse(),
            lambda: tensor.flatten()[:-1].clone(),
        ]
    )()


def any_state(rng: random.Random, state: dict[str, Any]) -> dict[str, Any]:
    """A state dict with one of its tensors changed, removed or under another name."""
    changed, name = dict(state), rng.choice(list(state))
    if name.endswith("_extra_state") and rng.random() < 0.9:
        changed[name] = any_description(rng, state[name])
    elif (roll := rng.random()) < 0.1:
        del changed[name]
    elif roll < 0.2:
        changed[rng.choice(["\x1b[31m", "a\nb\u2028", "\ud800", "x" * 3000, "..", "1" * 40]) + name] = changed.pop(
            name
        )
    else:
        changed[name] = any_tensor(rng, state[name])
    return changed


# --- whole files --------------------------------------------------------------------------------------


def model_state() -> dict[str, Tensor]:
    """A small network for both commands: connections, and projections that occur in two layers."""
    options = {"constraint": "shc", "retraction": "cayley", "collapse": "learned"}
    stack = hc.HyperStack([nn.Identity() for _ in range(2)], 4, 4, **options)
    encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(4, 2, 8), 2, enable_nested_tensor=False)
    return dict(nn.ModuleDict({"stack": stack, "encoder": encoder}).state_dict())


def published_state() -> dict[str, Tensor]:
    return {
        f"layers.{layer}.hc_attn_{part}": torch.randn(shape)
        for layer in range(2)
        for part, shape in {"fn": (24, 16), "base": (24,), "scale": (3,)}.items()
    }


def archive(content: Any) -> bytes:
    """What ``torch.save`` writes."""
    stream = io.BytesIO()
    torch.save(content, stream)
    return stream.getvalue()


def repacked(content: bytes, change: Callable[[str, bytes], bytes], compression: int = zipfile.ZIP_STORED) -> bytes:
    """An archive of ``torch.save``, valid again after its members were changed."""
    stream = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(content)) as old, zipfile.ZipFile(stream, "w", compression) as new:
        for name in old.namelist():
            new.writestr(name, change(name, old.read(name)))
    return stream.getvalue()


def any_pickle(rng: random.Random, content: bytes) -> bytes:
    return repacked(content, lambda name, member: any_bytes(rng, member) if name.endswith(".pkl") else member)


def any_header(rng: random.Random, content: bytes) -> bytes:
    """A safetensors file with another header, whose length fits again."""
    (length,) = struct.unpack("<Q", content[:8])
    header = json.dumps(any_value(rng, json.loads(content[8 : 8 + length]))).encode()
    return struct.pack("<Q", len(header)) + header + content[8 + length :]
