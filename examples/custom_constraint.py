"""A constraint of one's own: every stream gives a share g away and takes as much of one common pool.

python examples/custom_constraint.py
"""

import argparse
from pathlib import Path

import torch
from torch import nn

import hyperconn as hc
from hyperconn.constraints.distances import largest, negativity, row_sum_error

WIDTH, CONTEXT = 48, 8


@hc.register_constraint("common-pool", "pool")
class CommonPool(hc.Constraint):
    """``H = (1 − g) I + g 1wᵀ`` with ``g = sigmoid(c_0)`` and ``w = softmax(c_1 … c_n)``. Reference: this file."""

    nonnegative = unit_row_sums = closed_under_product = True
    unit_column_sums = nonexpansive = False
    set_description, reference = "I and a common pool", "this file"
    coordinate_sizes = property(lambda self: (1, self.streams))  # each group has its own learned scale

    def matrix(self, coordinates):  # (..., 1 + n) -> (..., n, n)
        share = coordinates[..., :1].sigmoid().unsqueeze(-1)  # (..., 1, 1)
        pool = coordinates[..., 1:].softmax(-1).unsqueeze(-2)  # (..., 1, n), the same row for every stream
        return (1 - share) * torch.eye(self.streams).to(coordinates) + share * pool

    def identity_coordinates(self):  # near I, where the sigmoid still has a gradient
        return torch.tensor([-5.0] + [0.0] * self.streams)

    def violation(self, matrix):  # 0 inside the set: rows sum to 1 and are alike outside the diagonal
        rest = matrix - matrix.diagonal(0, -2, -1).diag_embed()
        alike = rest.sum(-2, keepdim=True) / (self.streams - 1) * (1 - torch.eye(self.streams)).to(matrix)
        return largest(row_sum_error(matrix), negativity(matrix), (rest - alike).abs().amax((-2, -1)))


def main(steps: int = 60) -> None:
    torch.manual_seed(0)
    text = torch.tensor(list(Path(argparse.__file__).read_bytes()))  # a module of the standard library, byte by byte
    windows = text.unfold(0, CONTEXT + 1, 1)  # the last byte of each is to be predicted
    branches = [nn.Sequential(nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WIDTH), nn.GELU()) for _ in range(6)]
    stack = hc.HyperStack(branches, WIDTH, constraint="common-pool")
    model = nn.Sequential(nn.Embedding(256, WIDTH // CONTEXT), nn.Flatten(), stack, nn.Linear(WIDTH, 256))
    optimizer = torch.optim.AdamW(hc.parameter_groups(model, weight_decay=0.1), lr=1e-2)
    for step in range(1, steps + 1):
        batch = windows[torch.randint(len(windows), (256,))]
        loss = nn.functional.cross_entropy(model(batch[:, :-1]), batch[:, -1])
        optimizer.zero_grad(), loss.backward(), optimizer.step()
        if step in (1, steps):
            print(f"step {step}: loss {loss.item():.3f}")
    print(stack.connections[-1].residual_matrix().detach(), hc.inspect(model), sep="\n")


if __name__ == "__main__":
    main()
