"""Sites, heads and whole models of transformers against ours, in values, gradients and bits."""

from __future__ import annotations

import copy
from types import SimpleNamespace

import pytest
import torch
from conftest import relative_error
from torchvision_operators import define_missing_operators

import hyperconn as hc
from hyperconn import interop

define_missing_operators()
transformers = pytest.importorskip(
    "transformers", minversion="5.24", reason="the oracles of interop are in transformers 5.24"
)

DIM, STREAMS = 12, 4
CONFIG = SimpleNamespace(
    hc_mult=STREAMS, hc_sinkhorn_iters=20, hc_eps=1e-6, rms_norm_eps=1e-5, hidden_size=DIM, hc_magnitude=1.5
)


def classes(family):
    from transformers.models.deepseek_v4 import modeling_deepseek_v4 as deepseek
    from transformers.models.glm5_next import modeling_glm5_next as glm
    from transformers.models.hy_v4 import modeling_hy_v4 as hy

    return {
        "deepseek_v4": (deepseek.DeepseekV4HyperConnection, deepseek.DeepseekV4HyperHead),
        "glm5_next": (glm.Glm5NextTextHyperConnection, lambda config: glm.Glm5NextTextHyperHead()),
        "hy_v4": (hy.HYV4HyperConnection, hy.HYV4HyperHead),
    }[family]


def filled(module):
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.normal_(0, 0.5)
    return module


def oracle_site(family, **changes):
    return filled(classes(family)[0](SimpleNamespace(**{**vars(CONFIG), **changes})))


def oracle_head(family, **changes):
    return filled(classes(family)[1](SimpleNamespace(**{**vars(CONFIG), **changes})))


def oracle_step(site, streams, y):
    """The layer's own lines: post ⊗ y + combᵀ X, in the dtype of the streams (HY-V4: in float32, H = I)."""
    if type(site).__name__ == "HYV4HyperConnection":
        post, u = site(streams)
        return (post.float()[..., None] * y.float()[..., None, :] + streams.float()).to(streams.dtype), u, post, None
    dtype = streams.dtype
    post, comb, u = site(streams)
    mixed = torch.matmul(comb.to(dtype).transpose(-1, -2), streams)
    return post.to(dtype)[..., None] * y[..., None, :] + mixed, u, post, comb


def close(got, expected, limit=1e-5):
    assert (got - expected).abs().max() <= limit * max(1, expected.abs().max())


@pytest.mark.parametrize("family", interop.FAMILIES)
def test_a_site_gives_the_same_mappings_output_and_gradients(family):
    site = oracle_site(family)
    connection = interop.from_site(site)
    theirs, ours = (torch.randn(2, 3, STREAMS, DIM).requires_grad_() for _ in range(2))
    ours.data.copy_(theirs.data)
    y = torch.randn(2, 3, DIM)
    out, u, post, comb = oracle_step(site, theirs, y)
    maps = connection.mappings(ours)
    branch_input, carry = connection.read(ours)
    got = connection.write(y, carry)
    close(maps.post, post)
    close(branch_input, u)
    close(got, out)
    close((maps.pre[..., None] * ours).sum(-2), u)
    close(maps.res, torch.eye(STREAMS).expand(2, 3, -1, -1) if comb is None else comb.mT)
    if comb is not None:
        assert (maps.res - comb).abs().max() > 1e-2  # the transpose is told apart
    cotangents = torch.randn_like(out), torch.randn_like(u)
    torch.autograd.backward((out, u), cotangents)
    torch.autograd.backward((got, branch_input), cotangents)
    close(ours.grad, theirs.grad)
    for name, gradient in {"weight": site.fn.grad, "bias": site.base.grad, "scale": site.scale.grad}.items():
        assert relative_error(getattr(connection.mapping, name).grad, gradient) <= 1e-5


