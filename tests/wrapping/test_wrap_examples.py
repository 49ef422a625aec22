"""The examples run, and what they print is what they promise."""

from __future__ import annotations

import importlib
import re

import pytest
from tiny_models import define_missing_operators

define_missing_operators()
PACKAGES = {"wrap_torch": "torch", "wrap_huggingface": "transformers", "wrap_timm": "timm"}


@pytest.mark.parametrize("example", PACKAGES)
def test_example(example, capsys):
    pytest.importorskip(
        PACKAGES[example], reason=f"NOT TESTED: {example} needs {PACKAGES[example]} and what it imports"
    )
    importlib.import_module(example).main()
    printed = capsys.readouterr().out
    assert float(re.search(r"largest change by wrapping: (\S+)", printed)[1]) <= 1e-5
    losses = [float(loss) for loss in re.findall(r"loss (\S+)", printed)]
    assert losses[-1] < losses[0]
    assert "spectral-sphere" in printed
    assert "False" not in printed.replace("hc.is_wrapped(encoder)=False", "")
