"""The page of a report: whole on its own, and rendered by a real browser where there is one."""

from __future__ import annotations

import base64
import math
import re
import shutil
import subprocess
import xml.etree.ElementTree as ElementTree
from html.parser import HTMLParser

import pytest
import torch
from planted import small_stack, static_model
from torch import nn

import hyperconn as hc

pytest.importorskip("matplotlib", reason="the page has pictures: hyperconn[plot]")
BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
SWITCHES = [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
]  # fmt: skip
VOID = {"meta", "link", "img", "br"}


class Page(HTMLParser):
    """Collects sources and text, and checks that tags are closed in order."""

    def __init__(self, text: str):
        super().__init__()
        self.open, self.sources, self.words = [], [], []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attributes):
        self.sources += [value for name, value in attributes if name in ("src", "href", "srcset", "data", "action")]
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.words.append(data)


@pytest.fixture(scope="module")
def report():
    torch.manual_seed(0)
    return hc.inspect(small_stack(layers=5), torch.randn(3, 16))


@pytest.fixture(scope="module")
def written(report, tmp_path_factory):
    path = tmp_path_factory.mktemp("page") / "report.html"
    report.html(path)
    return path


def test_the_page_is_well_formed_self_contained_and_shows_every_layer(report, written):
    text = written.read_text()
    page = Page(text)
    assert page.sources and all(source.startswith("data:") for source in page.sources)
    assert "<script" not in text and "@import" not in text and "url(" not in text
    words = " ".join(page.words)
    for c in report:
        assert words.count(c.name) >= 2  # in both tables
    assert f"{len(report.negative_entries())} of 80 entries are negative" in words


def test_its_pictures_are_svg_that_load_nothing(written):
    pictures = re.findall(r'src="data:image/svg\+xml;base64,([^"]+)"', written.read_text())
    assert len(pictures) == 3
    for picture in pictures:
        root = ElementTree.fromstring(base64.b64decode(picture))
        links = [value for element in root.iter() for name, value in element.attrib.items() if name.endswith("href")]
        assert all(link.startswith(("#", "data:")) for link in links)


def test_names_are_escaped(tmp_path):
    model = nn.ModuleDict({"<b>&": static_model([torch.eye(2)])[0]})
    hc.inspect(model).html(tmp_path / "page.html")
    text = (tmp_path / "page.html").read_text()
    assert "&lt;b&gt;&amp;" in text and "<b>&" not in text
    Page(text)


def test_a_broken_model_says_so_on_its_page(tmp_path):
    hc.inspect(static_model([torch.full((4, 4), math.nan)])).html(tmp_path / "page.html")
    text = (tmp_path / "page.html").read_text()
    assert "non-finite values" in text and '<td class="bad">nan</td>' in text


def browse(page, folder, *switches: str) -> subprocess.CompletedProcess:
    command = [BROWSER, *SWITCHES, f"--user-data-dir={folder / 'profile'}", *switches, page.as_uri()]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)


@pytest.mark.skipif(BROWSER is None, reason="NOT RENDERED: no chromium on this machine (apt-get install chromium)")
def test_a_browser_renders_every_layer_without_console_errors(report, written, tmp_path):
    done = browse(written, tmp_path, "--enable-logging=stderr", "--dump-dom")
    assert "CONSOLE" not in done.stderr
    dom = " ".join(Page(done.stdout).words)
    assert all(c.name in dom for c in report)
    picture = tmp_path / "page.png"
    browse(written, tmp_path, "--window-size=1200,2400", f"--screenshot={picture}")
    assert picture.stat().st_size > 50_000  # an empty page of this size takes 10 kB


@pytest.mark.skipif(BROWSER is None, reason="NOT RENDERED: no chromium on this machine (apt-get install chromium)")
def test_the_check_for_console_errors_would_see_one(tmp_path):
    page = tmp_path / "broken.html"
    page.write_text("<!DOCTYPE html><title>x</title><script>console.error('broken')</script>")
    assert "CONSOLE" in browse(page, tmp_path, "--enable-logging=stderr", "--dump-dom").stderr
