"""The verdict: its p-value by enumeration, every status, and how often the innocent are accused."""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace
from itertools import combinations
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest, hypergeom, rankdata

import invgnn.audit.verdict
from invgnn.audit.between import between
from invgnn.audit.decision import allowed_null, beyond_search, decide
from invgnn.audit.examine import Refusal, examine
from invgnn.audit.provenance import digest_model, trace
from invgnn.audit.verdict import BOTH_CONDITION, CONDITION, _channel_words, _level_words, ceil_p, floor_bits
from invgnn.audit.verify import _control, _refused, _shown, verify
from invgnn.errors import ParameterError, SuspectError
from invgnn.nn.forward import to_batch
from invgnn.nn.model_file import save_model
from invgnn.secret import Secret
from invgnn.stats import null
from invgnn.stats.evidence import STATISTICS
from invgnn.training.tasks import new_model
from invgnn.training.trainer import train
from invgnn.version import __version__
from invgnn.watermark.mark import Watermark


def looks(x, edge_index, batch, graph):
    inside = batch == graph
    first = int(inside.nonzero()[0])
    edges = edge_index[:, inside[edge_index[0]]] - first
    return x[inside].numpy().tobytes() + edges.numpy().tobytes()


def puppet(mark, wanted):
    """A suspect that answers as told on the carriers, and one half elsewhere."""
    known, batch = {}, to_batch(mark.carriers)
    for graph, value in enumerate(np.asarray(wanted, dtype=float).tolist()):
        known[looks(batch.x, batch.edge_index, batch.batch, graph)] = value
    sign = mark.direction("logits", 2)

    def suspect(batch):
        told = [looks(batch.x, batch.edge_index, batch.batch, g) for g in range(batch.num_graphs)]
        return torch.tensor([known.get(one, 0.5) for one in told])[:, None] * 3 * sign - 7

    return suspect


@pytest.fixture(scope="module")
def marks(draw):
    """One mark per size, read at logits."""
    return {m: draw(m=m, access="logits") for m in (8, 32, 128)}


# --- the p-value


