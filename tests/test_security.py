"""Files are not trusted: no code from them runs, nothing is sent, and whatever is wrong is one line and status 2."""

from __future__ import annotations

import ast
import collections
import json
import os
import pickle
import random
import resource
import struct
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import hostile
import pytest
import torch
from torch import Tensor

import hyperconn as hc
from hyperconn import cli

ROOT = Path(__file__).parent.parent
SOURCES = [path for folder in ("hyperconn", "examples") for path in sorted((ROOT / folder).rglob("*.py"))]
MODULES = {
    "pickle",
    "marshal",
    "shelve",
    "dill",
    "cloudpickle",
    "joblib",
    "socket",
    "urllib",
    "http",
    "requests",
    "ctypes",
}
CALLS = {
    "eval",
    "exec",
    "compile",
    "__import__",
    "os.system",
    "os.popen",
    "yaml.load",
    "pickle.load",
    "torch.hub.load",
}
SECONDS, KILOBYTES = 5, 300_000
REPEATS = 40  # of each kind of forgery


# --- the source ---------------------------------------------------------------------------------------


def dotted(node: ast.AST) -> str:
    return ast.unparse(node) if isinstance(node, (ast.Name, ast.Attribute)) else ""


def is_true(call: ast.Call, keyword: str) -> bool:
    return any(
        k.arg == keyword and isinstance(k.value, ast.Constant) and k.value.value is True for k in call.keywords
    )


def dangers(source: str) -> list[str]:
    """What could run code of a file or send something away, by line."""
    found = []
    for node in ast.walk(ast.parse(source)):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and not node.level:
            names = [node.module or ""]
            if node.module == "torch" and any(alias.name == "load" for alias in node.names):
                found.append(f"{node.lineno}: load under another name")
        elif isinstance(node, ast.Call):
            name = dotted(node.func)
            unsafe = name.endswith("torch.load") and not is_true(node, "weights_only")
            if name in CALLS or unsafe or is_true(node, "shell") or is_true(node, "trust_remote_code"):
                found.append(f"{node.lineno}: {name}")
        found += [f"{node.lineno}: import {name}" for name in names if name.split(".")[0] in MODULES]
    return found


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_the_source_has_no_way_to_run_what_a_file_says(path):
    assert dangers(path.read_text()) == []


@pytest.mark.parametrize(
    "line",
    [
        "torch.load(p)",
        "torch.load(p, weights_only=False)",
        "torch.load(p, weights_only=flag)",
        "from torch import load",
        "import pickle",
        "from pickle import loads",
        "import urllib.request",
        "eval(text)",
        "exec(text)",
        "os.system(text)",
        "yaml.load(text)",
        "subprocess.run(text, shell=True)",
        "AutoModel.from_pretrained(p, trust_remote_code=True)",
    ],
)
def test_a_dangerous_line_is_found(line):
    assert len(dangers(f"x = 1\n{line}\n" if not line.startswith(("import", "from")) else line)) == 1


def test_there_is_a_load_to_look_at():
    assert sum("torch.load(" in path.read_text() for path in SOURCES) >= 2


# --- the network --------------------------------------------------------------------------------------

SESSION = """
import sys

def watch(event, arguments):
    if event.startswith(("socket.", "subprocess.", "os.system", "os.exec", "os.posix_spawn", "urllib.")):
        raise PermissionError(f"{event} {arguments}")

import torch
sys.addaudithook(watch)
from torch import nn
import hyperconn as hc
from hyperconn import cli

model = hc.HyperStack([nn.Linear(4, 4)] * 2, 4, 4, constraint="shc", retraction="cayley")
optimizer = torch.optim.AdamW(hc.parameter_groups(model, weight_decay=0.1))
model(torch.randn(3, 4)).square().sum().backward()
optimizer.step()
report = hc.inspect(model, torch.randn(3, 4))
print(report)
report.html("report.html")
torch.save(model.state_dict(), "model.pt")
assert cli.main(["inspect", "model.pt", "--json", "report.json", "--html", "report.html"]) == 0
assert cli.main(["constraints"]) == 0
assert cli.main(["continuity", "model.pt"]) == 2
print("no socket", len([name for name in sys.modules if name.split(".")[0] in ("requests", "urllib3", "httpx")]))
try:
    __import__("socket").socket()
except PermissionError:
    print("a socket would be seen")
"""


