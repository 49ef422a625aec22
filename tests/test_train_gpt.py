"""The training example: it learns, goes on where it stopped, survives kills, and refuses what cannot work."""

from __future__ import annotations

import contextlib
import csv
import errno
import itertools
import os
import resource
import signal
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import pytest
import torch

import hyperconn as hc
import train_gpt
from gpt import checkpoint, text
from gpt.options import parse, remembered
from gpt.refusal import Refusal

ROOT = Path(__file__).parent.parent
SCRIPT = str(ROOT / "examples" / "train_gpt.py")
MODEL = ["--layers=1", "--width=16", "--heads=2", "--streams=3", "--context=16", "--constraint=shc"]
TINY = [*MODEL, "--batch-size=4", "--eval-batches=1", "--megabytes=0.02", "--warmup=1", "--device=cpu"]
ENDLESS = [*TINY, "--steps=99999", "--save-every=1", "--dropout=0.1"]


def losses(folder: Path) -> list[str]:
    """Training losses as written, so that equality is equality of bits."""
    with (folder / "log.csv").open(newline="") as file:
        return [row["training_loss"] for row in csv.DictReader(file)]


def after_training(output: str) -> str:
    """What is printed below the comparison with the baseline: the report on the matrices."""
    return output.partition("bigram baseline")[2].partition("\n")[2]


def train(folder: Path, *options: str) -> int:
    return train_gpt.main([*TINY, f"--out={folder}", *options])


def refused(capsys: pytest.CaptureFixture[str], *options: str) -> str:
    """The one line that these options are answered with."""
    capsys.readouterr()
    assert train_gpt.main(options) == 2
    output = capsys.readouterr()
    assert output.err.startswith("train_gpt.py: error: ") and output.err.count("\n") == 1
    return output.err


def started(*command: str, environment: dict[str, str] | None = None, **options) -> subprocess.Popen[str]:
    environment = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"} | (environment or {})
    return subprocess.Popen(
        [sys.executable, *command],
        env=environment,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        **options,
    )


def wait_for_rows(folder: Path, count: int, process: subprocess.Popen[str]) -> None:
    while process.poll() is None and not ((folder / "log.csv").is_file() and len(losses(folder)) >= count):
        time.sleep(0.05)
    assert process.poll() is None, process.communicate()[1]


@pytest.fixture
def finished(tmp_path: Path) -> Path:
    """The folder of a run of four steps."""
    assert train(tmp_path / "finished", "--steps=4") == 0
    return tmp_path / "finished"


