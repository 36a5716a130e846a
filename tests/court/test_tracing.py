"""Tracing: the same evidence as one by one, exact multiplicity, and what collusion leaves."""

from __future__ import annotations

import copy
import csv
import io
import math
import time
from dataclasses import replace

import numpy as np
import pytest

from _helpers.court import draw
from invgnn.attacks.removal import Collude
from invgnn.audit.verify import verify
from invgnn.court.trace_page import as_csv, as_text, render_traces
from invgnn.court.tracing import Trace, fewest_bits, named, trace_suspect
from invgnn.errors import ParameterError, SuspectError
from invgnn.nn.forward import call
from invgnn.secret import Secret
from invgnn.training.tasks import new_model
from invgnn.training.trainer import train
from invgnn.watermark.mark import Watermark
from invgnn.watermark.reference import Reference


@pytest.fixture(scope="module")
def licensees(motifs, solid):
    """Ten marks; the model carries the one of licensee 7."""
    marks = {f"licensee {i}": draw(motifs, 100 + i, m=32) for i in range(10)}
    return {**marks, "licensee 7": solid.mark}


def test_the_leak_is_named_and_nobody_else(solid, house, licensees):
    rows = trace_suspect("leak", solid.model, licensees, suspects=2)
    rows += trace_suspect("other", house.other, licensees, suspects=2)
    assert named(rows) == {"leak": ["licensee 7"], "other": []}
    assert [row.mark for row in rows[: len(licensees)]] == list(licensees)


def test_one_pass_gives_what_single_readings_give(solid, licensees):
    rows = trace_suspect("leak", solid.model, licensees)
    for row in rows:
        alone = verify(solid.model, licensees[row.mark], suspects=len(licensees))
        assert row.log10_p == pytest.approx(alone.log10_p, rel=0.05, abs=0.05)  # batches round differently
        assert row.evidence_bits == pytest.approx(alone.evidence_bits, rel=0.05, abs=0.2)
        assert abs(row.matches - alone.matches) <= 2


def test_every_mark_and_suspect_is_paid_for(solid, licensees):
    one = trace_suspect("a", solid.model, {"x": solid.mark})[0]
    many = trace_suspect("a", solid.model, licensees, suspects=16)[7]
    assert one.evidence_bits - many.evidence_bits == pytest.approx(math.log2(16 * len(licensees)), abs=1.0)
    assert one.log10_p == pytest.approx(many.log10_p, rel=0.05)
    strict = trace_suspect("a", solid.model, licensees, suspects=2**62)[7]
    assert strict.named == (strict.evidence_bits >= -math.log2(1e-6))
    assert fewest_bits(1e-6, 1024) == pytest.approx(10 + math.log2(1e6))


def test_a_suspect_is_asked_about_all_marks_together(solid, licensees):
    sizes = []

    def counted(batch):
        sizes.append(int(batch.num_graphs))
        return call(solid.model, batch)

    rows = trace_suspect("api", counted, licensees)
    assert sum(sizes) == sum(mark.m + len(mark.ordinary) for mark in licensees.values())
    assert len(sizes) == math.ceil(sum(sizes) / 1024)
    assert rows[7].access == "logits"


def test_marks_of_different_layers_and_nodes_are_asked_apart(motifs, solid):
    marks = {"auto": solid.mark, "logits": draw(motifs, 1, m=16, access="logits")}
    marks["layer"] = draw(motifs, 2, m=16, layer="head")
    with pytest.raises(ParameterError, match="plain"):
        trace_suspect("a", solid.model, {**marks, "plain": draw(motifs, 3, m=16, key="plain")})
    rows = trace_suspect("a", solid.model, marks)
    assert named(rows) == {"a": ["auto"]}
    assert [row.mark for row in rows] == list(marks)


def test_a_node_task(web, draw_node):
    model = new_model(web, "GCN", 0, hidden_channels=8).eval()
    marks = {str(i): draw_node(i) for i in range(3)}
    for row in trace_suspect("a", model, marks):
        alone = verify(model, marks[row.mark], suspects=3)
        assert row.log10_p == pytest.approx(alone.log10_p, rel=0.05, abs=0.1)


@pytest.fixture
def draw_node(request):
    make = request.getfixturevalue("draw")
    return lambda seed: make("node", seed)


def test_what_cannot_be_traced(solid):
    with pytest.raises(ParameterError, match="no marks"):
        trace_suspect("a", solid.model, {})
    with pytest.raises(SuspectError):
        trace_suspect("a", lambda batch: 1 / 0, {"x": solid.mark})


@pytest.mark.slow
def test_averaged_copies_name_only_those_who_took_part(licensees, motifs):
    marks = {f"colluder {i}": draw(motifs, 50 + i) for i in range(2)}
    copies = [new_model(motifs, "GIN", 0, hidden_channels=16) for _ in marks]
    for one, mark in zip(copies, marks.values(), strict=True):
        train(one, motifs, mark, epochs=40)
    average = Collude(copies[1])(copy.deepcopy(copies[0]), motifs)
    found = named(trace_suspect("average", average, {**licensees, **marks}))["average"]
    assert set(found) <= set(marks)  # how often one, or both, are named is measured in the results


def rows_of(count, suspects=2):
    rng = np.random.default_rng(0)
    return [
        Trace(f"s{s}", f"m{i}", i == s, 90.0 if i == s else float(rng.random()), -30.0, 60, 64, "logits")
        for s in range(suspects)
        for i in range(count)
    ]


def test_pages_and_tables():
    rows = rows_of(50)
    text = as_text(rows, 1e-6)
    assert "s0: m0 (90.0 bits" in text
    assert "50 marks, 2 suspects" in text
    assert len(as_csv(rows).splitlines()) == 101
    page = render_traces(rows, 1e-6)
    assert "The 40 of 50 marks" in page
    assert "do not publish" in page
    hostile = [Trace("<script>", "=1+1", False, 0.0, 0.0, 0, 8, "", "x")]
    assert "<script>" not in render_traces(hostile, 1e-6)
    for start in ("=", "+", "-", "@", "\t=", "\r="):
        row = next(
            csv.DictReader(io.StringIO(as_csv([replace(hostile[0], mark=f"{start}1+1")]), newline=""))
        )
        assert row["mark"] == f"'{start}1+1"
    assert "none" in as_text(hostile, 1e-6)


@pytest.mark.slow
def test_a_thousand_licensees_against_one_model_in_seconds(motifs, solid):
    reference = Reference.of(motifs.data)
    marks = {str(i): Watermark.draw(Secret(i.to_bytes(32)), reference) for i in range(999)}
    marks["leaked"] = solid.mark
    start = time.process_time()
    rows = trace_suspect("a", solid.model, marks)
    spent = time.process_time() - start
    assert spent < 30
    assert named(rows) == {"a": ["leaked"]}
    start = time.process_time()
    for number in range(20):
        verify(solid.model, marks[str(number)])
    assert spent / 1000 < (time.process_time() - start) / 20 / 2  # a sixth was measured