def test_import_training_inspection_and_command_line_open_no_socket(tmp_path):
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", SESSION], cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("no socket 0\na socket would be seen\n")
    page = (tmp_path / "report.html").read_text()
    assert not any(word in page for word in ("<script src", "http", "@import", "fetch("))


# --- forged files through the command line ------------------------------------------------------------


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(arguments: list[str], capsys) -> int:
    """The exit status; one printable line on stderr if it is 2, none if it is 0, and never more time or memory."""
    capsys.readouterr()
    started, memory = time.perf_counter(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    status = cli.main(arguments)
    assert time.perf_counter() - started < SECONDS
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - memory < KILOBYTES
    out, err = capsys.readouterr()
    assert status in (0, 2)
    assert out.replace("\n", "").isprintable()
    if status == 0:
        assert err == ""
    else:
        assert out == "" and err.startswith("hyperconn: error: ")
        assert err.endswith("\n") and err[:-1].isprintable(), err
    return status


def shards(rng: random.Random, state: dict[str, Tensor], folder: Path) -> Path:
    safetensors = pytest.importorskip("safetensors.torch", reason="NOT TESTED: install hyperconn[safetensors]")
    names = list(state)
    for part in range(2):
        (folder / f"model-{part}.safetensors").write_bytes(safetensors.save({n: state[n] for n in names[part::2]}))
    index = {"weight_map": {name: f"model-{i % 2}.safetensors" for i, name in enumerate(names)}}
    content = json.dumps(hostile.any_value(rng, index)).encode()
    (folder / "model.safetensors.index.json").write_bytes(
        content if rng.random() < 0.7 else hostile.any_bytes(rng, json.dumps(index).encode())
    )
    return folder


def safetensors_file(rng: random.Random, state: dict[str, Tensor], folder: Path) -> Path:
    safetensors = pytest.importorskip("safetensors.torch", reason="NOT TESTED: install hyperconn[safetensors]")
    content = safetensors.save(state)
    change = rng.choice([hostile.any_bytes, hostile.any_header])
    return written(folder / "x.safetensors", change(rng, content))


def published(rng: random.Random, state: dict[str, Tensor], folder: Path) -> Path:
    config = {"hc_eps": 1e-6, "hc_sinkhorn_iters": 20, "hc_magnitude": 2.0}
    (folder / "config.json").write_text(json.dumps(hostile.any_value(rng, config)))
    changed = hostile.published_state()
    return written(
        folder / "x.pt", hostile.archive(hostile.any_state(rng, changed) if rng.random() < 0.7 else changed)
    )


def written(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


FORGERIES = {
    "bytes of an archive": lambda r, s, f: written(f / "x.pt", hostile.any_bytes(r, hostile.archive({"model": s}))),
    "bytes of a pickle": lambda r, s, f: written(f / "x.pt", hostile.any_pickle(r, hostile.archive(s))),
    "tensors and descriptions": lambda r, s, f: written(f / "x.pt", hostile.archive(hostile.any_state(r, s))),
    "a published model and its configuration": published,
    "bytes and header of safetensors": safetensors_file,
    "index of shards": shards,
}


@pytest.mark.parametrize("kind", FORGERIES)
def test_a_forged_file_is_one_line_and_status_2_or_did_not_matter(kind, folder, capsys):
    state, seen = hostile.model_state(), collections.Counter()
    for seed in range(REPEATS):
        inside = folder / f"seed {seed}"  # so that a failure says which
        inside.mkdir()
        path = FORGERIES[kind](random.Random(f"{kind} {seed}"), state, inside)
        for command in ("inspect", "continuity"):
            seen[command, run([command, str(path)], capsys)] += 1
    print(kind, dict(seen))
    assert seen["inspect", 2] > 0 and seen["inspect", 0] > 0


class Runs:
    """A pickle that calls something with an argument."""

    def __init__(self, function, *arguments):
        self.call = function, arguments

    def __reduce__(self):
        return self.call


class Popen:
    def __reduce__(self):
        return subprocess.Popen, (["touch", "executed"],)


GADGETS = {
    "os.system": Runs(os.system, "touch executed"),
    "eval": Runs(eval, "open('executed', 'w')"),
    "exec": Runs(exec, "open('executed', 'w')"),
    "open": Runs(open, "executed", "w"),
    "Popen": Popen(),
    "torch.load": Runs(torch.load, "other.pt"),
    "getattr": Runs(getattr, torch.Size, "mro"),
    "of this package": Runs(hc.HyperStack, [], 4),
    "the command line": Runs(cli.main, ["constraints"]),
}


@pytest.mark.parametrize("gadget", GADGETS)
def test_code_in_a_pickle_is_not_run(gadget, folder, capsys):
    state = hostile.model_state()
    content = hostile.archive({"model": state | {"x": GADGETS[gadget]}})
    as_key = hostile.archive({"model": state, "loop": {"epoch": GADGETS[gadget]}})
    old = pickle.dumps(GADGETS[gadget])
    replaced = hostile.repacked(hostile.archive(state), lambda name, m: old if name.endswith(".pkl") else m)
    for forged in (content, as_key, replaced, old):
        path = written(folder / "x.pt", forged)
        assert run(["inspect", str(path)], capsys) == run(["continuity", str(path)], capsys) == 2
    assert sorted(os.listdir(folder)) == ["x.pt"]


class Rebuilt:
    """A pickle that is rebuilt in the given way, and afterwards given attributes and items."""

    def __init__(self, *how):
        self.how = how

    def __reduce__(self):
        return self.how


def with_attributes(state: dict[str, Tensor]) -> Rebuilt:
    """A dictionary and parameters whose methods are replaced by numbers, which torch restores from a file."""
    shadows = {"untyped_storage": 5, "numel": 5, "detach": 5}
    forged = {
        name: Rebuilt(torch._utils._rebuild_parameter_with_state, (t, False, collections.OrderedDict(), shadows))
        if t.is_floating_point()
        else t
        for name, t in state.items()
    }
    return Rebuilt(collections.OrderedDict, (), {"items": 5, "keys": 5, "values": 5}, None, iter(forged.items()))


def header(length: int, content: bytes = b"{}") -> bytes:
    return struct.pack("<Q", length) + content


def huge_entry(state: dict[str, Tensor]) -> bytes:
    name = b'{"a":{"dtype":"F32","shape":[1099511627776],"data_offsets":[0,4398046511104]}}'
    return header(len(name), name)


def many_names(state: dict[str, Tensor]) -> bytes:
    return hostile.archive({"model": {str(i): {} for i in range(50_000)}})


PLANTED = {
    "methods shadowed": ("x.pt", lambda s: hostile.archive(with_attributes(s)), 0),
    "a name that is no text": ("x.pt", lambda s: hostile.archive(s | {5: torch.ones(1), None: torch.ones(1)}), 0),
    "parameters of eight bits": ("x.pt", lambda s: hostile.archive(eight_bits(s)), 0),
    "deflated": ("x.pt", lambda s: hostile.repacked(hostile.archive(s), lambda n, m: m, zipfile.ZIP_DEFLATED), 2),
    "bomb": (
        "x.pt",
        lambda s: hostile.repacked(hostile.archive({}), lambda n, m: bytes(10**7), zipfile.ZIP_DEFLATED),
        2,
    ),
    "many dictionaries": ("x.pt", many_names, 2),
    "deep pickle": ("x.pt", lambda s: deep_pickle(), 2),
    "header of 2**60 bytes": ("x.safetensors", lambda s: header(1 << 60), 2),
    "header of 2**64 - 1 bytes": ("x.safetensors", lambda s: header((1 << 64) - 1), 2),
    "header longer than the file": ("x.safetensors", lambda s: header(1000), 2),
    "deep header": ("x.safetensors", lambda s: header(200_000, b'{"a":' * 40_000), 2),
    "tensor of 4 TB": ("x.safetensors", huge_entry, 2),
}


def eight_bits(state: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: t.to(torch.float8_e4m3fn) if t.is_floating_point() else t for name, t in state.items()}


def deep_pickle() -> bytes:
    nested = b"\x80\x02" + b"]" * 100_000 + b"a" * 99_999 + b"."
    return hostile.repacked(hostile.archive({}), lambda name, m: nested if name.endswith(".pkl") else m)


@pytest.mark.parametrize("case", PLANTED)
def test_a_planted_file(case, folder, capsys):
    name, make, status = PLANTED[case]
    path = written(folder / name, make(hostile.model_state()))
    assert run(["inspect", str(path)], capsys) == status


@pytest.mark.parametrize("name", ["../x.safetensors", "/etc/passwd", "sub/x.safetensors"])
def test_an_index_leads_nowhere_outside_its_folder(name, folder, capsys):
    written(folder / "x.safetensors", b"untouched")
    inside = folder / "model"
    inside.mkdir()
    written(inside / "a.safetensors", header(2))
    (inside / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"w": name}}))
    assert run(["inspect", str(inside)], capsys) == 2
    with pytest.raises(ValueError, match="outside its folder"):
        hc.wrapping.pretrained._weight_files(inside)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="NOT TESTED: this system has no named pipes")
