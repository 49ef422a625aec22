"""What wrap does to a model as an object: names, copies, hooks, errors, and the way back."""

from __future__ import annotations

import copy
import pickle
import warnings

import pytest
import torch
from conftest import relative_error
from tiny_models import FAMILIES, LEVELS, WIDTH, connection_parameters, make, perturb, run, tokens
from torch import nn

import hyperconn as hc


@pytest.mark.parametrize(("family", "level"), LEVELS)
def test_unwrap_gives_the_original_model_back(family, level):
    original, model = make(family), make(family)
    hc.wrap(model, 4, level=level)
    assert hc.is_wrapped(model)
    assert original.state_dict().keys() < model.state_dict().keys()
    perturb(model)
    assert hc.unwrap(model) is model
    assert not hc.is_wrapped(model)
    assert [type(m) for m in model.modules()] == [type(m) for m in original.modules()]
    assert model.state_dict().keys() == original.state_dict().keys()
    assert "hyperconn" not in vars(getattr(model, "config", object.__new__(Blank)))
    with torch.no_grad():
        assert torch.equal(run(model, family), run(original, family))


class Blank:
    pass


@pytest.mark.parametrize(("family", "level"), LEVELS)
def test_copies_and_pickles_compute_the_same(family, level):
    model = perturb(hc.wrap(make(family), 4, level=level))
    with torch.no_grad():
        expected = run(model, family)
        for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
            assert torch.equal(run(other, family), expected)
            assert all(p.is_connection for p in connection_parameters(other))
            assert len(connection_parameters(other)) == len(connection_parameters(model))


@pytest.mark.parametrize("family", [name for name, f in FAMILIES.items() if f.package == "transformers"])
@torch.no_grad()
def test_output_hidden_states_have_the_usual_shape_and_are_collapsed_views(family):
    original = run_with_states(make(family), family)
    model = make(family)
    run_with_states(model, family)  # installs the hooks that collect them before the wrap
    for wrapped in (hc.wrap(make(family), 4, level="block"), hc.wrap(model, 4, level="block")):
        states = run_with_states(wrapped, family)
        assert [s.shape for s in states] == [s.shape for s in original]
        assert max(relative_error(s, o) for s, o in zip(states, original, strict=True)) <= 1e-5
        perturb(wrapped)
        first = wrapped.get_submodule(FAMILIES[family].blocks)[0]
        path = first.hyper_connections
        states = run_with_states(wrapped, family)
        streams = path.expand(states[0])
        u, carry = path.connections[0].read(streams)
        arguments = attention_arguments(wrapped, family)
        y = type(first)._hyperconn.original.forward(first, u, **arguments) - u
        torch.testing.assert_close(states[1], path.connections[0].write(y, carry).mean(-2), rtol=1e-5, atol=1e-5)


def run_with_states(model, family):
    torch.manual_seed(1)
    return model(**FAMILIES[family].inputs(), output_hidden_states=True).hidden_states


def attention_arguments(model, family):
    """The arguments that the model's own loop hands to its first block."""
    seen = {}
    first = model.get_submodule(FAMILIES[family].blocks)[0]
    hook = first.register_forward_pre_hook(
        lambda block, args, kwargs: seen.update(args=args, kwargs=kwargs), with_kwargs=True
    )
    run_with_states(model, family)
    hook.remove()
    names = ("cache", "attention_mask") if family == "gpt2" else ("attention_mask",)
    positional = dict(zip(names, seen["args"][1:], strict=False))
    return {key: value for key, value in {**positional, **seen["kwargs"]}.items() if "cache" not in key}


def test_attentions_are_collected():
    model = make("llama")
    model.set_attn_implementation("eager")
    output = hc.wrap(model, 4)(**tokens(), output_attentions=True)
    assert [a.shape for a in output.attentions] == [(2, 4, 7, 7)] * 2


def test_a_hook_that_replaces_the_output_of_a_block_is_refused():
    model = hc.wrap(make("llama"), 4)
    model.model.layers[0].register_forward_hook(lambda block, args, output: output[0])
    with pytest.raises(TypeError, match="forward hook replaced the output of a wrapped block"):
        run(model, "llama")


