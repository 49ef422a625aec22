"""Planted directions are found, random ones give the baseline, and names of common families are understood."""

from __future__ import annotations

import json
import math
import re

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import hyperconn as hc
from hyperconn.inspection import Projection
from hyperconn.inspection.directions import leading_directions, random_cosine
from hyperconn.inspection.projections import thirds

FAMILIES = {
    "llama": ["model.layers.{}.self_attn.{q,k,v,o}_proj.weight", "model.layers.{}.mlp.{gate,up,down}_proj.weight"],
    "bert": [
        "encoder.layer.{}.attention.self.{query,key,value}.weight",
        "encoder.layer.{}.attention.output.dense.weight",
        "encoder.layer.{}.intermediate.dense.weight",
        "encoder.layer.{}.output.dense.weight",
    ],
    "vit checkpoint": [
        "vit.encoder.layer.{}.attention.attention.{query,key,value}.weight",
        "vit.encoder.layer.{}.attention.output.dense.weight",
        "vit.encoder.layer.{}.intermediate.dense.weight",
        "vit.encoder.layer.{}.output.dense.weight",
    ],
    "vit": ["vit.layers.{}.attention.{q,k,v,o}_proj.weight", "vit.layers.{}.mlp.{fc1,fc2}.weight"],
    "timm": ["blocks.{}.attn.qkv.weight", "blocks.{}.attn.proj.weight", "blocks.{}.mlp.{fc1,fc2}.weight"],
    "torch": [
        "layers.{}.self_attn.in_proj_weight",
        "layers.{}.self_attn.out_proj.weight",
        "layers.{}.{linear1,linear2}.weight",
    ],
    "gpt2": [
        "transformer.h.{}.attn.c_attn.weight",
        "transformer.h.{}.attn.c_proj.weight",
        "transformer.h.{}.mlp.c_fc.weight",
        "transformer.h.{}.mlp.c_proj.weight",
    ],
}
C, LAYERS = 12, 3
FUSED = ("qkv", "in_proj", "c_attn")
DOWN = ("down", "fc2", "linear2", "layer.{}.output.dense", "mlp.c_proj")
UP = ("gate", "up", "fc1", "linear1", "intermediate", "c_fc")


def expand(pattern: str) -> list[str]:
    """``a.{x,y}.b`` to both names; ``{}`` stays."""
    start = pattern.find("{", pattern.find("{}") + 2)
    if start < 0:
        return [pattern]
    end = pattern.index("}", start)
    return [pattern[:start] + part + pattern[end + 1 :] for part in pattern[start + 1 : end].split(",")]


def shape_of(name: str) -> tuple[int, int]:
    if any(word in name for word in FUSED):
        return 3 * C, C
    if any(word in name for word in DOWN):
        return C, 4 * C
    return (4 * C, C) if any(word in name for word in UP) else (C, C)


def family_state(family: str) -> dict[str, torch.Tensor]:
    names = [name for pattern in FAMILIES[family] for name in expand(pattern)]
    state = {name.format(layer): torch.randn(*shape_of(name)) for layer in range(LAYERS) for name in names}
    if family == "gpt2":
        state = {name: weight.mT.contiguous() for name, weight in state.items()}
    return state | {"wte.weight": torch.randn(50, C), "model.layers.0.norm.weight": torch.randn(C)}


@pytest.mark.parametrize("family", FAMILIES)
def test_names_of_common_families(family):
    report = hc.continuity(family_state(family))
    expected = ["q", "k", "v", "o", *(["gate"] if family == "llama" else []), "up", "down"]
    assert sorted(p.name for p in report) == sorted(expected)
    for p in report:
        assert p.layers == [0, 1, 2]
        assert p.shape == {"up": (4 * C, C), "gate": (4 * C, C), "down": (C, 4 * C)}.get(p.name, (C, C))


def test_a_fused_and_transposed_weight_gives_the_numbers_of_its_split_twin():
    fused = family_state("gpt2")
    split = {}
    for name, weight in fused.items():
        if ".h." not in name:
            continue
        layer = name.split(".")[2]
        if "c_attn" in name:
            for kind, part in zip("qkv", weight.split(C, dim=1), strict=True):
                split[f"layers.{layer}.self_attn.{kind}_proj.weight"] = part.T
        else:
            kind = {"attn.c_proj": "self_attn.o", "mlp.c_fc": "mlp.up", "mlp.c_proj": "mlp.down"}[
                ".".join(name.split(".")[3:5])
            ]
            split[f"layers.{layer}.{kind}_proj.weight"] = weight.T
    one, other = hc.continuity(fused), hc.continuity(split)
    assert {p.name for p in one} == {p.name for p in other}
    for p in one:
        for field in ("c_v", "c_u", "subspace_v", "subspace_u", "matrix_v", "gaps"):
            torch.testing.assert_close(getattr(p, field), getattr(other[p.name], field))