class TestTraining:
    def test_beats_the_bigram_baseline(self, tmp_path):
        run = started(
            *(SCRIPT, f"--out={tmp_path}", "--device=cpu", "--constraint=shc", "--megabytes=1", "--steps=180"),
            *("--layers=2", "--width=64", "--context=32", "--batch-size=16"),
        )
        output, errors = run.communicate()
        assert run.returncode == 0 and errors == ""
        line = next(line for line in output.splitlines() if line.startswith("validation loss"))
        own, baseline = (float(word) for word in line.replace(";", "").split() if word[0].isdigit())
        assert own < baseline
        assert "spectral-sphere" in after_training(output)

    def test_ends_with_the_inspection_table(self, tmp_path, capsys):
        assert train(tmp_path, "--steps=2", "--constraint=mhc") == 0
        assert "sinkhorn" in after_training(capsys.readouterr().out)

    def test_logs_the_matrices_on_the_way_and_goes_on_after_a_resume(self, tmp_path):
        assert train(tmp_path, "--steps=4", "--log-matrices=2") == 0
        assert train(tmp_path, "--resume", "--steps=6") == 0
        steps = [row.split(",")[0] for row in (tmp_path / "mixing.csv").read_text().splitlines()]
        assert [step for step, _ in itertools.groupby(steps)] == ["step", "2", "4", "6"]
        assert train(tmp_path / "off", "--steps=2", "--log-matrices=0") == 0
        assert not (tmp_path / "off" / "mixing.csv").exists()

    @pytest.mark.parametrize("constraint", hc.list_constraints())
    def test_takes_every_constraint_by_name(self, tmp_path, constraint):
        assert train(tmp_path, "--steps=1", f"--constraint={constraint}", "--streams=4", "--retraction=2") == 0

    def test_compiled_losses_equal_eager_ones(self, tmp_path, monkeypatch):
        """With the backend that needs no C++ compiler, which takes a minute."""
        monkeypatch.setattr(train_gpt, "compiled", lambda model: model.compile(backend="aot_eager") or model)
        assert train(tmp_path / "eager", "--steps=3") == 0
        assert train(tmp_path / "compiled", "--steps=3", "--compile") == 0
        eager, compiled = ([float(loss) for loss in losses(tmp_path / name)] for name in ("eager", "compiled"))
        assert compiled == pytest.approx(eager, rel=20 * torch.finfo(torch.float32).eps)

    def test_goes_on_when_nobody_reads_its_output(self, tmp_path):
        with started(SCRIPT, *TINY, "--steps=4", f"--out={tmp_path}") as run:
            run.stdout.close()
            assert (run.wait(), run.stderr.read()) == (0, "")
        assert checkpoint.load(tmp_path / "checkpoint.pt").step == 4

    def test_bigram_loss_equals_counting(self):
        words = text.split(b"aab" * 200, 8, "words")
        batch = (torch.tensor([[97, 98]]), torch.tensor([[98, 97]]))  # a then b, b then a
        ab = (180 + 0.1) / (360 + 25.6)  # of 540 bytes two thirds are a; each b follows an a, the last byte is a b
        ba = (179 + 0.1) / (179 + 25.6)
        expected = -(torch.tensor([ab, ba], dtype=torch.float64).log().mean())
        assert text.bigram_loss(words, [batch]) == pytest.approx(float(expected), rel=1e-12)

    def test_held_out_text_is_never_trained_on(self):
        words = text.split(bytes(range(100)) * 20, 16, "words")
        assert len(words.training) + len(words.held_out) == 2000
        assert words.training.data_ptr() + len(words.training) == words.held_out.data_ptr()
        tokens, targets = text.training_batch(words, step=1, seed=0, batch_size=64, context=16)
        assert torch.equal(tokens[:, 1:], targets[:, :-1])

    def test_reads_a_folder_in_one_order_and_without_binary_files(self, tmp_path):
        for name, content in {"b": b"2" * 40, "a/z": b"1" * 40, "c": b"\0" * 40, "d": b"3" * 40}.items():
            (tmp_path / name).parent.mkdir(exist_ok=True)
            (tmp_path / name).write_bytes(content)
        words = text.read_text(str(tmp_path), max_bytes=100, context=4)
        assert bytes([*words.training, *words.held_out]) == b"2" * 40 + b"3" * 40 + b"1" * 20