@pytest.mark.parametrize("family", interop.FAMILIES)
@pytest.mark.parametrize("streams", [2, 3, 4, 8])
def test_export_returns_the_same_tensors_bit_for_bit(family, streams):
    site = oracle_site(family, hc_mult=streams)
    exported = interop.to_site(interop.from_site(site))
    again = interop.to_site(
        interop.from_site({f"model.layers.3.attn_hc.{k}": v for k, v in exported.items()}, family, hc_magnitude=1.5),
        family,
    )
    for name, tensor in dict(site.named_parameters()).items():
        assert torch.equal(exported[name], tensor)
        assert torch.equal(again[name], tensor)


@pytest.mark.parametrize("family", interop.FAMILIES)
def test_a_site_of_few_iterations_and_another_epsilon(family):
    site = oracle_site(family, hc_sinkhorn_iters=2, hc_eps=1e-2)
    streams = torch.randn(2, 3, STREAMS, DIM)
    post, *comb, u = site(streams)
    maps = interop.from_site(site).mappings(streams)
    close(maps.post, post)
    close(interop.from_site(site).read(streams)[0], u)
    if comb:
        close(maps.res, comb[0].mT)


@pytest.mark.parametrize("family", interop.FAMILIES)
def test_the_epsilon_of_the_norms_is_that_of_the_model(family):
    site, head = oracle_site(family, rms_norm_eps=0.5), oracle_head(family, rms_norm_eps=0.5)
    streams = torch.randn(2, 3, STREAMS, DIM)
    close(interop.from_site(site).read(streams)[0], site(streams)[-1])
    close(interop.from_head(head)(streams), head(streams))


@pytest.mark.parametrize("family", interop.FAMILIES)
def test_the_merge_in_bfloat16_accumulates_in_float32(family):
    """Ours rounds once; DeepSeek's and GLM's layers in transformers round post, comb and every product."""
    site = oracle_site(family)
    connection = interop.from_site(site)
    streams, y = torch.randn(4, 64, STREAMS, DIM).bfloat16(), torch.randn(4, 64, DIM).bfloat16()
    _, carry = connection.read(streams)
    got = connection.write(y, carry).float()
    exact, *_ = oracle_step(site, streams.float(), y.float())
    theirs, *_ = oracle_step(site, streams, y)
    assert relative_error(got, exact) <= 3e-3
    assert relative_error(theirs.float(), got) <= 1e-2
    if family != "hy_v4":
        assert (theirs.float() != got).float().mean() > 0.1


@pytest.mark.parametrize("family", interop.FAMILIES)
def test_a_head_gives_the_same_output_gradients_and_bits(family):
    head = oracle_head(family)
    collapse = interop.from_head(head)
    theirs = torch.randn(2, 3, STREAMS, DIM).requires_grad_()
    ours = theirs.detach().clone().requires_grad_()
    expected, got = head(theirs), collapse(ours)
    cotangent = torch.randn_like(expected)
    expected.backward(cotangent)
    got.backward(cotangent)
    close(got, expected)
    close(ours.grad, theirs.grad)
    exported = interop.to_head(collapse)
    assert exported.keys() == dict(head.named_parameters()).keys()
    for name, parameter in head.named_parameters():
        assert torch.equal(exported[name], parameter)
        assert (
            relative_error(
                getattr(
                    collapse.weights, name.removeprefix("hc_").replace("fn", "weight").replace("base", "bias")
                ).grad,
                parameter.grad,
            )
            <= 1e-5
        )


def tiny(family):
    torch.manual_seed(0)
    sizes = {
        "vocab_size": 50,
        "hidden_size": 16,
        "moe_intermediate_size": 8,
        "num_attention_heads": 2,
        "head_dim": 8,
        "q_lora_rank": 8,
        "n_routed_experts": 4,
        "num_experts_per_tok": 2,
        "num_hidden_layers": 2,
        "max_position_embeddings": 64,
        "index_n_heads": 2,
        "index_head_dim": 8,
        "index_topk": 4,
        "pad_token_id": 0,
        "bos_token_id": 1,
        "eos_token_id": 2,
    }
    if family == "deepseek_v4":
        own = {
            "num_key_value_heads": 1,
            "sliding_window": 8,
            "o_groups": 2,
            "o_lora_rank": 8,
            "layer_types": ["compressed_sparse_attention", "heavily_compressed_attention"],
            "compress_rates": {"compressed_sparse_attention": 2, "heavily_compressed_attention": 4},
        }
        model = transformers.DeepseekV4ForCausalLM(
            transformers.DeepseekV4Config(**sizes, **own, partial_rotary_factor=0.5)
        )
    else:
        own = {
            "intermediate_size": 16,
            "kv_lora_rank": 8,
            "qk_nope_head_dim": 8,
            "qk_rope_head_dim": 8,
            "v_head_dim": 8,
        }
        model = transformers.HYV4ForCausalLM(transformers.HYV4Config(**sizes, **own))
    for name, module in model.named_modules():
        if name.endswith(("attn_hc", "ffn_hc", "hc_head")):
            filled(module)
    return model.eval()