def test_a_port_of_gpt2_with_linear_layers_is_not_transposed():
    state = {name: weight.mT for name, weight in family_state("gpt2").items() if ".h." in name}
    expected = hc.continuity(family_state("gpt2"))["up"]
    got = hc.continuity(state)["up"]
    assert got.shape == expected.shape == (4 * C, C)


def planted(out: int, into: int, layers: int, strength: float = 50.0, flip: bool = False):
    """Random weights that share one strong direction on each side."""
    u, v = F.normalize(torch.randn(out), dim=0), F.normalize(torch.randn(into), dim=0)
    weights = [strength * torch.outer(u, v) + 0.01 * torch.randn(out, into) for _ in range(layers)]
    if flip:
        weights = [weight * (-1) ** layer for layer, weight in enumerate(weights)]
    return {f"layers.{layer}.self_attn.q_proj.weight": weight for layer, weight in enumerate(weights)}


@pytest.mark.parametrize("flip", [False, True], ids=["same sign", "alternating signs"])
@pytest.mark.parametrize(("out", "into"), [(48, 32), (32, 48)])
def test_planted_shared_directions_are_found(out, into, flip):
    (p,) = hc.continuity(planted(out, into, 4, flip=flip))
    for values in (p.c_v, p.c_u, p.matrix_v.flatten(), p.matrix_u.flatten()):
        torch.testing.assert_close(values, torch.ones_like(values), rtol=0, atol=1e-4)
    assert (p.gaps > 0.99).all()


def test_only_the_side_that_is_shared_is_found():
    v = F.normalize(torch.randn(64), dim=0)
    state = {
        f"layers.{i}.self_attn.q_proj.weight": 9 * torch.outer(F.normalize(torch.randn(64), dim=0), v)
        + 0.01 * torch.randn(64, 64)
        for i in range(9)
    }
    (p,) = hc.continuity(state)
    assert p.c_v.min() > 0.999
    assert p.c_u.mean() < 0.4


def test_sign_flips_do_not_matter():
    state = family_state("llama")
    flipped = {name: weight * (-1) ** index for index, (name, weight) in enumerate(state.items())}
    for one, other in zip(hc.continuity(state), hc.continuity(flipped), strict=True):
        torch.testing.assert_close(one.c_v, other.c_v)
        torch.testing.assert_close(one.subspace_u, other.subspace_u)


def test_random_weights_give_the_baseline():
    state = {f"layers.{i}.self_attn.q_proj.weight": torch.randn(48, 32) for i in range(200)}
    (p,) = hc.continuity(state, top_k=4)
    assert abs(p.c_v.mean() - p.baseline_v) < 3 * p.standard_error_v
    assert abs(p.c_u.mean() - p.baseline_u) < 3 * p.standard_error_u
    pairs = p.matrix_v[tuple(torch.triu_indices(200, 200, 1))]
    assert pairs.mean() == pytest.approx(p.baseline_v, rel=0.02)  # 19,900 pairs
    assert p.subspace_v.mean() == pytest.approx(4 / 32, rel=0.1)
    assert p.subspace_u.mean() == pytest.approx(4 / 48, rel=0.1)


@pytest.mark.parametrize(
    ("dim", "expected"), [(1, 1.0), (2, 2 / math.pi), (512, 0.0353), (768, 0.0288), (4096, 0.0125)]
)
def test_the_baseline_in_closed_form(dim, expected):
    assert random_cosine(dim) == pytest.approx(expected, abs=5e-5)
    cosines = F.normalize(torch.randn(20000, min(dim, 64)), dim=-1)[:, 0].abs()
    assert cosines.mean().item() == pytest.approx(random_cosine(min(dim, 64)), rel=0.03)


@pytest.mark.parametrize("shape", [(7, 5), (5, 7), (6, 6), (1, 4), (4, 1)])
def test_directions_are_those_of_the_singular_value_decomposition(shape):
    weight = torch.randn(*shape, dtype=torch.float64)
    count = min(3, *shape)
    found = leading_directions(weight, count)
    u, s, vh = torch.linalg.svd(weight, full_matrices=False)
    torch.testing.assert_close(found.values, s[:count])
    torch.testing.assert_close(found.left.mT @ found.left, u[:, :count] @ u[:, :count].mT)
    torch.testing.assert_close(found.right.mT @ found.right, vh[:count].mT @ vh[:count])
    torch.testing.assert_close(found.left[0] @ weight @ found.right[0], s[0])


