"""Checkpoints without the model's code: the same numbers, and one clear line for everything else."""

from __future__ import annotations

import json
import math
import os
import pickle
import resource
import struct
import subprocess
import sys
import time
import zipfile

import pytest
import torch
from planted import small_stack
from torch import nn

import hyperconn as hc
from hyperconn import cli
from hyperconn.description import encode_description
from hyperconn.inspection.checkpoints import CheckpointError, checkpoint_continuity, inspect_checkpoint

safetensors = pytest.importorskip("safetensors.torch", reason="NOT TESTED: install hyperconn[safetensors]")


def saved(tmp_path, content, name="model.pt"):
    torch.save(content, tmp_path / name)
    return tmp_path / name


def same_numbers(got, expected) -> None:
    assert [c.name for c in got] == [c.name for c in expected]
    for one, other in zip(got, expected, strict=True):
        assert one.constraint == other.constraint
        torch.testing.assert_close(one.matrix, other.matrix)
        for field in ("pre", "post"):
            torch.testing.assert_close(getattr(one, field), getattr(other, field))
        assert one.quantities.keys() == other.quantities.keys()
    for one, other in zip(got.depth, expected.depth, strict=True):
        torch.testing.assert_close(one.singular_values, other.singular_values)


@pytest.mark.parametrize("mapping", [None, "static", "per-stream", "flat"])
@pytest.mark.parametrize("name", hc.list_constraints())
def test_a_checkpoint_alone_gives_the_numbers_of_the_model(name, mapping, tmp_path):
    model = small_stack(name, layers=2, mapping=mapping)
    same_numbers(inspect_checkpoint(saved(tmp_path, model.state_dict())), hc.inspect(model))