@pytest.mark.parametrize("family", ["deepseek_v4", "hy_v4"])
@torch.no_grad()
def test_a_whole_model_with_its_sites_replaced(family, tmp_path):
    model = tiny(family)
    original = copy.deepcopy(model)
    ids = torch.randint(3, 50, (2, 9))
    expected = model(ids).logits
    assert interop.replace_sites(model) is model
    assert len([m for m in model.modules() if isinstance(m, hc.HyperConnection)]) == 4
    assert relative_error(model(ids).logits, expected) <= 1e-5
    assert len(hc.inspect(model, ids)) == 4
    state = model.state_dict()
    assert state.keys() == original.state_dict().keys()
    assert all(torch.equal(state[key], value) for key, value in original.state_dict().items())
    model.save_pretrained(tmp_path)
    loaded = type(original).from_pretrained(tmp_path).eval()
    assert torch.equal(loaded(ids).logits, expected)
    model.load_state_dict(original.state_dict())
    for parameter in model.get_submodule("model.layers.1.attn_hc").parameters():
        parameter.add_(0.5)
    changed = model(ids).logits
    assert relative_error(changed, expected) > 1e-3
    interop.restore_sites(model)
    assert [type(m) for m in model.modules()] == [type(m) for m in original.modules()]
    assert relative_error(model(ids).logits, changed) <= 1e-5


@pytest.mark.parametrize("original", [False, True])
@pytest.mark.parametrize("family", ["deepseek_v4", "hy_v4"])
def test_a_checkpoint_under_both_naming_schemes(family, original):
    state = {k: v for k, v in tiny(family).state_dict().items() if "hc" in k.split(".")[-2]}
    modules = interop.from_checkpoint(tiny(family).state_dict(), family, hc_magnitude=2.0)
    assert len(modules) == 5
    stored = interop.to_checkpoint(modules, family, original=original)
    if original:
        first = {"deepseek_v4": "model.layers.0.hc_attn_fn", "hy_v4": "model.layers.0.hc_attn_layer.hc_fn"}[family]
        assert first in stored
        assert not stored.keys() & state.keys()
        stored = interop.to_checkpoint(interop.from_checkpoint(stored, family), family)
    assert stored.keys() == state.keys()
    assert all(torch.equal(stored[key], state[key]) for key in state)


def test_original_names_are_those_that_transformers_renames():
    from transformers.conversion_mapping import get_checkpoint_conversion_mapping

    for family in ("deepseek_v4", "hy_v4"):
        stored = interop.to_checkpoint(
            interop.from_checkpoint(tiny(family).state_dict(), family), family, original=True
        )
        renamings = [r for r in get_checkpoint_conversion_mapping(family) if type(r).__name__ == "WeightRenaming"]
        for key in stored:
            key = key.removeprefix("model.")
            for renaming in renamings:
                key = renaming.rename_source_key(key)[0]
            assert "model." + key in tiny(family).state_dict()