def test_patterns_of_the_user_with_splits_and_transposes():
    state = {f"net.7.blk{i}.w": torch.randn(C, 3 * C) for i in range(3)} | {
        f"net.7.blk{i}.o": torch.randn(C, C) for i in range(3)
    }
    patterns = {"q, k, v": Projection("blk{layer}.w", split=thirds, transposed=True), "o": "net.7.blk{layer}.o"}
    report = hc.continuity(state, patterns=patterns)
    assert [p.name for p in report] == ["q", "k", "v", "o"]
    twin = {f"layers.{i}.self_attn.k_proj.weight": state[f"net.7.blk{i}.w"][:, C : 2 * C].T for i in range(3)}
    torch.testing.assert_close(report["k"].c_u, hc.continuity(twin)["k"].c_u)


def test_two_stacks_and_experts_are_not_mixed_up():
    state = {
        f"{side}.layers.{i}.self_attn.q_proj.weight": torch.randn(C, C)
        for side in ("encoder", "decoder")
        for i in range(2)
    }
    state |= {f"decoder.layers.{i}.encoder_attn.q_proj.weight": torch.randn(C, C) for i in range(2)}
    state |= {
        f"decoder.layers.{i}.mlp.experts.{e}.up_proj.weight": torch.randn(C, C) for i in range(2) for e in range(2)
    }
    report = hc.continuity(state)
    assert len(report) == 3 and all(p.name.startswith("q (") and p.layers == [0, 1] for p in report)


def test_layers_of_a_hyper_connected_stack_are_found_by_the_number_that_varies():
    branches = [nn.Sequential(nn.LayerNorm(C), nn.ModuleDict({"q_proj": nn.Linear(C, C)})) for _ in range(4)]
    model = hc.HyperStack(branches, C, 2)
    assert hc.continuity(model)["q"].layers == [0, 1, 2, 3]


def test_shared_key_and_value_heads_in_a_fused_weight():
    state = {f"layers.{i}.self_attn.qkv_proj.weight": torch.randn(C + 2 * 4, C) for i in range(2)}
    assert {p.name: p.shape for p in hc.continuity(state)} == {"q": (C, C), "k": (4, C), "v": (4, C)}


def test_coherence_of_gradients_after_a_backward_pass():
    model = nn.TransformerEncoder(
        nn.TransformerEncoderLayer(C, 2, 24, dropout=0.0, batch_first=True), 3, enable_nested_tensor=False
    )
    assert hc.continuity(model)["q"].gradient_coherence is None
    model(torch.randn(2, 5, C)).square().mean().backward()
    for p in hc.continuity(model):
        assert p.gradient_coherence.shape == (2,)
    weights = [layer.linear1.weight for layer in model.layers]
    weights[1].grad = -3 * weights[0].grad
    weights[2].grad = weights[0].grad.clone()
    assert hc.continuity(model)["up"].gradient_coherence.tolist() == pytest.approx([-1, -1], abs=1e-5)
    thirds_of = [layer.self_attn.in_proj_weight.grad[C : 2 * C].flatten() for layer in model.layers]
    expected = F.cosine_similarity(thirds_of[0], thirds_of[1], dim=0).item()
    assert hc.continuity(model)["k"].gradient_coherence[0].item() == pytest.approx(expected, abs=1e-6)


def test_a_weight_that_is_not_finite_is_not_given_a_clean_number():
    state = planted(8, 8, 3)
    state["layers.1.self_attn.q_proj.weight"][0, 0] = math.nan
    (p,) = hc.continuity(state)
    assert p.c_v.isnan().all() and p.gaps.isnan().tolist() == [False, True, False]
    assert "nan" in str(hc.continuity(state))


def test_the_report_as_table_dictionary_and_picture(tmp_path):
    report = hc.continuity(family_state("bert"))
    text = str(report)
    assert all(
        any(line.split()[:1] == [name] for line in text.splitlines()) for name in ("q", "k", "v", "o", "up", "down")
    )
    report.to_json(tmp_path / "continuity.json")
    assert json.loads((tmp_path / "continuity.json").read_text()) == json.loads(json.dumps(report.to_dict()))
    pytest.importorskip("matplotlib", reason="pictures need hyperconn[plot]")
    report.plot(tmp_path / "continuity.png")
    assert (tmp_path / "continuity.png").read_bytes().startswith(b"\x89PNG")
    with pytest.raises(ValueError, match="ends in"):
        report.plot(tmp_path / "continuity.jpeg")


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (
            lambda: hc.continuity(nn.Linear(3, 3)),
            "at least two layers. Matrices of the model: weight. Pass patterns=",
        ),
        (
            lambda: hc.continuity(family_state("bert"), patterns={"q": "layer.query"}),
            "expected a pattern with {layer} once",
        ),
        (lambda: hc.continuity(family_state("bert"), patterns={"q": "nothing.{layer}"}), "at least two layers"),
        (lambda: hc.continuity(family_state("bert"), top_k=0), "expected top_k >= 1, got 0"),
    ],
)
def test_errors_say_what_to_do(call, words):
    with pytest.raises(ValueError, match=re.escape(words)):
        call()
