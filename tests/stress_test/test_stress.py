"""Stress tests: rows agree with separate readings, a run can be resumed, and the page is complete."""

from __future__ import annotations

import copy
import csv
import math
import re
import stat
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from invgnn.attacks.denial import Serve
from invgnn.attacks.edits import Chain, Edit, FineTune, Prune, Quantise, ReestimateNorm, WeightNoise
from invgnn.attacks.edits import suite as edits
from invgnn.attacks.registry import suite as attacks
from invgnn.attacks.removal import Collude, UnscaleWeights, ZeroHead
from invgnn.audit.verify import verify
from invgnn.cli.stress import _table
from invgnn.errors import DataError, ExistingFileError, FileError, ParameterError
from invgnn.secret import Secret
from invgnn.stats import laws, null
from invgnn.stress_test import write_stress
from invgnn.stress_test.page import outcomes, render
from invgnn.stress_test.rows import Found, Row
from invgnn.stress_test.run import RELEASED, every_change, is_quick, stress
from invgnn.stress_test.table import StressTable
from invgnn.theory.margins import signed_margins, squash
from invgnn.training.batching import accuracy
from invgnn.training.tasks import new_model
from invgnn.training.trainer import train
from invgnn.watermark.mark import Watermark

CHANGES = [Prune(0.5), Quantise(4), ReestimateNorm(), ZeroHead(), Serve(digits=2), ZeroHead("perception")]


@pytest.fixture(scope="module")
def mark(draw):
    return draw("node", m=16, access=("embedding", "logits"))


@pytest.fixture(scope="module")
def model(web, mark):
    net = new_model(web, "GCN", 0, hidden_channels=16)
    train(net, web, mark, epochs=60)
    return net


@pytest.fixture(scope="module")
def rows(model, mark, web):
    return list(stress(model, mark, web, CHANGES))


# --- rows -----------------------------------------------------------------------------------------


def test_rows_agree_with_reading_by_hand(rows, model, mark, web, unchanged):
    with unchanged(model):
        list(stress(model, mark, web, [Prune(0.5)]))
    pruned = Prune(0.5)(model, web)
    row = rows[1]
    assert (row.change, row.kind, row.knows) == ("prune 50%", "edit", "the weights, task data")
    assert row.accuracy == accuracy(pruned, web, web.test)
    for access in ("embedding", "logits"):
        before, after = (mark.read(net, access) for net in (model, pruned))
        found, evidence = row.at(access), mark.evidence(after)
        said = after.carriers > np.median(after.carriers)
        assert found.matches == int((said == mark.bits.astype(bool)).sum())
        assert found.evidence == pytest.approx(-evidence.log_p / math.log(2))
        assert found.headroom == found.matches - null.EXACT.threshold(16, 1e-6)
        assert found.wm_acc == found.matches / 16
        assert found.gamma == np.abs(squash(after) - squash(before)).max()
        assert found.margin == signed_margins(squash(after), mark.bits).min()
        assert 0 <= found.certain <= found.matches


def test_the_first_row_is_the_model_as_released(rows, model, mark, web):
    first = rows[0]
    assert (first.change, first.kind) == (RELEASED, "released")
    assert first.accuracy == accuracy(model, web, web.test)
    assert first.at("embedding").matches >= 14
    assert all(found.gamma == 0 and found.certain == found.matches for found in first.found)
    assert first.at("labels") is None


def test_what_does_not_apply_says_why(rows):
    refused = {row.change: row.note for row in rows if row.accuracy is None}
    assert {*refused} == {"re-estimate norms", "zero perception head"}
    assert "no batch norm" in refused["re-estimate norms"]
    assert not any(row.found for row in rows if row.accuracy is None)


def test_an_endpoint_is_read_at_its_scores_alone(rows):
    served = next(row for row in rows if row.change.startswith("serve"))
    assert [found.access for found in served.found] == ["logits"]
    assert served.note.startswith("embedding: ")
    assert served.knows == "the weights"


def test_a_wiped_head_hides_nothing_from_the_embedding(rows):
    wiped = next(row for row in rows if row.change == "zero last layer")
    assert wiped.at("embedding") == rows[0].at("embedding")
    assert wiped.at("logits").evidence < 1


class Spoil(Edit):
    """An edit whose model returns NaN, which causes an error message of two lines."""

    def apply(self, model, task):
        with torch.no_grad():
            next(model.parameters()).fill_(torch.nan)
        return model

    def __repr__(self):
        return "spoil"


def test_a_spoilt_model_is_a_row_too(model, mark, web):
    row = list(stress(model, mark, web, [Spoil()]))[1]
    assert row.accuracy is not None
    assert not row.found
    assert "no finite answer" in row.note