def test_connections_that_no_family_computes_are_not_exported():
    connection = hc.HyperConnection(DIM, STREAMS, constraint="shc")
    with pytest.raises(ValueError, match=r"to_site: no site of deepseek_v4, .* computes .*spectral-sphere"):
        interop.to_site(connection)
    with pytest.raises(ValueError, match=r"no site of hy_v4 computes .*DeepSeekSinkhorn"):
        interop.to_site(interop.from_site(oracle_site("deepseek_v4")), "hy_v4")
    with pytest.raises(ValueError, match=r"expected a mean or a learned collapse, got Collapse\('sum'\)"):
        interop.to_head(hc.Collapse("sum"))


@pytest.mark.parametrize(
    ("source", "family", "message"),
    [
        (torch.nn.Linear(2, 2), None, "from_site: unknown site Linear; known: DeepseekV4HyperConnection"),
        ({}, None, "expected family= to be one of 'deepseek_v4', 'glm5_next', 'hy_v4', got None"),
        ({"fn": torch.zeros(24, 48), "base": torch.zeros(24)}, "deepseek_v4", r"expected one tensor named 'scale'"),
        (
            {"fn": torch.zeros(24, 47), "base": torch.zeros(24), "scale": torch.zeros(3)},
            "deepseek_v4",
            r"which say n = 4",
        ),
        (
            {"fn": torch.zeros(8, 48), "base": torch.zeros(8), "scale": torch.zeros(3)},
            "hy_v4",
            r"expected scale \(2,\), got \(3,\)",
        ),
    ],
)
def test_what_does_not_fit_is_refused(source, family, message):
    with pytest.raises(ValueError, match=message):
        interop.from_site(source, family)


def test_models_without_sites_are_refused():
    with pytest.raises(ValueError, match="Linear has no sites of deepseek_v4"):
        interop.replace_sites(torch.nn.Linear(2, 2))
    with pytest.raises(ValueError, match="has no sites that replace_sites"):
        interop.restore_sites(torch.nn.Linear(2, 2))
    with pytest.raises(ValueError, match="no sites of hy_v4 among the 2 tensors"):
        interop.from_checkpoint(torch.nn.Linear(2, 2).state_dict(), "hy_v4")


def test_the_deepseek_form_lands_in_the_set_and_agrees_with_ours_for_moderate_logits():
    constraint = interop.DeepSeekSinkhorn(4)
    coordinates = torch.randn(64, 16)
    matrices = constraint(coordinates)
    assert constraint.violation(matrices).max() < 1e-3
    assert (matrices.sum(-1) - 1).abs().max() < 1e-5
    transposed = coordinates.unflatten(-1, (4, 4)).mT.flatten(-2)
    assert (hc.make_constraint("sinkhorn", 4)(transposed) - matrices).abs().max() < 1e-4
    with pytest.raises(ValueError, match=r"DeepSeekSinkhorn\(streams=4\): expected iterations >= 1, got 0"):
        interop.DeepSeekSinkhorn(4, iterations=0)
    assert torch.autograd.gradcheck(constraint, coordinates[:2].double().requires_grad_())
    start = hc.HyperConnection(DIM, 4, constraint=constraint).residual_matrix()
    assert (start - torch.eye(4)).abs().max() < 1e-2


@pytest.mark.parametrize("family", interop.FAMILIES)
@torch.no_grad()
def test_replaced_modules_answer_as_the_ones_they_replace(family):
    model = torch.nn.ModuleDict({"attn_hc": oracle_site(family), "hc_head": oracle_head(family)})
    streams = torch.randn(2, 3, STREAMS, DIM)
    expected = [*model["attn_hc"](streams), model["hc_head"](streams)]
    state = copy.deepcopy(model.state_dict())
    interop.replace_sites(model)
    got = [*model["attn_hc"](streams), model["hc_head"](streams)]
    assert len(got) == len(expected)
    for ours, theirs in zip(got, expected, strict=True):
        close(ours, theirs)
    assert model.state_dict().keys() == state.keys()
    model.load_state_dict(state)
    restored = interop.restore_sites(copy.deepcopy(model))
    assert type(restored["attn_hc"]).__name__ in interop.FAMILIES[family].site_classes
    assert all(torch.equal(restored.state_dict()[key], state[key]) for key in state)
    assert all(torch.equal(model.state_dict()[key], state[key]) for key in state)
