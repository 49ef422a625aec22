"""Tables, plain data, CSV and pictures."""

from __future__ import annotations

import csv
import json
import math
import re
import struct
import subprocess
import sys
import zlib

import pytest
import torch
from planted import small_stack, static_model

import hyperconn as hc
from hyperconn.inspection.curves import draw_similarity
from hyperconn.inspection.heatmaps import colour_limit, heat_map_figure

PLANTED = torch.eye(4)
PLANTED[2, 1] = -0.3


def test_the_table_shows_every_connection_and_number():
    text = str(hc.inspect(static_model([torch.eye(4), PLANTED])))
    row = next(line for line in text.splitlines() if line.split()[:1] == ["1"])
    assert row.split()[:4] == ["1", "unconstrained", "-0.3", "0.0625"]
    assert "product through depth" in text
    assert max(len(line) for line in text.splitlines()) <= 160


def test_without_rich_the_table_is_plain_text(monkeypatch):
    report = hc.inspect(static_model([torch.eye(4), PLANTED]))
    with_rich = str(report)
    monkeypatch.setitem(sys.modules, "rich", None)
    plain = str(report)
    assert plain != with_rich and not re.search("[─━│]", plain)
    assert set(with_rich.replace("─", "").split()) == set(plain.split())


def test_negative_entries_are_listed_with_destination_source_and_value():
    entries = hc.inspect(static_model([torch.eye(4), PLANTED])).negative_entries()
    assert [entry[:3] for entry in entries] == [("1", 2, 1)]
    assert entries[0].value == pytest.approx(-0.3) and entries[0].rate == 1


def test_negative_entries_per_token_show_what_the_mean_hides():
    model = small_stack()
    x = torch.randn(6, 16)
    entries = {entry[:3]: entry for entry in hc.inspect(model, x).negative_entries()}
    streams = model.eval().expand(x)
    res = model.connections[0].mappings(streams).res.detach()
    for i in range(4):
        for j in range(4):
            found = entries.get(("connections.0", i, j))
            assert (found is not None) == bool((res[:, i, j] < 0).any())
            if found:
                assert found.value == pytest.approx(res[:, i, j].min().item(), abs=1e-6)
                assert found.rate == pytest.approx((res[:, i, j] < 0).double().mean().item())
    assert any(0 < entry.rate < 1 for entry in entries.values())


def test_the_dictionary_is_plain_and_whole(tmp_path):
    report = hc.inspect(small_stack(), torch.randn(2, 3, 16))
    content = report.to_dict()
    report.to_json(tmp_path / "report.json")
    assert json.loads((tmp_path / "report.json").read_text()) == content
    first = content["connections"][0]
    assert first["matrix"] == report["connections.0"].matrix.tolist()
    assert set(hc.inspection.MATRIX_QUANTITIES) < set(first["quantities"])
    assert len(first["quantities"]["forward_gain"]["where_largest"]["token"]) == 2
    assert len(content["depth"]) == 4


def test_json_has_no_place_for_nan_and_says_so_in_words(tmp_path):
    report = hc.inspect(static_model([PLANTED * math.nan]))
    report.to_json(tmp_path / "report.json")
    content = json.loads((tmp_path / "report.json").read_text(), parse_constant=lambda name: pytest.fail(name))
    assert content["connections"][0]["matrix"][0][0] == "nan"
    assert content["connections"][0]["non_finite"] == 1


def test_the_csv_has_a_row_per_prefix_and_reads_back(tmp_path):
    report = hc.inspect(small_stack(), torch.randn(5, 16))
    report.to_csv(tmp_path / "report.csv")
    with (tmp_path / "report.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["connection"] for row in rows] == [c.name for c in report]
    for row, c, prefix in zip(rows, report, report.depth, strict=True):
        assert float(row["forward_gain.largest"]) == c.quantities["forward_gain"].largest
        assert float(row["product.second_singular_value"]) == prefix.quantities["second_singular_value"].mean
        assert float(row["pre_2"]) == c.pre.mean[2]
        assert float(row["stream_similarity"]) == c.similarity.mean


# --- pictures -----------------------------------------------------------------------------------------


def png_size(content: bytes) -> tuple[int, int]:
    """Width and height of a PNG whose checksums are right."""
    assert content[:8] == b"\x89PNG\r\n\x1a\n"
    assert zlib.crc32(content[12:29]) == struct.unpack(">I", content[29:33])[0]
    return struct.unpack(">II", content[16:24])


def test_a_picture_is_what_its_suffix_says(tmp_path):
    pytest.importorskip("matplotlib", reason="pictures need hyperconn[plot]")
    report = hc.inspect(small_stack(layers=2), torch.randn(5, 16))
    for suffix in ("png", "svg", "pdf"):
        report.plot(tmp_path / f"report.{suffix}")
    width, height = png_size((tmp_path / "report.png").read_bytes())
    assert width > 1000 and height > 600
    assert "<svg" in (tmp_path / "report.svg").read_text()
    assert (tmp_path / "report.pdf").read_bytes().startswith(b"%PDF")
    with pytest.raises(ValueError, match=r"ends in \.png, \.svg, \.pdf"):
        report.plot(tmp_path / "report.gif")


def test_the_palette_is_centred_at_zero_and_negative_entries_stand_out():
    pytest.importorskip("matplotlib", reason="pictures need hyperconn[plot]")
    report = hc.inspect(static_model([torch.eye(4), PLANTED]))
    assert colour_limit([c.matrix for c in report]) == 1
    figure = heat_map_figure(["a", "b"], report.connections)
    image = figure.axes[1].images[0]
    zero, negative, positive = (image.cmap(image.norm(value)) for value in (0.0, -0.3, 1.0))
    assert min(zero[:3]) > 0.95  # white
    assert negative[0] > negative[2] + 0.1 and positive[2] > positive[0] + 0.1  # red, blue
    dots = [[line for line in axes.lines if line.get_marker() == "."] for axes in figure.axes[:2]]
    assert [len(found) for found in dots] == [0, 1]
    assert [round(value[0]) for value in dots[1][0].get_data()] == [1, 2]


def test_pictures_of_broken_and_of_single_stream_models(tmp_path):
    pytest.importorskip("matplotlib", reason="pictures need hyperconn[plot]")
    hc.inspect(static_model([PLANTED * math.nan, PLANTED * 0])).plot(tmp_path / "nan.png")
    hc.inspect(hc.HyperConnection(8, 1, torch.nn.Identity())).plot(tmp_path / "one.png")
    assert png_size((tmp_path / "nan.png").read_bytes()) > (500, 500)


def test_similarity_without_inputs_says_what_it_needs():
    figure = pytest.importorskip("matplotlib.figure", reason="pictures need hyperconn[plot]").Figure()
    axes = figure.subplots()
    draw_similarity(axes, hc.inspect(small_stack()))
    assert "needs inputs" in axes.texts[0].get_text()


def test_without_matplotlib_the_error_names_the_extra(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    report = hc.inspect(small_stack())
    for write in (report.plot, report.html):
        with pytest.raises(ImportError, match=r"pip install 'hyperconn\[plot\]'"):
            write(tmp_path / "report.png")


def test_importing_the_library_imports_no_extra():
    script = "import sys, hyperconn; print([m for m in ('matplotlib', 'rich', 'tensorboard', 'safetensors') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
