"""The static quantities of all connections at once, cheap enough for a training loop."""

from __future__ import annotations

import torch
from torch import Tensor

from ..connection import HyperConnection
from .quantities import MATRIX_QUANTITIES, measure_matrices
from .sites import plain_gates

Row = dict[str, float]


@torch.no_grad()
def snapshot(connections: dict[str, HyperConnection], beginnings: frozenset[str]) -> tuple[list[Row], list[Tensor]]:
    """One row per connection, and the matrices.

    Args:
        connections: in the order of the modules.
        beginnings: names of those at which a product through depth starts.

    Returns:
        tuple: rows of quantities, of the product up to there (``product.…``) and of the gates; ``(n, n)`` matrices.
    """
    maps = [connection.static_mappings() for connection in connections.values()]
    rows: list[Row] = [{} for _ in maps]
    for n in {m.res.shape[-1] for m in maps}:
        chosen = [index for index, m in enumerate(maps) if m.res.shape[-1] == n]
        matrices = torch.stack([maps[index].res.double() for index in chosen])
        begins = [name in beginnings for index, name in enumerate(connections) if index in set(chosen)]
        for prefix, found in (("", matrices), ("product.", _products(matrices, begins))):
            for index, values in zip(chosen, _quantities(found), strict=True):
                rows[index] |= {f"{prefix}{name}": value for name, value in values.items()}
    for row, (pre, post, res) in zip(rows, maps, strict=True):
        row |= _gates(*plain_gates(pre, post, res))
    return rows, [m.res.detach().cpu() for m in maps]


def _quantities(matrices: Tensor) -> list[Row]:
    """One transfer for all of them."""
    measured = measure_matrices(matrices)
    table = torch.stack([measured[name] for name in MATRIX_QUANTITIES], 1).tolist()
    return [dict(zip(MATRIX_QUANTITIES, values, strict=True)) for values in table]


def _products(matrices: Tensor, begins: list[bool]) -> Tensor:
    products: list[Tensor] = []
    for matrix, begin in zip(matrices, begins, strict=True):
        products.append(matrix if begin or not products else matrix @ products[-1])
    return torch.stack(products)


def _gates(pre: Tensor | None, post: Tensor | None) -> Row:
    named = (("pre", pre), ("post", post))
    return {
        f"{name}_{stream}": value
        for name, gates in named
        if gates is not None
        for stream, value in enumerate(gates.tolist())
    }