@pytest.mark.parametrize("reentrant", [True, False])
@pytest.mark.parametrize("level", ["block", "sublayer"])
def test_gradient_checkpointing_gives_the_same_gradients(level, reentrant):
    plain = perturb(hc.wrap(make("llama"), 4, level=level)).train()
    checkpointed = copy.deepcopy(plain)
    checkpointed.activation_checkpointing_enable({"use_reentrant": reentrant})
    calls = []
    checkpointed.model.layers[0].self_attn.register_forward_hook(lambda *_: calls.append(1))
    for model in (plain, checkpointed):
        torch.manual_seed(1)
        output = model(**tokens(), output_hidden_states=True)
        assert [state.shape for state in output.hidden_states] == [(2, 7, WIDTH)] * 3
        output.logits.square().mean().backward()
    assert len(calls) == 2  # forward, and again when the backward pass recomputes it
    for ours, theirs in zip(checkpointed.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(ours.grad, theirs.grad, rtol=1e-5, atol=1e-6)


@torch.no_grad()
def test_padded_batches_of_a_torch_encoder_are_not_packed():
    layer = nn.TransformerEncoderLayer(WIDTH, 4, 24, batch_first=True)
    encoder = nn.TransformerEncoder(layer, 2).eval()
    x, padded = torch.randn(2, 6, WIDTH), torch.tensor([[False] * 6, [False] * 4 + [True] * 2])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's own, about nested tensors
        expected = encoder(x, src_key_padding_mask=padded)
    got = hc.wrap(encoder, 4, level="block")(x, src_key_padding_mask=padded)
    torch.testing.assert_close(got[~padded], expected[~padded], rtol=1e-5, atol=1e-5)
    assert hc.unwrap(encoder).use_nested_tensor


@torch.no_grad()
def test_both_lists_of_a_torch_transformer():
    model = nn.Transformer(WIDTH, 4, 2, 2, 24, batch_first=True, norm_first=False).eval()
    model.encoder.use_nested_tensor = False
    source, target = torch.randn(2, 5, WIDTH), torch.randn(2, 6, WIDTH)
    expected = model(source, target)
    with pytest.raises(ValueError, match=r"2 lists of 2 blocks: 'encoder.layers', 'decoder.layers'. Name one"):
        hc.wrap(model, 4, level="block")
    hc.wrap(model, 4, level="block", blocks=["encoder.layers", "decoder.layers"])
    assert relative_error(model(source, target), expected) <= 1e-5


@torch.no_grad()
def test_gpt2_with_cross_attention():
    from transformers import GPT2Config, GPT2Model

    config = GPT2Config(
        n_embd=WIDTH,
        n_layer=2,
        n_head=4,
        vocab_size=40,
        add_cross_attention=True,
        initializer_range=0.2,
        bos_token_id=1,
        eos_token_id=2,
    )
    model = GPT2Model(config).eval()
    ids, memory = torch.randint(3, 40, (2, 5)), torch.randn(2, 4, WIDTH)
    expected = [model(ids).last_hidden_state, model(ids, encoder_hidden_states=memory).last_hidden_state]
    hc.wrap(model, 4)
    assert len(model.h[0].hyper_connections.connections) == 3
    got = [model(ids).last_hidden_state, model(ids, encoder_hidden_states=memory).last_hidden_state]
    assert max(relative_error(g, e) for g, e in zip(got, expected, strict=True)) <= 1e-5
    assert relative_error(*expected) > 1e-2


def test_a_wrapped_model_compiles_in_one_graph():
    model = perturb(hc.wrap(make("torch-encoder"), 4, constraint="shc"))
    compiled = torch.compile(model, backend="eager", fullgraph=True)
    x = torch.randn(2, 6, WIDTH)
    torch.testing.assert_close(compiled(x), model(x))


def test_connections_stay_float32_when_the_rest_is_bfloat16():
    model = hc.wrap(make("llama").bfloat16(), 4, constraint="shc")
    other = hc.wrap(make("llama"), 4, constraint="shc").to(torch.bfloat16)
    for one in (model, other):
        assert {p.dtype for p in connection_parameters(one)} == {torch.float32}
        assert one.model.layers[0].mlp.up_proj.weight.dtype == torch.bfloat16
        assert run(one, "llama").dtype == torch.bfloat16


def test_inspect_sees_the_connections_of_a_wrapped_model():
    model = perturb(hc.wrap(make("llama"), 4, constraint="shc"))
    report = hc.inspect(model, **tokens())
    assert len(report) == 4
    assert "model.layers.0.hyper_connections.connections.0" in str(report)


def test_parameter_groups_of_a_wrapped_model():
    model = hc.wrap(make("llama"), 4)
    groups = hc.parameter_groups(model, 0.1)
    assert sum(len(g["params"]) for g in groups) == len(list(model.parameters()))
    grouped = {id(p) for g in groups if g["connection"] for p in g["params"]}
    assert grouped == {id(p) for p in connection_parameters(model)}


def test_wrapping_twice_is_an_error():
    model = hc.wrap(make("llama"), 4)
    with pytest.raises(ValueError, match=r"LlamaForCausalLM is wrapped already\. Call unwrap"):
        hc.wrap(model, 2)


def test_unwrapping_a_plain_model_is_an_error():
    with pytest.raises(ValueError, match="unwrap: Linear is not wrapped"):
        hc.unwrap(nn.Linear(2, 2))


def test_an_unknown_family_is_offered_the_block_level():
    with pytest.raises(ValueError, match=r"no adapter knows BertLayer; known families: .*Llama.*level='block'"):
        hc.wrap(make("bert"), 4)


def test_post_norm_torch_layers_are_offered_the_block_level():
    with pytest.raises(
        ValueError, match=r"cannot take TransformerEncoderLayer apart: norm_first=False .*level='block'"
    ):
        hc.wrap(make("torch-encoder-post-norm"), 4)


def test_a_look_alike_with_another_forward_is_not_taken_for_llama():
    from transformers import GraniteConfig, GraniteForCausalLM

    config = GraniteConfig(
        hidden_size=16,
        intermediate_size=24,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        vocab_size=40,
        residual_multiplier=0.5,
    )
    model = GraniteForCausalLM(config)
    assert {"input_layernorm", "self_attn", "post_attention_layernorm", "mlp"} <= dict(
        model.model.layers[0].named_children()
    ).keys()
    with pytest.raises(ValueError, match="no adapter knows GraniteDecoderLayer"):
        hc.wrap(model, 4)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"level": "layer"}, "unknown level 'layer'; known: 'sublayer', 'block'"),
        ({"blocks": "model.blocks"}, "LlamaForCausalLM has no submodule 'model.blocks'"),
        ({"blocks": "model"}, "expected 'model' to be a ModuleList of blocks, got LlamaModel"),
        ({"constraint": "sinkhron"}, "Did you mean 'sinkhorn'"),
        ({"init": "zero"}, "unknown start init='zero'"),
    ],
)
def test_a_failed_wrap_says_why_and_leaves_the_model_as_it_was(arguments, message):
    model = make("llama")
    with pytest.raises(ValueError, match=message):
        hc.wrap(model, 4, **arguments)
    assert not hc.is_wrapped(model)
    assert model.state_dict().keys() == make("llama").state_dict().keys()