class Model(nn.Module):
    """More than ten connections, so that order by name and order of the layers differ."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(5, 16)
        self.stack = small_stack("shc", layers=12)


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    return Model()


LAYOUTS = {
    "state dict": lambda state: state,
    "training checkpoint": lambda state: {
        "step": 7,
        "options": ["--lr", "1"],
        "optimizer": {"state": {0: {"exp_avg": torch.zeros(3)}}, "param_groups": []},
        "model": state,
    },
    "lightning": lambda state: {"epoch": 1, "state_dict": {f"module.{name}": value for name, value in state.items()}},
    "compiled": lambda state: {f"_orig_mod.{name}": value for name, value in state.items()},
    "compiled inside DDP": lambda state: {f"module._orig_mod.{name}": value for name, value in state.items()},
    "compiled parts": lambda state: {
        name.replace("stack.", "stack._orig_mod."): value for name, value in state.items()
    },
    "deep": lambda state: {"run": {"ema": {"decay": torch.ones(1)}, "net": state}},
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts_of_training_scripts(layout, model, tmp_path):
    same_numbers(inspect_checkpoint(saved(tmp_path, LAYOUTS[layout](model.state_dict()))), hc.inspect(model))


def test_safetensors_and_folders_of_shards(model, tmp_path):
    state, expected = model.state_dict(), hc.inspect(model)
    safetensors.save_file(state, tmp_path / "one.safetensors")
    same_numbers(inspect_checkpoint(tmp_path / "one.safetensors"), expected)
    names = list(state)
    for suffix, save in ((".safetensors", safetensors.save_file), (".bin", torch.save)):
        folder = tmp_path / suffix[1:]
        folder.mkdir()
        shards = {f"model-{i}-of-3{suffix}": names[i::3] for i in range(3)}
        for shard, part in shards.items():
            save({name: state[name] for name in part}, folder / shard)
        weight_map = {name: shard for shard, part in shards.items() for name in part}
        (folder / f"model{suffix}.index.json").write_text(json.dumps({"weight_map": weight_map}))
        same_numbers(inspect_checkpoint(folder), expected)
        (folder / f"model-1-of-3{suffix}").unlink()
        with pytest.raises(CheckpointError, match=f"names 1 files that are missing, model-1-of-3{suffix}"):
            inspect_checkpoint(folder)


def test_single_connections_single_streams_fractions_and_imported_sites(tmp_path):
    site = hc.HyperConnection(8, 4, nn.Identity())
    assert inspect_checkpoint(saved(tmp_path, site.state_dict())).connections[0].name == ""
    stack = hc.HyperStack([nn.Identity()] * 2, 8, 1)
    assert [c.streams for c in inspect_checkpoint(saved(tmp_path, stack.state_dict()))] == [1, 1]
    fractional = nn.Sequential(hc.FractionalConnection(8, 4, branch=nn.Identity()))
    same_numbers(inspect_checkpoint(saved(tmp_path, fractional.state_dict())), hc.inspect(fractional))
    imported = nn.Sequential(hc.interop.from_site(published(4), "deepseek_v4"))
    same_numbers(inspect_checkpoint(saved(tmp_path, imported.state_dict())), hc.inspect(imported))


# --- published models ---------------------------------------------------------------------------------


def published(n: int, width: int = 8) -> dict[str, torch.Tensor]:
    rows = n * n + 2 * n
    return {"fn": torch.randn(rows, n * width), "base": torch.randn(rows), "scale": torch.randn(3)}


@pytest.mark.parametrize("names", ["layers.{}.hc_{}_{}", "model.layers.{}.{}_hc.{}"])
def test_deepseek_sites_under_both_names(names, tmp_path):
    sites = {(layer, kind): published(4) for layer in range(11) for kind in ("attn", "ffn")}
    state = {
        names.format(layer, kind, part): tensor
        for (layer, kind), site in sites.items()
        for part, tensor in site.items()
    }
    state |= {"embed.weight": torch.randn(5, 8), "hc_head_base": torch.randn(4), "hc_head_scale": torch.randn(1)}
    safetensors.save_file(state, tmp_path / "model.safetensors")
    report = inspect_checkpoint(tmp_path)
    assert len(report) == 22
    assert [p.length for p in report.depth] == list(range(1, 23))
    for c, ((layer, kind), site) in zip(report, sites.items(), strict=True):
        assert str(layer) in c.name and kind in c.name
        connection = hc.interop.from_site(site, "deepseek_v4")
        torch.testing.assert_close(c.matrix.float(), connection.residual_matrix())
        torch.testing.assert_close(c.pre.mean.float(), connection.static_mappings().pre)


def test_numbers_of_the_configuration_beside_the_weights_count(tmp_path):
    site = published(4)
    torch.save({f"layers.0.hc_attn_{part}": 5 * tensor for part, tensor in site.items()}, tmp_path / "model.pt")
    default = inspect_checkpoint(tmp_path).connections[0].matrix
    (tmp_path / "config.json").write_text(json.dumps({"hc_sinkhorn_iters": 1, "hc_eps": 1e-3}))
    changed = inspect_checkpoint(tmp_path).connections[0].matrix
    site = hc.interop.from_site(
        {part: 5 * tensor for part, tensor in site.items()}, "deepseek_v4", hc_sinkhorn_iters=1, hc_eps=1e-3
    )
    torch.testing.assert_close(changed.float(), site.residual_matrix())
    assert (changed - default).abs().max() > 1e-3


def test_sites_that_never_mix(tmp_path):
    state = {
        f"layers.{i}.attn_hc.{part}": torch.randn(shape)
        for i in range(2)
        for part, shape in {"base": (8,), "scale": (2,), "fn": (8, 32)}.items()
    }
    report = inspect_checkpoint(saved(tmp_path, state))
    assert [c.streams for c in report] == [4, 4]
    assert all(torch.equal(c.matrix, torch.eye(4).double()) for c in report)


# --- the other model's numbers ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "words"),
    [({"constraint": "mhc"}, ("spectral-sphere", "sinkhorn")), ({"streams": 2}, ("streams 4", "this model: 2"))],
)
def test_loading_into_another_constraint_or_n_names_both(options, words, model):
    wanted = {"dim": 16, "streams": 4, "constraint": "shc"} | options
    other = hc.HyperStack([nn.Identity() for _ in range(12)], **wanted)
    with pytest.raises((ValueError, RuntimeError)) as error:
        other.load_state_dict(model.stack.state_dict(), strict=False)
    assert all(word in str(error.value) for word in words)


# --- files that are none ------------------------------------------------------------------------------


class Evil:
    def __reduce__(self):
        return os.system, ("touch executed",)


def forged(description: dict, bias: torch.Tensor | None = None) -> dict[str, torch.Tensor]:
    bias = torch.zeros(24) if bias is None else bias
    return {"a.mapping.bias": bias, "a._extra_state": encode_description(description)}


def described(**changes) -> dict:
    return {
        "dim": 8,
        "streams": 4,
        "constraint": {"name": "unconstrained"},
        "mapping": {"kind": "static"},
        "retraction": None,
    } | changes


def damaged(model, tmp_path, how):
    path = saved(tmp_path, model.state_dict())
    content = path.read_bytes()
    how = {
        "first half": content[: len(content) // 2],
        "last byte": content[:-1],
        "flipped": bytes(200) + content[200:],
        "empty": b"",
    }[how]
    path.write_bytes(how)
    return path


def long_pickle(tmp_path):
    with zipfile.ZipFile(tmp_path / "bomb.pt", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("archive/data.pkl", bytes(50_000_000))
    return tmp_path / "bomb.pt"


def huge_header(tmp_path):
    (tmp_path / "x.safetensors").write_bytes(struct.pack("<Q", 1 << 60) + b"{}")
    return tmp_path / "x.safetensors"


def text(tmp_path, content="hello", name="x.pt"):
    (tmp_path / name).write_text(content)
    return tmp_path / name


REFUSED = {
    "no file": (lambda m, t: t / "nothing.pt", "no such file"),
    "text": (lambda m, t: text(t), "not a file of torch.save"),
    "text named safetensors": (lambda m, t: text(t, name="x.safetensors"), "not a safetensors file"),
    "empty folder": (lambda m, t: t, "a folder without any file"),
    "first half": (lambda m, t: damaged(m, t, "first half"), "its end is missing"),
    "last byte": (lambda m, t: damaged(m, t, "last byte"), "model.pt"),
    "flipped": (lambda m, t: damaged(m, t, "flipped"), "model.pt"),
    "empty": (lambda m, t: damaged(m, t, "empty"), "is empty"),
    "code": (lambda m, t: saved(t, {"model": Evil()}), "tensors and plain data"),
    "compressed": (lambda m, t: long_pickle(t), "its archive is compressed"),
    "old pickle": (
        lambda m, t: (torch.save(m.state_dict(), t / "x.pt", _use_new_zipfile_serialization=False), t / "x.pt")[1],
        "not a file of torch.save",
    ),
    "huge header": (lambda m, t: huge_header(t), "not a safetensors file"),
    "a number": (lambda m, t: saved(t, 5), "an object of type int"),
    "no tensors": (lambda m, t: saved(t, {"a": {"b": 1}}), "a dictionary with the keys 'a'"),
    "no connections": (
        lambda m, t: saved(t, nn.Linear(2, 2).state_dict()),
        "no hyper-connections among its 2 tensors",
    ),
    "many streams": (
        lambda m, t: saved(t, forged(described(streams=10**9))),
        "expected 1 to 64 streams, got 1000000000",
    ),
    "streams of another type": (lambda m, t: saved(t, forged(described(streams="4"))), "expected 1 to 64 streams"),
    "long iterations": (
        lambda m, t: saved(t, forged(described(constraint={"name": "sinkhorn", "iterations": 10**12}))),
        "which no constraint takes",
    ),
    "large blocks": (
        lambda m, t: saved(t, forged(described(streams=64, constraint={"name": "orthostochastic", "block": 900}))),
        "too long to compute",
    ),
    "many permutations": (
        lambda m, t: saved(t, forged(described(streams=20, constraint={"name": "permutation"}))),
        "expected at most 7 streams",
    ),
    "unknown constraint": (
        lambda m, t: saved(t, forged(described(constraint={"name": "mine"}))),
        "import the module that registers it",
    ),
    "unknown option": (
        lambda m, t: saved(t, forged(described(constraint={"name": "sinkhorn", "x": 1}))),
        "unexpected keyword argument",
    ),
    "not a constraint": (lambda m, t: saved(t, forged(described(constraint=[1]))), "expected a constraint by name"),
    "short bias": (lambda m, t: saved(t, forged(described(), torch.zeros(5))), "at least 24 values, got (5,)"),
    "no bias": (
        lambda m, t: saved(t, {"a._extra_state": encode_description(described())}),
        "a.mapping.bias is missing",
    ),
    "long description": (
        lambda m, t: saved(t, forged(described(x="y" * 100_000))),
        "description of the connection is unreadable",
    ),
    "broken description": (
        lambda m, t: saved(
            t, {"a.mapping.bias": torch.zeros(24), "a._extra_state": torch.zeros(9, dtype=torch.uint8)}
        ),
        "description of the connection is unreadable",
    ),
    "expanded bias": (
        lambda m, t: saved(t, forged(described(), torch.zeros(1).expand(10**13))),
        "more than the file holds",
    ),
    "meta bias": (
        lambda m, t: saved(t, forged(described(), torch.zeros(24, device="meta"))),
        "expected a dense real tensor",
    ),
    "long base": (
        lambda m, t: saved(
            t, {"layers.0.hc_attn_base": torch.zeros(1).expand(10**12), "layers.0.hc_attn_scale": torch.zeros(3)}
        ),
        "expected n² + 2n or 2n values",
    ),
    "odd base": (
        lambda m, t: saved(t, {"layers.0.hc_attn_base": torch.zeros(25), "layers.0.hc_attn_scale": torch.zeros(3)}),
        "expected n² + 2n or 2n values",
    ),
    "no scale": (lambda m, t: saved(t, {"layers.0.hc_attn_base": torch.zeros(24)}), "hc_attn_scale is missing"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_anything_else_is_one_clear_line_and_status_2(case, model, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    make, words = REFUSED[case]
    path = make(model, tmp_path)
    started, memory = time.perf_counter(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert cli.main(["inspect", str(path)]) == 2
    assert time.perf_counter() - started < 5
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - memory < 300_000  # kB
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(f"hyperconn: error: {path}") and err.count("\n") == 1 and err.endswith("\n")
    assert words in err
    assert not (tmp_path / "executed").exists()


def test_a_foreign_extra_state_is_passed_over(model, tmp_path):
    state = dict(model.state_dict()) | {
        "te._extra_state": torch.zeros(3, dtype=torch.uint8),
        "x._extra_state": encode_description({"a": 1}),
    }
    same_numbers(inspect_checkpoint(saved(tmp_path, state)), hc.inspect(model))


def test_a_pickle_that_is_no_archive_runs_nothing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "x.pt").write_bytes(pickle.dumps(Evil()))
    with pytest.raises(CheckpointError):
        inspect_checkpoint(tmp_path / "x.pt")
    assert not (tmp_path / "executed").exists()


# --- the command line ---------------------------------------------------------------------------------


def test_inspect_writes_what_it_is_asked_for(model, tmp_path, capsys):
    pytest.importorskip("matplotlib", reason="pictures need hyperconn[plot]")
    path = saved(tmp_path, model.state_dict())
    files = [tmp_path / name for name in ("a.png", "a.html", "a.json")]
    assert (
        cli.main(["inspect", str(path), "--plot", str(files[0]), "--html", str(files[1]), "--json", str(files[2])])
        == 0
    )
    assert "stack.connections.11" in capsys.readouterr().out
    assert files[0].read_bytes().startswith(b"\x89PNG") and "stack.connections.11" in files[1].read_text()
    assert len(json.loads(files[2].read_text())["connections"]) == 12


def test_a_wrong_suffix_is_refused_first_and_a_missing_folder_is_named(model, tmp_path, capsys):
    path = saved(tmp_path, model.state_dict())
    assert cli.main(["inspect", str(path), "--plot", str(tmp_path / "a.gif")]) == 2
    assert capsys.readouterr().out == ""
    assert cli.main(["inspect", str(path), "--json", str(tmp_path / "no" / "a.json")]) == 2
    assert "No such file or directory" in capsys.readouterr().err


def test_a_broken_matrix_is_shown_as_such(model, tmp_path, capsys):
    state = dict(model.state_dict())
    state["stack.connections.3.mapping.bias"] = state["stack.connections.3.mapping.bias"] * math.nan
    assert cli.main(["inspect", str(saved(tmp_path, state))]) == 0
    assert "non-finite values: NaN or infinity in H of stack.connections.3" in capsys.readouterr().out


def test_continuity_reads_weights_one_at_a_time(tmp_path, capsys):
    encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(16, 2, 32), 3, enable_nested_tensor=False)
    path = saved(tmp_path, {"model": encoder.state_dict()})
    expected = hc.continuity(encoder)
    for got, other in zip(checkpoint_continuity(path), expected, strict=True):
        torch.testing.assert_close(got.c_v, other.c_v)
    assert cli.main(["continuity", str(path), "--json", str(tmp_path / "c.json")]) == 0
    assert "up" in capsys.readouterr().out and (tmp_path / "c.json").exists()
    assert cli.main(["continuity", str(saved(tmp_path, nn.Linear(3, 3).state_dict(), "none.pt"))]) == 2
    assert "no projection that occurs in at least two layers" in capsys.readouterr().err


def test_constraints_lists_every_name_with_its_claims(capsys):
    assert cli.main(["constraints"]) == 0
    rows = {line.split()[0]: line for line in capsys.readouterr().out.splitlines() if line.strip()}
    for name in hc.list_constraints():
        cls = hc.constraints.constraint_class(name)
        claims = [getattr(cls, claim) for claim in cli.CLAIMS.values()]
        words = rows[name].removeprefix(f" {name}").replace(", ".join(cls.aliases), "", 1).split()
        assert [word == "yes" for word in words[: len(claims)]] == claims, name


@pytest.mark.parametrize("arguments", [[], ["nothing"], ["inspect"]])
def test_a_wrong_command_is_status_2(arguments, capsys):
    with pytest.raises(SystemExit) as stop:
        cli.main(arguments)
    assert stop.value.code == 2


def test_as_a_module_in_a_process_of_its_own(tmp_path):
    path = saved(tmp_path, small_stack(layers=2).state_dict())
    done = subprocess.run([sys.executable, "-m", "hyperconn", "inspect", str(path)], capture_output=True, text=True)
    assert done.returncode == 0 and "connections.1" in done.stdout and done.stderr == ""
    done = subprocess.run(
        [sys.executable, "-m", "hyperconn", "inspect", "nothing.pt"], capture_output=True, text=True
    )
    assert done.returncode == 2 and done.stderr == "hyperconn: error: nothing.pt: no such file or folder\n"
