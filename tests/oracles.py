"""The published sites, written token by token from the papers' formulas, without a line of the package.

Every oracle takes the parameters as published: one weight ``(2n + k, nC)`` on the flat normalised
streams, one scale per group, one bias; orientation ``H[i, j]`` from stream j into stream i.
"""

from __future__ import annotations

import itertools
import math

import torch


def one_site(token, pre, post, res, branch):
    """``X'_i = Σ_j H_ij X_j + post_i F(Σ_j pre_j X_j)`` for one token ``(n, C)``."""
    n = len(token)
    y = branch(sum(pre[j] * token[j] for j in range(n)))
    return torch.stack([sum(res[i, j] * token[j] for j in range(n)) + post[i] * y for i in range(n)])


def flat_logits(token, weight, scales, bias, sizes):
    """``α_g (W x̃) + b`` with ``x̃`` the streams laid end to end over their root mean square."""
    v = torch.cat(list(token))
    m = weight @ (v / torch.sqrt((v * v).mean() + 1e-6))
    groups = zip(m.split(sizes), scales, bias.split(sizes), strict=True)
    return [scale * part + start for part, scale, start in groups]


def flat_site(matrix, coordinate_sizes):
    """A site of the mHC family, with its map from coordinate groups to H."""

    def site(streams, weight, scales, bias, branch):
        n = streams.shape[-2]
        outputs = []
        for token in streams:
            pre, post, *groups = flat_logits(token, weight, scales, bias, [n, n, *coordinate_sizes(n)])
            gates = 1 / (1 + torch.exp(-pre)), 2 / (1 + torch.exp(-post))
            outputs.append(one_site(token, *gates, matrix(n, *groups), branch))
        return torch.stack(outputs)

    return site


def sinkhorn(n, logits):
    iterations = 20 if n > 2 else 1000  # the library computes the limit at n = 2, where it has a closed form
    m = torch.exp(logits.reshape(n, n))
    for _ in range(iterations):
        m = m / m.sum(0, keepdim=True)
        m = m / m.sum(1, keepdim=True)
    return m


def permutation_mixture(n, logits):
    weights = torch.exp(logits) / torch.exp(logits).sum()
    eye = torch.eye(n)
    return sum(w * eye[list(order)] for w, order in zip(weights, itertools.permutations(range(n)), strict=True))


def kronecker(n, logits):
    result = torch.ones(1, 1)
    for a, b in logits.reshape(-1, 2):
        p = torch.exp(a) / (torch.exp(a) + torch.exp(b))
        result = torch.kron(result, torch.stack([torch.stack([p, 1 - p]), torch.stack([1 - p, p])]))
    return result


def cayley(size, angles):
    skew = torch.zeros(size, size)
    for angle, (i, j) in zip(angles, itertools.combinations(range(size), 2), strict=True):
        unit = torch.zeros(size, size)
        unit[i, j], unit[j, i] = 1, -1
        skew = skew + angle * unit
    return torch.linalg.inv(torch.eye(size) + skew) @ (torch.eye(size) - skew)


def spectral_sphere(n, t_u, t_v, t_s, gamma=(1.0, 1.0)):
    basis = torch.zeros(n, n - 1)
    for i in range(1, n):
        basis[:i, i - 1] = 1 / math.sqrt(i * (i + 1))
        basis[i, i - 1] = -i / math.sqrt(i * (i + 1))
    u, v = (cayley(n - 1, g * torch.tanh(t)) for g, t in zip(gamma, (t_u, t_v), strict=True))
    return torch.full((n, n), 1 / n) + basis @ u @ torch.diag(torch.tanh(t_s)) @ v.T @ basis.T


SITES = {
    "mhc": flat_site(sinkhorn, lambda n: [n * n]),
    "mhc-lite": flat_site(permutation_mixture, lambda n: [math.factorial(n)]),
    "kromhc": flat_site(kronecker, lambda n: [2 * round(math.log2(n))]),
    "shc": flat_site(spectral_sphere, lambda n: [(n - 1) * (n - 2) // 2] * 2 + [n - 1]),
}


def published_start(name, n, dim, layer_index):
    """Weight, scales and bias of the release, as the papers and their repositories give them."""
    coordinates = {
        "mhc": [0.0 if i == j else -8.0 for i in range(n) for j in range(n)],
        "mhc-lite": [0.0] + [-8.0] * (math.factorial(n) - 1),
        "kromhc": [0.0, -8.0] * round(math.log2(n)),
        "shc": [0.0] * ((n - 1) * (n - 2)) + [4.0] * (n - 1),
    }[name]
    gates = [1.0 if stream == layer_index % n else -1.0 for stream in range(n)]
    bias = torch.tensor(gates + gates + coordinates)
    groups = 5 if name == "shc" else 3
    return torch.zeros(len(bias), n * dim), torch.full((groups,), 0.01), bias