def test_a_model_without_blocks_is_told_to_name_them():
    with pytest.raises(ValueError, match=r"Linear has no ModuleList .*blocks='path.to.list'"):
        hc.wrap(nn.Linear(4, 4), 4, level="block")


def test_shared_blocks_are_refused():
    block = nn.Sequential(nn.LayerNorm(8))
    with pytest.raises(ValueError, match="expected 2 separate blocks in '0', got 1, shared"):
        hc.wrap(nn.Sequential(nn.ModuleList([block, block])), 4, level="block", blocks="0")


def test_a_forward_replaced_on_the_object_is_refused():
    model = make("llama")
    model.model.layers[0].forward = model.model.layers[0].forward
    with pytest.raises(ValueError, match="forward of this LlamaDecoderLayer was replaced on the object itself"):
        hc.wrap(model, 4)


class Residual(nn.Module):
    """A block of one's own: two sublayers under names that no library knows."""

    def __init__(self, dim):
        super().__init__()
        self.first = nn.Sequential(nn.LayerNorm(dim), nn.Linear(dim, dim), nn.GELU())
        self.second = nn.Sequential(nn.LayerNorm(dim), nn.Linear(dim, dim), nn.GELU())

    def forward(self, x, factor=1.0):
        x = x + factor * self.first(x)
        return x + self.second(x)