def by_enumeration(r, bits, statistic):
    """Exact p over all balanced keys, from the definitions."""
    m = len(bits)
    said = r > np.sort(r)[m // 2 - 1]
    ranks = rankdata(r)
    keys = [np.isin(np.arange(m), ones) for ones in combinations(range(m), m // 2)]
    t = np.array([(said == key).sum() for key in keys])
    u = np.array([ranks[key].sum() for key in keys])
    own = bits.astype(bool)
    p_t = np.mean(t >= (said == own).sum())
    p_u = np.mean(u >= ranks[own].sum() - 1e-9)
    return {"matches": p_t, "rank": p_u, "combined": min(1.0, 2 * min(p_t, p_u))}[statistic]


@pytest.mark.parametrize("statistic", STATISTICS)
@pytest.mark.parametrize("values", [100, 3, 2], ids=["free", "three values", "two values"])
def test_p_equals_enumeration_of_all_keys(draw, values, statistic):
    mark = draw(m=8, access="logits", statistic=statistic)
    for seed in range(12):
        wanted = np.random.default_rng(seed).integers(values, size=8) - 1.3
        wanted = wanted + (2 * mark.bits if seed % 3 == 0 else 0)
        verdict = verify(puppet(mark, wanted), mark, 0.05)
        assert verdict.p == pytest.approx(by_enumeration(np.round(wanted, 6), mark.bits, statistic))
        assert verdict.matches == ((wanted > np.sort(wanted)[3]) == mark.bits).sum()
        assert verdict.exact
        assert verdict.log10_p == pytest.approx(math.log10(verdict.p))


# --- statuses


def told(mark, errors=0, seed=0):
    """The bits as signs, some pairs of them swapped."""
    wanted = 2.0 * mark.bits - 1
    for bit in (0, 1):
        wanted[np.flatnonzero(mark.bits == bit)[:errors]] *= -1
    return wanted + 0.01 * np.random.default_rng(seed).normal(size=mark.m)


@pytest.mark.parametrize(
    ("m", "errors", "options", "status", "reason"),
    [
        (128, 0, {}, "owned", "80 bits"),
        (128, 12, {}, "inconclusive", "publish a commitment"),
        (32, 0, {}, "inconclusive", "publish a commitment"),
        (32, 0, {"suspects": 100}, "inconclusive", "publish a commitment"),
        (32, 0, {"suspects": 1000}, "not shown", "by chance"),
        (32, 8, {}, "not shown", "by chance"),
        (128, 64, {}, "not shown", "by chance"),
        (8, 0, {"alpha": 0.1}, "inconclusive", "publish a commitment"),
        (8, 0, {}, "not shown", "by chance"),
        (128, 0, {"suspects": 2**60}, "inconclusive", "publish a commitment"),
    ],
)
def test_every_status(marks, m, errors, options, status, reason):
    verdict = verify(puppet(marks[m], told(marks[m], errors)), marks[m], **options)
    assert verdict.status == status
    assert reason in verdict.reasons[0]
    assert verdict.exit_code == {"owned": 0, "not shown": 1, "inconclusive": 3}[status]
    assert verdict.matches == m - 2 * errors
    assert verdict.wm_acc == verdict.matches / m
    assert verdict.ones == m // 2
    assert verdict.threshold == null.NULLS["exact"].threshold(m, options.get("alpha", 1e-6))
    assert str(verdict).startswith(status.upper())
    assert all(text in str(verdict) for text in (verdict.condition, *verdict.explanations))


def test_trying_is_paid_for(marks):
    suspect, bits = puppet(marks[32], told(marks[32])), []
    for tried in (1, 2, 1024):
        verdict = verify(suspect, marks[32], suspects=tried)
        assert verdict.tests == tried
        bits.append(verdict.evidence_bits)
    assert np.allclose(np.subtract(bits[0], bits), [0, 1, 10])
    with pytest.raises(ParameterError, match="suspects"):
        verify(suspect, marks[32], suspects=0)


@pytest.mark.parametrize("m", [8, 128])
def test_constant_answers_are_inconclusive(marks, m):
    verdict = verify(puppet(marks[m], np.ones(m)), marks[m], 0.99)
    assert (verdict.status, verdict.p) == ("inconclusive", 1.0)
    assert "same on every carrier" in verdict.reasons[0]


def test_a_control_that_verifies_spoils_the_verdict(marks):
    mark = marks[128]
    good, bad = puppet(mark, told(mark, 64)), puppet(mark, told(mark, 1))
    clean = verify(bad, mark, controls=[good, good])
    assert clean.status == "owned"
    assert [one["matches"] for one in clean.controls] == [0, 0]
    assert [one["evidence_bits"] for one in clean.controls] == [0, 0]
    assert "controls   2" in str(clean)
    spoilt = verify(bad, mark, controls=[good, bad])
    assert spoilt.status == "inconclusive"
    assert "1 of 2 unmarked controls" in spoilt.reasons[0]


@pytest.mark.parametrize(
    ("controls", "alpha", "p", "status"),
    [(0, 1e-6, 1.0, "inconclusive"), (3, 0.1, 0.25, "inconclusive"), (9, 0.2, 0.1, "inconclusive")],
)
def test_a_plain_mark_rests_on_models_and_never_owns(draw, controls, alpha, p, status):
    mark = draw(m=128, access="logits", key="plain")
    others = [puppet(mark, told(mark, 20 + number)) for number in range(controls)]
    verdict = verify(puppet(mark, told(mark)), mark, alpha, controls=others)
    assert (verdict.matches, verdict.status, verdict.null) == (128, status, "models")
    assert verdict.p == pytest.approx(p)
    assert not verdict.exact
    assert "no evidence of whose mark" in verdict.condition
    beaten = verify(puppet(mark, told(mark, 64)), mark, 0.3, controls=others)
    assert beaten.p == 1.0
    assert beaten.status == ("not shown" if controls else "inconclusive")


FEW, MATCHED = (
    "is compared with unmarked models; with {} of them no p-value is below {}",
    "unmarked models match as many",
)
ABOVE = "matches more bits than unmarked models do, but so would any model that perceives the invariant"


@pytest.mark.parametrize(
    ("errors", "controls", "alpha", "tried", "status", "reason"),
    [
        (0, [], 0.5, 1, "inconclusive", FEW.format(0, 1)),
        (0, [9, 9, 9], 0.24, 1, "inconclusive", FEW.format(3, 0.25)),
        (0, [9, 9, 9], 0.25, 1, "inconclusive", ABOVE),  # reached exactly, in powers of two
        (0, [9, 9, 9], 0.5, 2, "inconclusive", ABOVE),
        (0, [9, 9, 9], 0.5, 3, "inconclusive", FEW.format(3, 0.25)),
        (9, [9, 10, 10], 0.25, 1, "not shown", MATCHED),  # a tie is no more
        (9, [9, 10, 10], 0.5, 1, "inconclusive", ABOVE),
        (9, [9, 10, 10], 0.5, 2, "not shown", MATCHED),
        (8, [9, 10, 10], 0.25, 1, "inconclusive", ABOVE),
        (64, [9, 10, 10], 0.99, 1, "not shown", MATCHED),
    ],
)
def test_every_status_of_a_plain_mark(draw, errors, controls, alpha, tried, status, reason):
    mark = draw(m=128, access="logits", key="plain")
    others = [puppet(mark, told(mark, number)) for number in controls]
    verdict = verify(puppet(mark, told(mark, errors)), mark, alpha, suspects=tried, controls=others)
    assert (verdict.status, len(verdict.reasons)) == (status, 1)
    assert reason in verdict.reasons[0]
    assert verdict.tests == tried  # one level, and no labels to tell columns by: nothing else is paid for


def test_a_verdict_is_plain_json(marks, motifs):
    mark, model = marks[32], new_model(motifs, "GIN", 0, hidden_channels=8)
    verdict = verify(model, mark, controls=[model])
    text = json.dumps(verdict.to_json(), allow_nan=False)
    back = json.loads(text)
    assert "answers" not in back
    assert "bits" not in back
    assert back["version"] == __version__
    assert back["digests"] == {
        "mark": mark.digest,
        "reference": mark.context["reference"],
        "suspect": digest_model(model),
        "weights": trace(model).tensors,
    }
    assert back["reading"] == {"access": "logits", "feature": "projection"}
    assert back["queries"] == 32 + len(mark.ordinary)
    full = json.loads(json.dumps(verify(model, mark, with_answers=True).to_json(), allow_nan=False))
    assert full["bits"] == mark.bits.tolist()
    assert full["answers"] == mark.read(model).carriers.tolist()
    assert full["ordinary"] == mark.read(model).ordinary.tolist()
    bare = verify(puppet(mark, told(mark)), mark)
    assert bare.digests["suspect"] == "function"
    assert (bare.answers, bare.ordinary, bare.bits) == (None, None, None)


def test_private_values_are_shown_only_where_they_are_asked_for(marks):
    """A verdict may be printed or logged; the key and the raw answers stay out of it."""
    verdict = verify(lazy, marks[8], with_answers=True)
    assert all(f" {name}=" not in repr(verdict) for name in ("answers", "ordinary", "bits"))
    private = {"answers", "ordinary", "bits"}
    assert private & verdict.to_json().keys() == private
    assert private & verdict.to_json(private=False).keys() == set()


def test_a_file_is_a_suspect(marks, motifs, tmp_path):
    model = new_model(motifs, "GIN", 0, hidden_channels=8)
    save_model(tmp_path / "a.model", model)
    torch.save(model.state_dict(), tmp_path / "a.pt")
    expected = verify(model, marks[32]).to_json()
    assert verify(tmp_path / "a.model", marks[32]).to_json() == expected
    blank = new_model(motifs, "GIN", 1, hidden_channels=8)
    assert verify(str(tmp_path / "a.pt"), marks[32], architecture=blank).to_json() == expected


# --- the innocent


@pytest.fixture(scope="module")
def innocent(motifs, draw):
    """p-values of three unmarked models under 60 fresh secrets each, at three levels of access."""
    accesses = ("embedding", "logits", "labels")
    found = {access: [] for access in accesses}
    for seed, backbone in enumerate(("GIN", "GCN", "GraphSAGE")):
        model = new_model(motifs, backbone, seed, hidden_channels=16)
        train(model, motifs, epochs=4, seed=seed)
        for number in range(60):
            mark = draw(m=32, access=accesses, seed=1000 * seed + number)
            for access in accesses:
                found[access].append(mark.evidence(mark.read(model, access)).p)
    return found


def too_many(p_values, alpha):
    """p-value of the hypothesis that rejections at alpha happen at most at rate alpha."""
    hits = sum(p <= alpha for p in p_values)
    return binomtest(hits, len(p_values), alpha, alternative="greater").pvalue


@pytest.mark.parametrize("alpha", [0.1, 0.01])
@pytest.mark.parametrize("access", ["embedding", "logits", "labels"])
def test_the_innocent_are_rarely_accused(innocent, access, alpha):
    assert len(innocent[access]) == 180
    assert too_many(innocent[access], alpha) > 1e-3


def test_the_check_on_innocents_catches_cheating(draw, motifs):
    """Secrets picked after looking at the answers: the same test must cry out."""
    mark, model = draw(m=32), new_model(motifs, "GIN", 0, hidden_channels=16)
    said, picked = mark.read(model), []
    for trial in range(8):
        keys = (Secret(bytes([trial, number] * 16)) for number in range(200))
        picked.append(min(replace(mark, secret=key).evidence(said).p for key in keys))
    assert too_many(picked, 0.1) < 1e-6
    assert too_many(picked, 0.05) < 1e-6


# --- what a verdict may not hide


def test_a_forward_of_the_verifiers_is_named_and_must_be_trusted(marks, motifs):
    mark, model = marks[32], new_model(motifs, "GIN", 0, hidden_channels=8)
    usual = verify(model, mark)
    assert usual.called == "by its own signature"
    given = verify(model, mark, forward=lambda net, batch: net(batch.x, batch.edge_index, batch.batch))
    assert "given by the verifier" in given.called
    assert "must read that code" in given.condition
    assert given.p == usual.p
    served = verify(lambda batch: model.eval()(batch.x, batch.edge_index, batch.batch), mark)
    assert (served.called, served.digests["suspect"]) == ("as a function", "function")
    assert "knows no bits" in served.condition


def test_every_declared_level_is_paid_for_however_the_suspect_is_passed(draw, motifs):
    mark, model = draw(m=32, access=("logits", "embedding")), new_model(motifs, "GIN", 0, hidden_channels=8)
    ways = [
        verify(model, mark),
        verify(model, mark, access="logits"),
        verify(lambda batch: model.eval()(batch.x, batch.edge_index, batch.batch), mark),
    ]
    assert len({verdict.tests for verdict in ways}) == 1
    assert ways[0].tests in {2, 4}  # two levels, and as many again where columns were read in two ways
    assert verify(model, mark, suspects=7).tests == 7 * ways[0].tests
    assert ways[0].evidence_bits >= max(way.evidence_bits for way in ways)


@pytest.mark.parametrize(("bits", "shown"), [(79.97, "79.9"), (80.0, "80.0"), (0.04, "0.0")])
def test_evidence_is_rounded_down(bits, shown):
    assert floor_bits(bits) == shown


@given(st.floats(-2000, 0))
def test_p_is_rounded_up(log10_p):
    text = ceil_p(log10_p)
    value = float(text[3:]) if text.startswith("10^") else math.log10(float(text))
    assert log10_p <= value <= log10_p + 0.2


def test_controls_may_be_files_and_are_named_by_their_digest(marks, motifs, tmp_path):
    mark, model = marks[32], new_model(motifs, "GIN", 0, hidden_channels=8)
    save_model(tmp_path / "control.model", model)
    verdict = verify(model, mark, controls=[tmp_path / "control.model"])
    assert [one["digest"] for one in verdict.controls] == [digest_model(model)]


@pytest.mark.parametrize(
    ("m", "errors", "tried", "most"),
    [
        (32, 0, 1, "28.1"),
        (32, 1, 1, "28.1"),
        (32, 0, 4, "26.1"),
        (128, 0, 2**60, "63.1"),
        (128, 12, 1, None),
    ],
)
def test_a_small_m_says_that_it_cannot_own(marks, m, errors, tried, most):
    """log2 of C(m, m/2), less a bit for two statistics, less what trying costs."""
    verdict = verify(puppet(marks[m], told(marks[m], errors)), marks[m], suspects=tried)
    assert verdict.status == "inconclusive"
    found = re.findall(r"(\d+) carriers can give at most ([\d.]+) bits", verdict.reasons[0])
    assert found == ([(str(m), most)] if most else [])


# --- exactly at the line


def test_alpha_that_is_reached_exactly_is_reached(marks):
    mark, suspect = marks[8], puppet(marks[8], told(marks[8]))
    log_p = examine(mark, suspect).log_p
    alpha = math.exp(log_p)
    while math.log(alpha) >= log_p:
        alpha = math.nextafter(alpha, 0)
    above = math.nextafter(alpha, 1)
    assert math.log(above) == log_p
    assert verify(suspect, mark, alpha).status == "not shown"
    assert "publish a commitment" in verify(suspect, mark, above).reasons[0]
    # An unmarked model that reaches it as exactly spoils the verdict.
    assert "1 of 2 unmarked" in verify(suspect, mark, above, controls=[suspect, lazy]).reasons[0]
    assert verify(suspect, mark, alpha, controls=[suspect, lazy]).status == "not shown"


def lazy(batch):
    """A suspect that cares for nothing but the order of the questions."""
    return torch.arange(batch.num_graphs)[:, None] * torch.tensor([1.0, -1.0])


def test_enough_bits_are_enough_exactly(marks, monkeypatch):
    assert invgnn.audit.decision.GRINDING_BITS == 80
    suspect = puppet(marks[32], told(marks[32]))
    for tried in (1, 3):
        bits = verify(suspect, marks[32], suspects=tried).evidence_bits
        for needed, status in ((bits, "owned"), (math.nextafter(bits, 99), "inconclusive")):
            monkeypatch.setattr("invgnn.audit.decision.GRINDING_BITS", needed)
            assert verify(suspect, marks[32], suspects=tried).status == status


@pytest.mark.parametrize("alpha", [0.0, 1.0, -0.1, 1.1, math.nan])
def test_alpha_lies_between_0_and_1(marks, alpha):
    with pytest.raises(ParameterError, match="alpha is"):
        verify(lazy, marks[8], alpha)


def test_evidence_of_parts_and_controls_is_that_of_each_alone(marks):
    mark = marks[128]
    one, other = (puppet(mark, told(mark, errors)) for errors in (10, 24))
    alone = [verify(suspect, mark, 1e-30) for suspect in (one, other)]
    assert alone[0].evidence_bits > alone[1].evidence_bits + 20 > 24
    both = verify(one, mark, 1e-30, suspects=16, controls=[other])
    assert both.evidence_bits == pytest.approx(alone[0].evidence_bits - 4)
    assert both.channels["carriers"]["evidence_bits"] == pytest.approx(alone[0].evidence_bits)
    assert both.controls[0]["evidence_bits"] == pytest.approx(alone[1].evidence_bits)
    assert both.controls[0]["matches"] == 128 - 48


def test_a_plain_mark_gives_counts_and_no_evidence(draw):
    mark = draw(m=128, access="logits", key="plain")
    suspect = puppet(mark, told(mark))
    found = mark.evidence(mark.read(suspect))
    assert (found.matches, found.log_p, found.exact, found.bits()) == (128, 0.0, False, 0.0)
    verdict = verify(suspect, mark, 0.2, controls=[puppet(mark, told(mark, 30))] * 9)
    assert verdict.status == "inconclusive"
    assert "keyed" in verdict.reasons[0]
    assert all("evidence_bits" not in control for control in verdict.controls)
    assert "would need" not in str(verdict)
    assert "upper bound" not in str(verdict)


# --- numbers as they are shown


@pytest.mark.parametrize(
    ("bits", "shown"), [(0.0, "0.0"), (0.09, "0.0"), (0.1, "0.1"), (79.99, "79.9"), (math.inf, "∞")]
)
def test_bits_are_shown_rounded_downwards(bits, shown):
    assert floor_bits(bits) == shown


@pytest.mark.parametrize(
    ("log10_p", "shown"),
    [
        (0.0, "1"),
        (math.log10(0.5), "0.5"),
        (math.log10(0.12345), "0.124"),
        (math.log10(0.9991), "1"),
        (-1.0, "0.1"),
        (-3.99, "0.000103"),
        (-4.0, "0.0001"),
        (-4.01, "10^-4.0"),
        (-4.1, "10^-4.1"),
        (-6.19, "10^-6.1"),
        (-123.45, "10^-123.4"),
        (math.nextafter(-1.0, 0), "0.101"),  # a trifle above what three digits, or one, can say
        (math.nextafter(-5.0, 0), "10^-4.9"),
        (1e-9, "1"),
    ],
)
def test_p_values_are_shown_rounded_upwards(log10_p, shown):
    assert ceil_p(log10_p) == shown


@given(st.floats(-9, 0))
def test_no_p_value_is_shown_smaller_than_it_is_nor_much_larger(log10_p):
    text = ceil_p(log10_p)
    shown = float(text[3:]) if text.startswith("10^") else math.log10(float(text))
    assert log10_p - 1e-12 <= shown <= log10_p + (0.1 + 1e-9 if log10_p < -4 else 0.0044)


# --- the decision, from what was found


def finding(log_p=0.0, *, constant=False, score_shift=None, tests=1, refused=0.0, levels=(1,)):
    refusal = SimpleNamespace(log_p=refused, carriers=9, ordinary=1, asked_carriers=16, asked_ordinary=64)
    read = tuple(SimpleNamespace(evidence=one) for one in levels)
    return SimpleNamespace(
        log_p=log_p, constant=constant, score_shift=score_shift, tests=tests, refusal=refusal, levels=read
    )


def decided(
    found, *, m=128, key="keyed", statistic="combined", alpha=0.01, tried=1, controls=(), baseline=None
):
    mark = SimpleNamespace(context={"key": key, "statistic": statistic}, m=m, baseline=baseline)
    status, reasons = decide(found, mark, found.log_p, alpha, tried, list(controls), beyond_search())
    return status, " / ".join(reasons)


BITS = math.log(2)


@pytest.mark.parametrize(
    ("found", "options", "status", "reason"),
    [
        (finding(-81 * BITS), {}, "owned", "at least 80 bits"),
        (finding(-79.9 * BITS), {}, "inconclusive", "fewer than 80 bits a fitting secret could have been"),
        (finding(-81 * BITS), {"tried": 4}, "inconclusive", "fewer than 80 bits"),
        (finding(math.log(0.011)), {}, "not shown", "by chance"),
        (finding(math.log(0.009)), {}, "inconclusive", "chance is ruled out"),
        (finding(math.log(0.009)), {"tried": 2}, "not shown", "by chance"),
        (finding(math.log(0.011), refused=math.log(0.009)), {}, "inconclusive", "refused 9 of 16 carriers"),
        (finding(math.log(0.011), refused=math.log(0.02)), {}, "not shown", "by chance"),
        (finding(-81 * BITS, refused=-9.0), {}, "owned", "refused 9 of 16 carriers and 1 of 64 ordinary"),
        (finding(-40 * BITS, refused=-9.0), {}, "inconclusive", "refused 9 of 16 carriers"),
        (finding(math.log(0.01), refused=-9.0), {}, "inconclusive", "chance is ruled out"),
        (finding(constant=True), {}, "inconclusive", "the same on every carrier"),
        (finding(constant=True, refused=-9.0), {}, "inconclusive", "refused 9 of 16 carriers"),
        (finding(-81 * BITS, constant=True, score_shift=1), {}, "owned", "at least 80 bits"),
        (finding(-81 * BITS), {"controls": [finding(math.log(0.02))]}, "owned", "at least 80 bits"),
        (
            finding(-81 * BITS),
            {"controls": [finding(math.log(0.009)), finding()], "tried": 1},
            "inconclusive",
            "1 of 2 unmarked controls verify",
        ),
    ],
)
def test_what_is_decided(found, options, status, reason):
    assert decided(found, **options)[0] == status
    assert reason in decided(found, **options)[1]


@pytest.mark.parametrize(
    ("options", "most"),
    [
        ({"m": 64}, "59.6"),  # log2 C(64, 32) is 60.67; one bit for the two looks
        ({"m": 64, "statistic": "rank"}, "60.6"),
        ({"m": 64, "tried": 4}, "57.6"),
        ({"m": 84}, "79.4"),
        ({"m": 86}, None),
    ],
)
def test_a_mark_that_is_too_small_says_how_much_it_can_give(options, most):
    said = decided(finding(-40 * BITS), **options)[1]
    assert (f"carriers can give at most {most} bits" in said) if most else ("can give" not in said)
    assert "can give" not in decided(finding(-40 * BITS, score_shift=1), **options)[1]
    assert "with its baseline scores" in decided(finding(-40 * BITS), **options, baseline=1)[1]
    assert "with its baseline scores" not in said


def test_a_mark_that_can_give_just_enough_is_not_called_small(monkeypatch):
    most = math.log2(math.comb(64, 32)) - math.log2(2)
    for needed, small in ((most, False), (math.nextafter(most, 99), True)):
        monkeypatch.setattr("invgnn.audit.decision.GRINDING_BITS", needed)
        assert ("can give at most" in decided(finding(-40 * BITS), m=64)[1]) is small


def test_a_plain_mark_is_never_owned():
    ten = [finding()] * 100
    low = finding(-81 * BITS)
    assert "with 98 of them" in decided(low, key="plain", controls=ten[:98])[1]
    assert decided(low, key="plain", controls=ten[:98])[0] == "inconclusive"
    assert "more bits than unmarked" in decided(low, key="plain", controls=ten[:100])[1]
    assert decided(finding(math.log(0.02)), key="plain", controls=ten[:100])[0] == "not shown"
    assert "no p-value is below 0.02" in decided(finding(tests=2), key="plain", controls=ten[:99])[1]
    assert decided(finding(tests=2), key="plain")[1].endswith("no p-value is below 1")  # and none above
    blind = [finding(levels=(None,))] * 50  # that cannot be read where the suspect was
    assert "with 90 of them" in decided(low, key="plain", controls=[*ten[:90], *blind])[1]


@pytest.mark.parametrize(
    ("options", "most"),
    [({"tests": 2}, "58.6"), ({"tests": 8}, "56.6")],  # 59.6 bits, less one for every doubling
)
def test_every_test_lowers_what_a_small_mark_can_give(options, most):
    assert f"64 carriers can give at most {most} bits" in decided(finding(-40 * BITS, **options), m=64)[1]


def test_refusals_at_exactly_the_level_are_named():
    level = math.log(0.01)
    assert "refused 9 of 16" in decided(finding(0.0, refused=level))[1]
    assert decided(finding(0.0, refused=math.nextafter(level, 0)))[0] == "not shown"
    assert "(p = 0.01 if it treats both alike)" in decided(finding(0.0, refused=math.log(0.009999)))[1]
    assert "(p = 10^-8.6 if it" in decided(finding(0.0, refused=-20.0))[1]  # -20 / log 10 is -8.69


def test_a_suspect_can_be_one_of_so_many_and_no_more(marks):
    assert verify(lazy, marks[8], suspects=2**62).suspects == 2**62
    for suspects in (0, 2**62 + 1, 1.0, True):
        with pytest.raises(ParameterError, match=r"^suspects is"):
            verify(lazy, marks[8], suspects=suspects)
    with pytest.raises(ParameterError, match=r"^unknown code_from 'library'"):
        verify(lazy, marks[8], code_from="library")
    assert verify(lazy, marks[8], code_from="claimant").status != "owned"


# --- a plain mark, from the counts of its controls


def counted(*matches):
    """Levels at which so many bits match; None for a level that could not be read."""
    names = ("logits", "embedding", "labels")
    held = [None if n is None else SimpleNamespace(matches=n) for n in matches]
    return tuple(SimpleNamespace(access=a, evidence=e) for a, e in zip(names, held, strict=False))


def law_of(found, controls, alpha=0.3, tests=1):
    mark = SimpleNamespace(context={"key": "plain"}, m=16)
    others = [SimpleNamespace(levels=counted(*one)) for one in controls]
    return allowed_null(mark, SimpleNamespace(levels=counted(*found), tests=tests), others, alpha)


def test_a_plain_mark_shows_the_level_that_fewest_controls_reach():
    controls = [(8, 10), (9, 10), (10, 12), (12, 6)]
    name, log_p, threshold, level = law_of((10, 12), controls)  # two of four reach 10, one reaches 12
    assert (name, level.access) == ("models", "embedding")
    assert math.exp(log_p) == pytest.approx(2 / 5)
    assert threshold == 13  # reached by none: one in five
    assert law_of((10, 12), controls, alpha=0.41)[2] == 11
    assert math.exp(law_of((10, 12), controls, tests=2)[1]) == pytest.approx(4 / 5)
    assert law_of((13, 10), controls)[3].access == "logits"


def test_levels_that_cannot_be_read_count_for_neither_side():
    _, log_p, threshold, level = law_of((None, 12), [(16, 10), (16, None), (16, 11)])
    assert level.access == "embedding"
    assert math.exp(log_p) == pytest.approx(1 / 3)  # of two controls
    assert threshold == 17
    assert law_of((None, 12), [(16, 10), (16, None), (16, 11)], alpha=0.34)[2] == 12


# --- the code between


def pieces(count):
    """A module of library code with parts of as many foreign classes."""
    classes = [type(f"Piece{number}", (torch.nn.Module,), {}) for number in range(count)]
    return torch.nn.Sequential(*(one() for one in classes))


@pytest.mark.parametrize(
    ("count", "named", "more"), [(4, 4, ""), (5, 5, ""), (6, 5, "; and 1 more"), (9, 5, "; and 4 more")]
)
def test_five_pieces_of_code_are_named_and_the_others_counted(count, named, more):
    found = between(pieces(count), None, "auditor", False)
    assert len(found.record["foreign"]) == count
    listed = found.trust.removeprefix(" This code only computes the suspect's answers and knows no bits: ")
    listed = listed.removesuffix(". Anyone who relies on this verdict must read that code.")
    assert listed.endswith(more)
    assert len(listed.removesuffix(more).split("; ")) == named
    assert found.blocked == ""


def test_code_of_a_library_needs_no_trust_unless_the_claimant_brings_the_object(motifs):
    model = new_model(motifs, "GIN", 0, hidden_channels=8)
    for author, rebuilt in (("auditor", False), ("auditor", True), ("claimant", True)):
        found = between(model, None, author, rebuilt)
        assert (found.trust, found.blocked, found.called) == ("", "", "by its own signature")
        assert (found.digest, found.weights) == (digest_model(model), trace(model).tensors)
        assert found.record["foreign"] == []
    brought = between(model, None, "claimant", False)
    assert brought.trust == " The object that was queried comes from the claimant and hides no code."
    assert "build the model yourself" in brought.blocked
    assert "must read" not in brought.trust


def test_functions_are_code_whoever_wrote_them(motifs):
    model = new_model(motifs, "GIN", 0, hidden_channels=8)
    given = between(model, lazy, "auditor", False)
    assert [one["name"].endswith("lazy") for one in given.record["foreign"]] == [True]
    served = between(lazy, None, "auditor", False)
    assert (served.called, served.digest, served.weights) == ("as a function", "function", "function")
    assert [one["what"] for one in served.record["foreign"]] == ["function"]
    assert {name: value for name, value in served.record.items() if name != "foreign"} == {
        "libraries": [],
        "unsaved": [],
        "unknown": [],
    }
    assert between(lazy, lazy, "auditor", False) == served  # a forward calls modules only
    for author, rebuilt in (("claimant", False), ("claimant", True)):
        assert between(lazy, None, author, rebuilt).blocked


def test_what_changed_while_it_was_queried_is_not_trusted(motifs):
    before = between(new_model(motifs, "GIN", 0, hidden_channels=8), None, "auditor", False)
    assert before.checked(before) is before
    for change in ({"weights": "other"}, {"record": {}}):
        after = before.checked(replace(before, **change))
        assert "changed while it was queried" in after.blocked
        assert replace(after, blocked="") == before
    assert before.checked(replace(before, digest="other")) is before  # settings may change


def test_only_the_code_of_a_claimant_forbids_that_a_verdict_is_owned(marks, motifs, tmp_path):
    mark = marks[128]
    suspect = puppet(mark, told(mark))
    assert verify(suspect, mark).status == "owned"
    blocked = verify(suspect, mark, code_from="claimant")
    assert blocked.status == "inconclusive"
    assert "code or objects of the claimant" in blocked.reasons[0]
    assert "at least 80 bits" in blocked.reasons[1]
    unrelated = verify(puppet(mark, told(mark, 32)), mark, code_from="claimant")
    assert (unrelated.status, len(unrelated.reasons)) == ("not shown", 1)
    model = new_model(motifs, "GIN", 0, hidden_channels=8)
    save_model(tmp_path / "a.model", model)
    rebuilt = verify(tmp_path / "a.model", marks[32], code_from="claimant")
    assert "claimant" not in rebuilt.condition
    built = verify(tmp_path / "a.model", marks[32], code_from="claimant", architecture=model)
    assert "comes from the claimant" in built.condition
    called = verify(tmp_path / "a.model", marks[32], code_from="claimant", forward=by_hand)
    assert "by_hand" in called.condition
    own = verify(tmp_path / "a.model", replace(marks[32], forward=by_hand), code_from="claimant")
    assert "by_hand" in own.condition


def by_hand(net, batch):
    return net(batch.x, batch.edge_index, batch.batch)


# --- the parts of a verdict


def test_refused_inputs_are_shown_with_their_p_value():
    none, one = (SimpleNamespace(refusal=Refusal(*counts, 16, 64)) for counts in ((0, 0), (3, 3)))
    assert _refused(none) is None
    shown = _refused(one)
    assert {name: shown[name] for name in ("carriers", "ordinary", "asked_carriers", "asked_ordinary")} == {
        "carriers": 3,
        "ordinary": 3,
        "asked_carriers": 16,
        "asked_ordinary": 64,
    }
    assert shown["log10_p"] == pytest.approx(math.log10(hypergeom.sf(2, 80, 16, 6)), rel=1e-5)


def test_a_level_that_was_not_read_says_why():
    silent = SimpleNamespace(access="embedding", evidence=None, note="no hidden layer")
    assert _shown(silent, "exact") == {"access": "embedding", "read": False, "note": "no hidden layer"}
    level = SimpleNamespace(access="logits", evidence=SimpleNamespace(matches=9, bits=lambda: 3.5))
    expected = {"access": "logits", "read": True, "matches": 9}
    assert _shown(level, "models") == expected
    assert _shown(level, "exact") == {**expected, "evidence_bits": 3.5}


def test_a_control_is_shown_at_the_level_of_the_suspect(motifs):
    best = SimpleNamespace(matches=5)
    test = SimpleNamespace(levels=counted(9, 7, None), evidence=best, log_p=-3 * BITS)
    assert _control(lazy, test, "models", "embedding") == {
        "matches": 7,
        "digest": "function",
        "read_at": ["logits", "embedding"],
    }
    assert _control(lazy, test, "models", "labels")["matches"] == 5
    shown = _control(lazy, test, "exact", "logits")
    assert (shown["matches"], shown["evidence_bits"]) == (9, pytest.approx(3))
    model = new_model(motifs, "GIN", 0, hidden_channels=8)
    assert _control(model, test, "models", "logits")["digest"] == digest_model(model)


def test_only_a_watermark_is_a_mark(marks):
    with pytest.raises(ParameterError, match="not a dict"):
        verify(lazy, {"m": 8})
    with pytest.raises(ParameterError, match="not a Other"):
        verify(lazy, type("Other", (type(marks[8]),), {}).__new__(type("Other", (type(marks[8]),), {})))


def test_levels_and_channels_in_words():
    read = {"access": "logits", "read": True, "matches": 9}
    assert _level_words(read) == "logits 9 matches"
    assert _level_words({**read, "evidence_bits": 3.57}) == "logits 9 matches, 3.5 bits"
    assert _level_words({"access": "embedding", "read": False, "note": "why"}) == "embedding not read (why)"
    shift = {"evidence_bits": 20.06, "cosine": 0.25, "within": 0.5, "dimension": 16, "inputs": 200}
    words = "carriers 7.9 bits; score channel 20.0 bits (cosine 0.50 in 16 dimensions, 200 inputs)"
    assert _channel_words({"carriers": {"evidence_bits": 7.99}, "score_channel": shift}) == words


def test_a_bound_is_called_a_bound(marks, monkeypatch):
    """Where there are too many carriers for the exact law of the rank sum."""
    suspect = puppet(marks[32], told(marks[32], 4))
    exact = verify(suspect, marks[32])
    monkeypatch.setattr("invgnn.stats.rank_sum.EXACT_RANK_UP_TO", 8)
    bound = verify(suspect, marks[32])
    assert (exact.exact, bound.exact) == (True, False)
    assert "(upper bound)" in str(bound)
    assert "(upper bound)" not in str(exact)
    assert (bound.condition[: len(CONDITION)], bound.statistic) == (CONDITION, "combined")


def test_a_plain_mark_shows_the_counts_of_the_level_that_stands_out(draw):
    """At labels suspect and controls are alike; the scores differ."""
    mark = draw(m=32, access=("labels", "logits"), key="plain")

    def served(wanted):
        scores = puppet(mark, wanted)
        top = torch.tensor([9.0, 0.0])  # the same class for every graph
        return lambda batch: scores(batch) + 30 * top

    found = verify(served(told(mark)), mark, 0.3, controls=[served(told(mark, 8))] * 4)
    assert found.access == "logits"
    level = next(one for one in found.levels if one["access"] == "logits")
    assert found.matches == level["matches"] == 32
    assert found.levels[0]["matches"] != 32
    assert found.statistic == "matches"
    assert [one["matches"] for one in found.controls] == [16] * 4


class Told(torch.nn.Module):
    """A model that answers as a puppet does."""

    def __init__(self, suspect):
        super().__init__()
        self.weight, self.suspect = torch.nn.Parameter(torch.ones(1)), suspect

    def forward(self, data):
        return self.suspect(data) * self.weight


def test_a_model_called_through_a_forward_can_be_owned(marks):
    """The code that is found after the query is that which was found before."""
    mark = marks[128]
    suspect = Told(puppet(mark, told(mark)))
    assert verify(suspect, mark).status == "owned"
    for found in (
        verify(suspect, mark, forward=lambda model, batch: model(batch)),
        verify(suspect, replace(mark, forward=lambda model, batch: model(batch))),
    ):
        assert found.status == "owned"
        assert "given by the verifier" in found.called
    assert verify(torch.nn.DataParallel(suspect), mark).digests["suspect"] == digest_model(suspect)


def test_an_architecture_that_hides_code_is_refused(marks, motifs, tmp_path):
    model = new_model(motifs, "GIN", 0, hidden_channels=8)
    torch.save(model.state_dict(), tmp_path / "a.pt")
    model.head.register_forward_hook(lambda *_: None)
    with pytest.raises(SuspectError, match="hook head"):
        verify(tmp_path / "a.pt", marks[8], architecture=model)


def test_the_parts_of_a_verdict_on_both_channels(motifs):
    model = new_model(motifs, "GIN", 0, hidden_channels=8)
    mark = Watermark.draw(Secret(b"v" * 32), motifs.data, m=8, access="logits", score_channel=16)
    found = verify(model, mark.with_baseline(model, motifs.data), data=motifs.data)
    assert found.condition == BOTH_CONDITION
    assert found.statistic == "combined and score shift"
    shown = found.channels["score_channel"]
    assert (shown["dimension"], shown["inputs"]) == (16, len(motifs.data))
    assert shown["evidence_bits"] >= 0
    assert found.queries == 8 + len(mark.ordinary) + len(motifs.data)
    assert "channels   carriers" in str(found)