def test_rows_that_are_done_are_skipped_and_tasks_checked(model, mark, web, motifs):
    assert list(stress(model, mark, web, CHANGES, skip=[RELEASED, *map(repr, CHANGES)])) == []
    with pytest.raises(DataError, match="another task"):
        next(stress(model, mark, motifs, CHANGES))
    with pytest.raises(ParameterError, match="own_task"):
        next(stress(model, mark, web.graphs, CHANGES))
    with pytest.raises(ParameterError):
        next(stress(model, mark, web, CHANGES, alpha=2))


def test_everything_there_is_and_what_is_quick():
    second = nn.Linear(1, 1)
    names = [repr(change) for change in every_change(second)]
    assert names == [repr(change) for change in (*edits(), *attacks(second))]
    assert names[-1] == repr(Collude(second))
    assert all(map(is_quick, CHANGES))
    assert not any(map(is_quick, (FineTune(1), Chain(Prune(0.4), FineTune(1)), UnscaleWeights(1))))
    assert is_quick(Chain(Prune(0.4), WeightNoise()))


# --- a score channel -----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def shifted(web):
    """Return a model marked in both channels, its mark, and the rows of a stress test."""
    model = new_model(web, "GCN", 0, hidden_channels=16)
    train(model, web, epochs=20)
    access = ("embedding", "logits", "labels")
    mark = Watermark.draw(
        Secret(b"s" * 32), web.data, m=16, access=access, classes=web.num_classes, score_channel=16
    ).with_baseline(model, web.data)
    train(model, web, mark, epochs=20)
    return model, mark, list(stress(model, mark, web, [Prune(0.5), Serve(digits=2)]))


def test_both_channels_count_as_in_a_verdict(shifted, web):
    model, mark, rows = shifted
    for row, net in zip(rows, (model, Prune(0.5)(model, web)), strict=False):
        for access in ("embedding", "logits", "labels"):
            verdict = verify(net, mark, access=access, data=web.data)
            # A verdict pays for all three readings declared, before the channels count together.
            ways = verdict.tests // 3
            level = mark.evidence(mark.read(net, access)) if ways == 1 else None
            assert row.at(access).score_channel == pytest.approx(
                max(0, verdict.channels["score_channel"]["evidence_bits"] - math.log2(ways))
            )
            if level is not None:
                shift = -verdict.channels["score_channel"]["evidence_bits"] * math.log(2)
                paid = laws.log_p_channels([min(0, level.log_p + math.log(3)), shift])
                assert verdict.evidence_bits == pytest.approx(-paid / math.log(2))
                alone = laws.log_p_channels([level.log_p, shift])
                assert row.at(access).evidence == pytest.approx(-alone / math.log(2))
    assert rows[0].at("logits").evidence != mark.evidence(mark.read(model, "logits")).bits()
    assert (
        rows[2].at("logits").score_channel is not None
    )  # an endpoint is asked about the task's inputs as well


def test_rows_with_a_score_channel_come_back_and_are_shown(shifted, web, tmp_path):
    model, mark, rows = shifted
    ledger = StressTable(tmp_path / "rows.csv", model, mark, web)
    for row in rows:
        ledger.add(row)
    assert ledger.read() == rows
    assert "score channel" in render(rows)
    assert "score channel bits" in _table(rows)
    assert "score channel" not in render(STORY)


def test_a_channel_without_baseline_scores_is_refused(shifted, web):
    model, mark, _ = shifted
    with pytest.raises(ParameterError, match="no baseline scores"):
        next(stress(model, replace(mark, baseline=None), web, []))


# --- rows on disk ---------------------------------------------------------------------------------


@pytest.fixture
def ledger(tmp_path, model, mark, web):
    return StressTable(tmp_path / "rows.csv", model, mark, web)


def test_rows_come_back_as_they_went(ledger, rows):
    assert ledger.read() == []
    for row in rows:
        ledger.add(row)
    assert ledger.read() == rows
    with ledger.path.open(newline="") as file:
        lines = list(csv.DictReader(file))
    assert [line["change"] for line in lines] == [row.change for row in rows]
    assert float(lines[1]["embedding.evidence"]) == rows[1].at("embedding").evidence


def test_a_line_that_was_cut_off_is_done_again(ledger, rows):
    for row in rows[:3]:
        ledger.add(row)
    whole = ledger.path.read_text()
    ledger.path.write_text(whole[:-9])
    assert ledger.read() == rows[:2]
    ledger.add(rows[2])
    assert ledger.path.read_text() == whole