class ResidualAdapter(hc.wrapping.Adapter):
    def matches(self, block):
        return type(block) is Residual

    def sublayers(self, block):
        return (lambda block, x, factor=1.0: factor * block.first(x), lambda block, x, factor=1.0: block.second(x))


class Own(nn.Module):
    def __init__(self):
        super().__init__()
        self.experts = nn.ModuleList([nn.Sequential(nn.Linear(4, 4)) for _ in range(2)])
        self.body = nn.ModuleList([Residual(WIDTH) for _ in range(3)])

    def forward(self, x, factor=1.0):
        for block in self.body:
            x = block(x=x, factor=factor)
        return x


@pytest.mark.parametrize("options", [{"level": "block"}, {"adapter": ResidualAdapter()}])
@torch.no_grad()
def test_a_model_and_an_adapter_of_ones_own(options):
    model, x = Own(), torch.randn(2, 5, WIDTH)
    expected = model(x, factor=0.5)
    with pytest.raises(ValueError, match=r"the width of Residual is not to be seen .* give it with dim="):
        hc.wrap(model, 4, **options)
    hc.wrap(model, 4, dim=WIDTH, **options)
    assert len([m for m in model.modules() if isinstance(m, hc.HyperConnection)]) == (3 if "level" in options else 6)
    assert relative_error(model(x, factor=0.5), expected) <= 1e-5


def test_another_signature_of_a_known_family_is_refused():
    from transformers.models.gpt2 import modeling_gpt2

    from hyperconn.wrapping.adapters.matching import other_arguments

    class Older(modeling_gpt2.GPT2Block):
        def forward(self, hidden_states, past_key_values=None, cache_position=None):
            return hidden_states

    block = make("gpt2").transformer.h[0]
    block.__class__ = Older
    assert "forward begins with ('hidden_states', 'past_key_values'" in other_arguments(
        block, "hidden_states", "cache"
    )
    with pytest.raises(ValueError, match="no adapter knows Older"):
        hc.wrap(nn.ModuleList([block]), 4, blocks="", dim=16)


def test_a_registered_adapter_is_found():
    from hyperconn.wrapping.adapters import adapter_for, registry

    with pytest.raises(TypeError, match="expected a subclass of Adapter"):
        hc.register_adapter(Residual)
    try:
        hc.register_adapter(ResidualAdapter)
        assert isinstance(adapter_for(Residual(4)), ResidualAdapter)
    finally:
        registry._ADAPTERS.pop("ResidualAdapter")


def test_importing_hyperconn_loads_no_model_zoo():
    import subprocess
    import sys

    code = "import sys, hyperconn; print([m for m in ('transformers', 'timm', 'peft', 'safetensors') if m in sys.modules])"
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "[]"


def test_connections_know_their_place_in_the_network():
    model = hc.wrap(make("llama"), 3, retraction="cayley")
    connections = [m for m in model.modules() if isinstance(m, hc.HyperConnection)]
    assert [int(c.static_mappings().pre.argmax()) for c in connections] == [0, 1, 2, 0]
    assert not any(m.training for m in model.modules())  # the model was in eval mode
    assert [c.retraction.step.item() for c in connections] == pytest.approx([0.5] * 4)  # 1/√(4 sublayers)