@pytest.mark.parametrize("name", ["x.pt", "config.json", "model.pt.index.json"])
def test_a_pipe_is_not_waited_for(name, folder, capsys):
    written(folder / "model.pt", hostile.archive(hostile.published_state()))
    os.mkfifo(folder / name)
    target = folder / name if name == "x.pt" else folder
    assert run(["inspect", str(target)], capsys) == (0 if name == "config.json" else 2)


WORDS = [
    "inspect", "continuity", "constraints", "--plot", "--json", "--html", "--help", "-h", "--", "-", "", "a.png", "a.gif",
    "a.html", "a.json", "model.pt", "missing.pt", ".", "x" * 300, "\x1b[2J", "a\nb", "ü", "%s", "{0}", "*", "@model.pt",
    "--plot=a.png", "--plot=", "--json=missing/a.json", "-\x00",
]  # fmt: skip


def test_any_arguments_end_with_status_0_or_2(folder, capsys):
    pytest.importorskip("matplotlib", reason="NOT TESTED: pictures need hyperconn[plot]")
    written(folder / "model.pt", hostile.archive(hostile.model_state()))
    rng, seen = random.Random(0), collections.Counter()
    for _ in range(150):
        arguments = rng.choices(WORDS, k=rng.randrange(6))
        arguments = [rng.choice(WORDS[:3]), *arguments] if rng.random() < 0.8 else arguments
        if rng.random() < 0.2:
            arguments.append("".join(chr(rng.randrange(1, 0x2FF)) for _ in range(9)).replace("/", ""))
        try:
            status = cli.main(arguments)
        except SystemExit as stop:
            status = stop.code
        assert status in (0, 2), arguments
        seen[status] += 1
        err = capsys.readouterr().err
        assert "Traceback" not in err
        assert status == 0 or err, arguments
    print(dict(seen))
    assert seen[0] > 5 and seen[2] > 5