def test_a_table_goes_on_wherever_it_was_cut(ledger, rows):
    for row in rows[:2]:
        ledger.add(row)
    whole = ledger.path.read_bytes()
    header, first = (whole.index(b"\n", start) + 1 for start in (0, whole.index(b"\n") + 1))
    for cut, left in (
        (0, 0),
        (5, 0),
        (header, 0),
        (header + 4, 0),
        (first - 1, 0),
        (first, 1),
        (first + 4, 1),
    ):
        for tail in (b"", b"\0un,x\n"):  # the second was being written
            ledger.path.write_bytes(whole[:cut] + tail)
            assert ledger.read() == rows[:left], (cut, tail)
            for row in rows[left:2]:
                ledger.add(row)
            assert ledger.path.read_bytes() == whole


def test_rows_of_another_test_are_refused(ledger, rows, model, mark, web, draw, tmp_path):
    ledger.add(rows[0])
    before = ledger.path.read_bytes()
    other = copy.deepcopy(model)
    with torch.no_grad():
        next(other.parameters()).add_(1)
    for strange in (
        StressTable(ledger.path, other, mark, web),
        StressTable(ledger.path, model, draw("node", seed=9), web),
        StressTable(ledger.path, model, mark, replace(web, name="net")),
    ):
        with pytest.raises(FileError, match="another stress test"):
            strange.read()
    assert ledger.path.read_bytes() == before
    (tmp_path / "notes.csv").write_text("a,b\n1,2\n")
    with pytest.raises(FileError, match="another stress test"):
        StressTable(tmp_path / "notes.csv", model, mark, web).read()


# --- the page -------------------------------------------------------------------------------------


def made(change, kind, right, bits, note=""):
    found = Found("logits", 100, 128, 92, bits, 0.25, -0.1, 7)
    return Row(change, kind, "the weights", right, 1.0, () if bits is None else (found,), note)


STORY = [
    made(RELEASED, "released", 0.80, 100.0),
    made("held", "edit", 0.79, 20.0),
    made("dear", "edit", 0.50, 1.0),
    made("<cheap> & wrong", "attack", 0.785, 19.9),
    made("unreadable", "attack", 0.80, None, note="logits: nothing"),
    made("impossible", "attack", None, None, note="no norms here"),
]


def test_what_the_rows_show():
    (found,) = outcomes(STORY, alpha=2**-20.0)
    assert found.access == "logits"
    assert found.shown == ["held"]
    assert found.lost == ["dear", "<cheap> & wrong"]
    assert found.cheap == ["<cheap> & wrong"]
    assert found.unread == ["unreadable"]
    assert "1 of 3 changes" in str(found)
    assert str(found).endswith("by: <cheap> & wrong")
    with pytest.raises(ParameterError, match=RELEASED):
        outcomes(STORY[1:])


def visible(page):
    return " ".join(re.sub("<[^>]*>", " ", page.partition("</style>")[2]).split())


def test_the_page_is_whole_harmless_and_says_it_all():
    page = render(STORY, alpha=2**-20.0, title="T <b>", command="invgnn stress --mark a")
    text = visible(page)
    assert RELEASED in text
    for told in ("held", "dear", "&lt;cheap&gt; &amp; wrong", "no norms here", "not applied", "19.9",
                 "100 / 128", "+8", "−0.10", "do not publish", "T &lt;b&gt;", "--mark"):  # fmt: skip
        assert told in text
    assert "<cheap>" not in page
    assert not re.search(r"<script|https?://(?!www\.w3\.org)|url\((?!#)|src=", page)
    assert "5 changes were made" in text
    assert page.count("<svg") == 1
    assert page == render(STORY, alpha=2**-20.0, title="T <b>", command="invgnn stress --mark a")


def test_the_drawing_places_every_row_that_can_be_read(rows):
    page = render(rows)
    labels = re.findall(r'aria-label="Accuracy and evidence left: (.*?)\."', page)
    assert len(labels) == 2
    assert [label.count(" bits") for label in labels] == [4, 5]  # the endpoint shows no embedding
    drawn = re.search(r"<svg.*?</svg>", page, flags=re.DOTALL)[0]
    assert {"1", "2", "4"} <= {*re.findall(r"<text[^>]*>\s*(\d+)\s*</text>", drawn)}


def test_a_plain_key_has_no_evidence_to_show():
    assert "no exact law" in render(STORY, key="plain")
    assert "no exact law" not in render(STORY)


def test_the_page_is_private_and_not_overwritten(tmp_path):
    path = write_stress(tmp_path / "page.html", STORY)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    with pytest.raises(ExistingFileError):
        write_stress(path, STORY)
    write_stress(path, STORY, overwrite=True)