class TestResuming:
    def test_gives_the_losses_of_an_uninterrupted_run(self, tmp_path):
        options = ("--dropout=0.1", "--seed=7", "--weight-decay=0.2")
        assert train(tmp_path / "whole", "--steps=8", *options) == 0
        assert train(tmp_path / "parts", "--steps=5", *options) == 0
        assert train_gpt.main(["--resume", f"--out={tmp_path / 'parts'}", "--steps=8", "--device=cpu"]) == 0
        assert losses(tmp_path / "parts") == losses(tmp_path / "whole")

    def test_drops_what_the_log_says_of_steps_after_the_checkpoint(self, tmp_path, finished):
        with (finished / "log.csv").open("a") as file:
            file.write("5,1.0,,0.1,100\n6,1.0,,0.")  # a kill in the middle of a row
        assert train(finished, "--resume", "--steps=6") == 0
        assert train(tmp_path / "whole", "--steps=6") == 0
        assert losses(finished) == losses(tmp_path / "whole")

    @pytest.mark.parametrize("kill", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
    def test_goes_on_after_a_kill(self, tmp_path, kill):
        run = started(SCRIPT, *ENDLESS, f"--out={tmp_path / 'killed'}")
        wait_for_rows(tmp_path / "killed", 3, run)
        run.send_signal(kill)
        output, errors = run.communicate()
        state = checkpoint.load(tmp_path / "killed" / "checkpoint.pt")
        if kill == signal.SIGKILL:
            assert run.returncode == -signal.SIGKILL
        else:
            assert (run.returncode, errors) == (130, "")
            assert f"interrupted after step {state.step}: go on with --resume" in output.splitlines()[-1]
        steps = f"--steps={state.step + 3}"
        assert train_gpt.main(["--resume", f"--out={tmp_path / 'killed'}", steps, "--device=cpu"]) == 0
        assert train(tmp_path / "whole", steps, "--dropout=0.1") == 0
        assert losses(tmp_path / "killed") == losses(tmp_path / "whole")

    def test_keeps_the_last_checkpoint_until_the_next_is_on_disk(self, finished, monkeypatch, capsys):
        path, before = finished / "checkpoint.pt", (finished / "checkpoint.pt").read_bytes()

        def full(descriptor: int) -> None:
            assert path.read_bytes() == before
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        state = checkpoint.load(path)
        monkeypatch.setattr(os, "fsync", full)
        with pytest.raises(Refusal, match="No space left on device"):
            checkpoint.save(state._replace(step=99), path)
        assert path.read_bytes() == before
        assert sorted(file.name for file in finished.iterdir()) == ["checkpoint.pt", "log.csv"]

    def test_says_which_constraint_streams_and_version(self, finished, capsys):
        again = ["--resume", f"--out={finished}", "--steps=9"]
        line = refused(capsys, *again, "--constraint=mhc")
        assert "made with constraint spectral-sphere (this run: sinkhorn)" in line
        assert "made with streams 3 (this run: 4)" in refused(capsys, *again, "--streams=4")
        assert "made with retraction None (this run: cayley)" in refused(capsys, *again, "--retraction=cayley")
        assert "made with mapping None (this run: static)" in refused(capsys, *again, "--mapping=static")
        assert "made with width 16 (this run: 32)" in refused(capsys, *again, "--width=32")
        path = finished / "checkpoint.pt"
        checkpoint.save(checkpoint.load(path)._replace(version="0.0.9"), path)
        assert f"made with hyperconn 0.0.9 (this run: {hc.__version__})" in refused(capsys, *again)

    def test_takes_an_alias_for_the_same_constraint(self, finished):
        assert train(finished, "--resume", "--steps=5", "--constraint=spectral-sphere") == 0

    def test_says_that_the_run_is_finished(self, finished, capsys):
        assert "is already at step 4. Try --steps 8." in refused(capsys, "--resume", f"--out={finished}")


class TestRefusing:
    @pytest.mark.parametrize(
        ("options", "words"),
        [
            (["--constraint=shk"], "unknown constraint 'shk'. Did you mean 'shc'?"),
            (["--constraint=permutation", "--streams=9"], "362,880 permutations"),
            (["--streams=0"], "expected a whole number from 1 to 64, got 0"),
            (["--streams=four"], "invalid whole_number value: 'four'"),
            (["--retraction=-1"], "expected p > 0, got -1.0"),
            (["--retraction=mobius"], "unknown retraction 'mobius'"),
            (["--mapping=flatt"], "unknown mapping 'flatt'"),
            (["--heads=3"], "expected a width that 3 heads divide evenly, got 16"),
            (["--device=abacus"], "--device abacus: cannot be used on this machine"),
            (["--data=/no/such/path"], "--data /no/such/path: cannot be read: No such file or directory"),
            (["--lr=nan"], "expected a number from 0 to 10, got nan"),
            (["--colour=red"], "unrecognized arguments: --colour=red. Try --help."),
            (["--resume=/no/such/checkpoint.pt"], "cannot be read: No such file or directory"),
        ],
    )
    def test_in_one_line_and_writes_nothing(self, tmp_path, capsys, options, words):
        assert words in refused(capsys, *TINY, f"--out={tmp_path / 'new'}", *options)
        assert not (tmp_path / "new").exists()

    def test_too_little_text(self, tmp_path, capsys):
        (tmp_path / "short.txt").write_text("To be, or not to be")
        line = refused(capsys, *TINY, f"--data={tmp_path / 'short.txt'}", f"--out={tmp_path / 'new'}")
        assert "expected at least 171 bytes of text for --context 16, got 19" in line
        assert not (tmp_path / "new").exists()

    def test_a_folder_that_cannot_be_made(self, tmp_path, capsys):
        (tmp_path / "file").touch()
        line = refused(capsys, *TINY, f"--out={tmp_path / 'file' / 'new'}")
        assert "cannot be created: Not a directory" in line

    def test_a_disk_that_is_full(self, tmp_path):
        def at_most_4_kilobytes() -> None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))

        run = started(SCRIPT, *TINY, "--steps=2", f"--out={tmp_path}", preexec_fn=at_most_4_kilobytes)
        _, errors = run.communicate()
        assert run.returncode == 2
        assert errors.count("\n") == 1 and "checkpoint.pt: cannot be written: File too large" in errors
        assert [file.name for file in tmp_path.iterdir()] == ["log.csv"]

    def test_a_machine_without_a_compiler(self, tmp_path):
        run = started(SCRIPT, *TINY, "--compile", f"--out={tmp_path / 'new'}", environment={"PATH": str(tmp_path)})
        _, errors = run.communicate()
        assert run.returncode == 2
        assert errors.count("\n") == 1 and "--compile: cannot be used on this machine" in errors
        assert not (tmp_path / "new").exists()

    def test_a_loss_that_is_not_finite(self, finished, capsys, monkeypatch):
        monkeypatch.setattr(train_gpt, "loss_of", lambda network, batch: next(network.parameters()).sum() * torch.nan)
        line = refused(capsys, "--resume", f"--out={finished}", "--steps=9")
        assert "the loss is nan at step 5. Try a smaller --lr." in line
        assert checkpoint.load(finished / "checkpoint.pt").step == 4


