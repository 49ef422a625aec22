"""Logging during training writes what inspection would say, and nothing while it is off."""

from __future__ import annotations

import csv

import pytest
import torch
from conftest import branch

import hyperconn as hc
from hyperconn.inspection.mosaic import CELL, GAP, NEGATIVE, POSITIVE, mosaic


def stack(constraint="hc", n=4):
    model = hc.HyperStack([branch(8) for _ in range(3)], 8, n, constraint=constraint)
    with torch.no_grad():
        for connection in model.connections:
            if connection.mapping is not None:
                connection.mapping.bias.add_(0.3 * torch.randn_like(connection.mapping.bias))
    return model


def rows_of(folder):
    with (folder / "mixing.csv").open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize("constraint", ["hc", "shc", "mhc"])
def test_entries_are_the_numbers_of_a_static_report(tmp_path, constraint):
    model = stack(constraint)
    with hc.MixingLogger(model, every=5, folder=tmp_path) as logger:
        for step in range(1, 11):
            logger.step(step)
    rows, report = rows_of(tmp_path), hc.inspect(model)
    assert [(row["step"], row["connection"]) for row in rows] == [
        (str(step), connection.name) for step in (5, 10) for connection in report
    ]
    for row, connection, prefix in zip(rows[3:], report, report.depth, strict=True):
        for name, summary in connection.quantities.items():
            if name in row:
                assert float(row[name]) == pytest.approx(summary.mean, abs=1e-9), name
        assert float(row["product.second_singular_value"]) == pytest.approx(
            prefix.singular_values[1].item(), abs=1e-6
        )
        gates = model.get_submodule(connection.name).static_mappings()
        assert [float(row[f"pre_{i}"]) for i in range(4)] == pytest.approx(gates.pre.tolist(), abs=1e-6)
        assert float(row["most_negative"]) == pytest.approx(min(gates.res.min().item(), 0), abs=1e-6)


def test_a_resumed_run_replaces_the_rows_it_goes_through_again(tmp_path):
    model = stack()
    first = hc.MixingLogger(model, every=1, folder=tmp_path)
    for step in range(5):
        first.step(step)
    first.close()
    second = hc.MixingLogger(model, every=1, folder=tmp_path)
    for step in range(3, 6):
        second.step(step)
    second.close()
    assert [row["step"] for row in rows_of(tmp_path)] == [str(s) for s in (0, 1, 2, 3, 4, 5) for _ in range(3)]


def test_off_it_computes_and_creates_nothing(tmp_path, monkeypatch):
    model = stack()
    monkeypatch.setattr("hyperconn.inspection.logger.snapshot", lambda *_: pytest.fail("computed"))
    with hc.MixingLogger(model, every=0, folder=tmp_path / "nothing") as logger:
        for step in range(100):
            logger.step(step)
    assert not (tmp_path / "nothing").exists()


def test_it_changes_neither_parameters_gradients_nor_random_numbers(tmp_path):
    model = stack("shc")
    model(torch.randn(2, 8)).sum().backward()
    before = [(p.clone(), p.grad.clone()) for p in model.parameters()]
    state = torch.get_rng_state()
    hc.MixingLogger(model, every=1, folder=tmp_path).step(0)
    assert torch.equal(torch.get_rng_state(), state)
    for parameter, (value, gradient) in zip(model.parameters(), before, strict=True):
        assert torch.equal(parameter, value)
        assert torch.equal(parameter.grad, gradient)


def test_single_streams_and_mixed_sizes_are_logged_together(tmp_path):
    model = torch.nn.ModuleList([stack(n=4), stack(n=1), stack("shc", n=3)])
    with hc.MixingLogger(model, every=1, folder=tmp_path) as logger:
        logger.step(0)
    rows = rows_of(tmp_path)
    assert len(rows) == 9
    assert [row["spectral_norm"] for row in rows[3:6]] == ["1.0"] * 3
    assert [row["pre_2"] == "" for row in rows] == [False] * 3 + [True] * 3 + [False] * 3


def test_tensorboard_receives_scalars_and_a_picture(tmp_path):
    pytest.importorskip("tensorboard", reason="NOT TESTED: TensorBoard is not installed")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    model = stack("shc")
    with hc.MixingLogger(model, every=1, folder=tmp_path) as logger:
        logger.step(7)
    events = EventAccumulator(str(tmp_path))
    events.Reload()
    name = "most_negative/connections.1"
    (entry,) = events.Scalars(name)
    assert entry.step == 7
    assert entry.value == pytest.approx(min(model.connections[1].residual_matrix().min().item(), 0), abs=1e-6)
    assert events.Tags()["images"] == ["H, 4 streams"]


def test_the_picture_shows_the_sign():
    picture = mosaic(torch.tensor([[[1.0, 0.0], [-1.0, float("nan")]]]))
    assert picture.shape == (3, 2 * CELL + GAP, 2 * CELL + GAP)
    centres = picture[:, CELL // 2 : 2 * CELL : CELL, CELL // 2 : 2 * CELL : CELL]
    torch.testing.assert_close(centres[:, 0, 0], torch.tensor(POSITIVE))
    torch.testing.assert_close(centres[:, 1, 0], torch.tensor(NEGATIVE))
    assert torch.equal(centres[:, 0, 1], torch.ones(3))
    assert torch.equal(centres[:, 1, 1], torch.zeros(3))


@pytest.mark.parametrize("every", [-1, 2.5, True])
def test_a_bad_interval_is_refused(every):
    with pytest.raises(ValueError, match="MixingLogger: expected every to be a number of steps, or 0 for none"):
        hc.MixingLogger(stack(), every=every)
