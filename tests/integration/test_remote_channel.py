"""A mark with a score channel, read over HTTP: all at once, step by step, and from the transcript."""

from __future__ import annotations

import pytest

import invgnn
from invgnn.nn.backbones import GIN
from invgnn.serve.app import make_app
from invgnn.serve.run import serving
from invgnn.serve.settings import Returned


def test_the_score_channel_over_http(draw, motifs, tmp_path):
    model = GIN(motifs.graphs[0].x.shape[1], 8, 2, 2).eval()
    drawn = invgnn.Watermark.draw(
        invgnn.Secret(bytes(32)), motifs.data, m=16, access="logits", classes=2, score_channel=16
    )
    mark = drawn.with_baseline(GIN(motifs.graphs[0].x.shape[1], 8, 2, 2).eval(), motifs.data)
    here = invgnn.verify(model, mark, data=motifs.data)
    with serving(make_app(model, returned=Returned("scores"))) as base:
        url, path = f"{base}/v2/models/model", tmp_path / "a.jsonl"
        there = invgnn.verify(invgnn.Endpoint(url), mark, data=motifs.data)
        endpoint = invgnn.Endpoint(url, journal=path)
        few = invgnn.verify(endpoint, mark, data=motifs.data, sequential="betting")
    assert there.log10_p == pytest.approx(here.log10_p, abs=1e-6)
    assert there.channels["score_channel"]["inputs"] == len(motifs.data)
    assert few.channels["score_channel"]["inputs"] == len(motifs.data)  # the carriers were not enough
    again = invgnn.verify(invgnn.Transcript.load(path), mark, data=motifs.data, sequential="betting")
    assert again.log10_p == few.log10_p