class TestForgedCheckpoints:
    def test_truncated_and_garbled_files(self, finished):
        path = finished / "checkpoint.pt"
        content = path.read_bytes()
        generator = torch.Generator().manual_seed(0)
        for _ in range(60):
            place, value = (int(torch.randint(high, (), generator=generator)) for high in (len(content), 256))
            path.write_bytes(content[:place])
            with pytest.raises(Refusal, match="not a checkpoint, or a damaged one"):
                checkpoint.load(path)
            path.write_bytes(content[:place] + bytes([value]) * 64 + content[place + 64 :])
            with contextlib.suppress(Refusal):  # or nothing at all: a wrong number inside a tensor cannot be told
                checkpoint.load(path)

    def test_code_is_not_executed(self, tmp_path):
        class Attack:
            def __reduce__(self):
                return os.mkdir, (str(tmp_path / "executed"),)

        for zipped in (True, False):
            torch.save({"model": Attack()}, tmp_path / "forged.pt", _use_new_zipfile_serialization=zipped)
            with pytest.raises(Refusal, match="not a checkpoint, or a damaged one"):
                checkpoint.load(tmp_path / "forged.pt")
        assert not (tmp_path / "executed").exists()

    def test_a_compressed_archive(self, finished, tmp_path):
        bomb = zipfile.ZipFile(tmp_path / "bomb.pt", "w", zipfile.ZIP_DEFLATED)
        with zipfile.ZipFile(finished / "checkpoint.pt") as plain, bomb:
            for name in plain.namelist():
                bomb.writestr(name, plain.read(name) + bytes(10**6))
        with pytest.raises(Refusal, match="not a checkpoint, or a damaged one"):
            checkpoint.load(tmp_path / "bomb.pt")

    @pytest.mark.parametrize(
        ("change", "words"),
        [
            ({"options": ["--device=cuda"]}, "holds the option '--device=cuda', which no run remembers"),
            ({"options": ["--help"]}, "holds the option '--help', which no run remembers"),
            ({"options": ["--width=many"]}, "invalid whole_number value: 'many'"),
            ({"options": ["--width=8192", "--layers=64"]}, "its tensors are not those of the options"),
            ({"model": {}}, "its tensors are not those of the options"),
            ({"optimizer": {"state": {}, "param_groups": []}}, "does not fit this model"),
            ({"optimizer": {"state": 7}}, "does not fit this model"),
            ({"step": -1}, "expected a checkpoint with version, options, step"),
            ({"options": [7]}, "expected a checkpoint with version, options, step"),
        ],
    )
    def test_contents_that_do_not_fit(self, finished, capsys, change, words):
        path = finished / "checkpoint.pt"
        checkpoint.save(checkpoint.load(path)._replace(**change), path)
        assert words in refused(capsys, "--resume", f"--out={finished}", "--steps=9", "--device=cpu")


@pytest.mark.distributed
@pytest.mark.parametrize("sharding", [[], ["--fsdp"]], ids=["ddp", "fsdp"])
class TestTwoProcesses:
    def test_give_the_losses_of_one_with_the_full_batch(self, tmp_path, sharding):
        """And the checkpoint of two processes is one that a single process goes on from."""
        torchrun = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2")
        two = started(*torchrun, SCRIPT, *TINY, "--steps=5", f"--out={tmp_path / 'two'}", *sharding)
        output, errors = two.communicate()
        assert two.returncode == 0, errors
        assert output.count("validation loss") == 2 and "spectral-sphere" in after_training(output)
        assert train(tmp_path / "two", "--resume", "--steps=8") == 0
        assert train(tmp_path / "one", "--steps=8") == 0
        one, two = ([float(loss) for loss in losses(tmp_path / name)] for name in ("one", "two"))
        assert len(two) == 8
        assert two == pytest.approx(one, rel=20 * torch.finfo(torch.float32).eps)


def test_options_are_remembered_as_they_were_typed():
    typed = parse(["--constraint=mhc", "--retraction=cayley", "--lr=0.01", "--out=here", "--compile"])
    again = parse([], remembered(typed))
    assert vars(again) | {"out": "here", "compile": True} == vars(typed)