# --- forged state dicts -------------------------------------------------------------------------------


def test_a_forged_description_is_refused_by_name_or_is_the_same():
    module, seen = hc.HyperConnection(4, 4, constraint="shc", retraction="cayley"), collections.Counter()
    before = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    for seed in range(400):
        rng = random.Random(seed)
        change = hostile.any_tensor if seed % 4 == 0 else hostile.any_description
        forged = before | {"_extra_state": change(rng, before["_extra_state"])}
        try:
            module.load_state_dict(forged)
            seen["taken"] += 1
        except (ValueError, RuntimeError) as error:
            text = str(error)
            assert text.startswith("HyperConnection(dim=4, streams=4): "), seed
            assert len(text) < 3000 and text.isprintable(), seed
            seen["refused"] += 1
        assert all(torch.equal(module.state_dict()[name], tensor) for name, tensor in before.items())
    print(dict(seen))
    assert seen["refused"] > 200


@pytest.mark.parametrize("state", [None, 5, "text", b"bytes", [1, 2], {}, torch.ones(1).expand(10**12)], ids=repr)
def test_an_extra_state_that_is_no_description_is_refused_by_name(state):
    module = hc.HyperConnection(4, 4)
    started = time.perf_counter()
    with pytest.raises(ValueError, match=r"HyperConnection\(dim=4, streams=4\): .*unreadable description"):
        module.set_extra_state(state)
    with pytest.raises((ValueError, RuntimeError), match="HyperConnection"):
        module.load_state_dict(dict(module.state_dict()) | {"_extra_state": state})
    assert time.perf_counter() - started < SECONDS
