"""Save and load in a fresh process, the Trainer, and LoRA."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
import torch
from conftest import relative_error
from tiny_models import connection_parameters, make, perturb, run, tokens

import hyperconn as hc

transformers = pytest.importorskip("transformers", reason="saving, Trainer and LoRA need transformers")
# peft reads attributes of transformers that transformers is about to rename.
peft_reads_old_names = pytest.mark.filterwarnings("ignore:.*is deprecated and will be removed in v6:FutureWarning")

FRESH = """
import sys, torch, torchvision_operators, hyperconn as hc
torchvision_operators.define_missing_operators()
model = hc.load_wrapped(sys.argv[1])
inputs = torch.load(sys.argv[1] + "/inputs.pt")
with torch.no_grad():
    torch.save(model(**inputs).logits, sys.argv[1] + "/logits.pt")
"""


def options_of(level):
    return {"constraint": "shc", "level": level, "retraction": "exponential", "collapse": "learned"}


@pytest.mark.parametrize(("family", "level"), [("llama", "sublayer"), ("gpt2", "block")])
def test_save_and_load_in_a_fresh_process_bit_for_bit(tmp_path, family, level):
    model = perturb(hc.wrap(make(family), 4, **options_of(level)))
    model.save_pretrained(tmp_path)
    torch.save(tokens(), tmp_path / "inputs.pt")
    with torch.no_grad():
        expected = model(**torch.load(tmp_path / "inputs.pt")).logits
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    subprocess.run([sys.executable, "-c", FRESH, str(tmp_path)], check=True, capture_output=True, env=environment)
    assert torch.equal(torch.load(tmp_path / "logits.pt"), expected)


def test_a_bfloat16_base_keeps_its_connections_in_float32_on_disk(tmp_path):
    make("llama").bfloat16().save_pretrained(tmp_path / "base")
    base = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "base", dtype=torch.bfloat16).eval()
    model = perturb(hc.wrap(base, 4))
    model.save_pretrained(tmp_path / "wrapped", max_shard_size="10KB")
    loaded = hc.load_wrapped(tmp_path / "wrapped", model_options={"dtype": torch.bfloat16})
    assert len(list((tmp_path / "wrapped").glob("*.safetensors"))) > 1
    assert {p.dtype for p in connection_parameters(loaded)} == {torch.float32}
    assert loaded.lm_head.weight.dtype == torch.bfloat16
    for ours, theirs in zip(connection_parameters(loaded), connection_parameters(model), strict=True):
        assert torch.equal(ours, theirs)
    with torch.no_grad():
        assert torch.equal(run(loaded, "llama"), run(model, "llama"))


def test_connections_that_were_stored_narrow_are_reported(tmp_path):
    from safetensors.torch import load_file, save_file

    hc.wrap(make("llama"), 4).save_pretrained(tmp_path)
    file = tmp_path / "model.safetensors"
    narrow = {k: v.bfloat16() if "mapping" in k else v for k, v in load_file(file).items()}
    save_file(narrow, file, metadata={"format": "pt"})
    with pytest.warns(UserWarning, match="12 connection tensors were stored in a half precision dtype"):
        hc.load_wrapped(tmp_path)


def test_a_folder_without_a_wrapped_model_is_refused(tmp_path):
    make("llama").save_pretrained(tmp_path)
    with pytest.raises(ValueError, match=r"holds no wrapped model; load it with from_pretrained and wrap\(\) it"):
        hc.load_wrapped(tmp_path)


def test_a_class_that_transformers_does_not_have_is_asked_for(tmp_path):
    class OwnForCausalLM(transformers.LlamaForCausalLM):
        pass

    own = make("llama")
    own.__class__ = OwnForCausalLM
    hc.wrap(own, 4).save_pretrained(tmp_path)
    with pytest.raises(ValueError, match="transformers has no class 'OwnForCausalLM'; give the model's own"):
        hc.load_wrapped(tmp_path)
    assert type(hc.load_wrapped(tmp_path, model_class=OwnForCausalLM)) is OwnForCausalLM
    with pytest.raises(ValueError, match="expected a folder, got 'org/name'"):
        hc.load_wrapped("org/name")


def test_constraint_instances_are_stored_and_unregistered_ones_asked_for(tmp_path):
    class Own(hc.constraints.Identity):
        name = "unregistered"

    model = hc.wrap(make("llama"), 4, constraint=hc.make_constraint("sinkhorn", 4, iterations=3))
    model.save_pretrained(tmp_path / "registered")
    loaded = hc.load_wrapped(tmp_path / "registered")
    assert loaded.model.layers[1].hyper_connections.connections[0].constraint.iterations == 3
    hc.wrap(make("llama"), 4, constraint=Own(4)).save_pretrained(tmp_path / "own")
    with pytest.raises(ValueError, match=r"wrapped with constraint=Own\(...\), which is not stored"):
        hc.load_wrapped(tmp_path / "own")
    hc.load_wrapped(tmp_path / "own", constraint=Own(4))


def test_other_options_than_the_stored_ones_are_refused(tmp_path):
    hc.wrap(make("llama"), 4).save_pretrained(tmp_path)
    with pytest.raises(ValueError, match=r"stored connections do not fit LlamaForCausalLM: .* keys differ"):
        hc.load_wrapped(tmp_path, level="block")


def test_the_plain_class_reads_the_base_weights_of_a_wrapped_folder(tmp_path):
    model = hc.wrap(make("llama"), 4)
    model.save_pretrained(tmp_path)
    plain = transformers.AutoModelForCausalLM.from_pretrained(tmp_path).eval()
    with torch.no_grad():
        assert torch.equal(run(plain, "llama"), run(hc.unwrap(model), "llama"))


def trainer(folder, model, **options):
    arguments = transformers.TrainingArguments(
        output_dir=str(folder),
        max_steps=20,
        save_steps=10,
        per_device_train_batch_size=4,
        learning_rate=1e-2,
        report_to=[],
        use_cpu=True,
        disable_tqdm=True,
        logging_steps=1,
        seed=0,
        lr_scheduler_type="constant",
        **options,
    )
    generator = torch.Generator().manual_seed(3)
    rows = torch.randint(3, 40, (32, 8), generator=generator)
    data = [{"input_ids": row, "labels": row} for row in rows]
    optimizer = torch.optim.AdamW(hc.parameter_groups(model, 0.1), lr=1e-2)
    return transformers.Trainer(model, arguments, train_dataset=data, optimizers=(optimizer, None))


@pytest.mark.filterwarnings("ignore:.*pin_memory.*:UserWarning")
def test_trainer_runs_twenty_steps_and_resumes(tmp_path):
    full = trainer(tmp_path, hc.wrap(make("llama"), 4, constraint="shc"))
    before = [p.clone() for p in connection_parameters(full.model)]
    full.train()
    losses = [entry["loss"] for entry in full.state.log_history if "loss" in entry]
    assert len(losses) == 20
    assert losses[-1] < losses[0]
    assert any(not torch.equal(p, b) for p, b in zip(connection_parameters(full.model), before, strict=True))
    resumed = trainer(tmp_path / "again", hc.wrap(make("llama"), 4, constraint="shc"))
    resumed.train(resume_from_checkpoint=str(tmp_path / "checkpoint-10"))
    assert resumed.state.global_step == 20
    for (key, ours), theirs in zip(resumed.model.named_parameters(), full.model.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs, msg=key)
    loaded = hc.load_wrapped(tmp_path / "checkpoint-20")
    with torch.no_grad():
        assert torch.equal(run(loaded, "llama"), run(full.model.eval(), "llama"))


def lora(model, **options):
    peft = pytest.importorskip("peft", reason="the LoRA tests need peft")
    return peft.get_peft_model(model, peft.LoraConfig(target_modules=["q_proj", "v_proj"], r=2, **options))


def train(model):
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=0.05)
    before = {key: p.clone() for key, p in model.named_parameters()}
    for _ in range(3):
        optimizer.zero_grad()
        model(**tokens(), labels=tokens()["input_ids"]).loss.backward()
        optimizer.step()
    return {key for key, p in model.named_parameters() if not torch.equal(p, before[key])}


@peft_reads_old_names
@pytest.mark.parametrize("level", ["block", "sublayer"])
def test_lora_alone_trains_lora_alone(level):
    changed = train(lora(hc.wrap(make("llama"), 4, level=level)))
    assert changed
    assert all("lora_" in key for key in changed)


@peft_reads_old_names
def test_lora_with_connections_trains_both_and_nothing_else(tmp_path):
    peft = pytest.importorskip("peft", reason="the LoRA tests need peft")
    model = lora(hc.wrap(make("llama"), 4), modules_to_save=["hyper_connections"])
    changed = train(model)
    assert any("lora_" in key for key in changed)
    assert any("hyper_connections.modules_to_save" in key for key in changed)
    assert all("lora_" in key or "hyper_connections.modules_to_save" in key for key in changed)
    model.save_pretrained(tmp_path)
    loaded = peft.PeftModel.from_pretrained(hc.wrap(make("llama"), 4), tmp_path).eval()
    with torch.no_grad():
        expected = run(model.eval(), "llama")
        torch.testing.assert_close(run(loaded, "llama"), expected)
        assert relative_error(run(make("llama"), "llama"), expected) > 1e-3


@peft_reads_old_names
def test_wrapping_a_model_that_has_lora_already():
    model = lora(make("llama"))
    with torch.no_grad():
        expected = run(model, "llama")
        hc.wrap(model, 4)
        assert relative_error(run(model, "llama"), expected) <= 1e-5
    changed = train(model)
    assert any("lora_" in key for key in changed)
    assert any("hyper_connections" in key for key in changed)
    assert all("lora_" in key or "hyper_connections" in key for key in changed)


def test_the_wrap_options_are_plain_data_in_the_configuration(tmp_path):
    hc.wrap(make("llama"), 4, constraint="shc", retraction=float("inf")).save_pretrained(tmp_path)
    stored = json.loads((tmp_path / "config.json").read_text())["hyperconn"]
    assert (stored["streams"], stored["constraint"], stored["retraction"]) == (4, "shc", "exponential")
