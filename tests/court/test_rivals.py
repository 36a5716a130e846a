"""Rival claims: what a party can search for, destroy or leave out gains it nothing."""

from __future__ import annotations

import copy
import math
from dataclasses import replace
from datetime import timedelta
from types import SimpleNamespace

import pytest
import torch

from _helpers.court import ROOT, dated, draw
from _helpers.tokens import NOW
from invgnn.court import rivals
from invgnn.court.claim import Claim
from invgnn.court.exhibits import Exhibits
from invgnn.court.rivals import Party, Rival, made_from, settle
from invgnn.court.standing import Standing
from invgnn.court.timestamp import Stamp
from invgnn.court.tracing import trace_suspect
from invgnn.secret import Secret
from invgnn.training.tasks import new_model
from invgnn.training.trainer import train
from invgnn.watermark.mark import Watermark
from invgnn.watermark.reference import Reference

HOUR = timedelta(hours=1)
EARLY, LATE = Stamp(NOW - 2 * HOUR, 1, "a"), Stamp(NOW - HOUR, 2, "a")


# --- a search -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def searched(motifs, solid, people, opened):
    """A thief's claim on a stolen model: a secret that fits it a little, and an own original."""
    reference = Reference.of(motifs.data)
    tried = {str(i): Watermark.draw(Secret(bytes([i, 99] * 16)), reference, m=64) for i in range(100)}
    best = min(trace_suspect("stolen", solid.model, tried), key=lambda row: row.log10_p)
    mark, own = tried[best.mark], new_model(motifs, "GIN", 8, hidden_channels=16)
    train(own, motifs, mark, epochs=30)
    claim = dated(Claim.make(mark, own, people.thief, motifs.data, alpha=0.1), people.thief, NOW - HOUR)
    return Rival(claim, opened(claim, mark, people.thief), own)


def test_a_secret_that_was_searched_for_in_an_original_does_not_make_it_a_descendant(
    decide, solid, house, people, opened, searched
):
    """Both marks are read in both originals. A thief can search for a secret in the owner's."""
    owner = dated(solid.claim, people.owner, NOW - 2 * HOUR)
    opening = opened(owner, solid.mark)
    how = {"roots": [ROOT.cert], "suspect_since": NOW, "alpha": 0.1, "claims": 1, "controls": [house.other]}
    thief = {"claim": searched.claim, "opening": searched.opened, "original": searched.original}
    assert decide(solid.model, **thief, **how).status == "owned"  # here a hundred tries are enough
    lost = decide(solid.model, **thief, **how, rivals=[Rival(owner, opening, solid.model)])
    assert (lost.status, lost.codes[0]) == ("inconclusive", "not settled"), str(lost)
    owners = {"claim": owner, "opening": opening, "original": solid.model}
    kept = decide(solid.model, **owners, **how, rivals=[searched])
    assert kept.codes[0] == "not settled"  # a mark that is significant keeps anybody from being believed


# --- what decides, number by number ---------------------------------------------------------------


def side(bits, stamp=None, token=None, shared=0.0):
    """A party whose mark has this evidence in (its own, the other's) original."""
    claim = SimpleNamespace(transformed=False, payload={}, rule={})
    opened = SimpleNamespace(secret=None, baseline=None)
    held = Standing(
        claim, opened, 1e-6, (), stamp, token, (), "owned", ("evidence", ""), shared=shared, mark=object()
    )
    held.__dict__["verdict"] = {"evidence_bits": 100.0}
    model = torch.nn.Linear(8, 8)
    exhibits = Exhibits(model, None, claims=1, requests=2**9)
    return Party(held, model, exhibits), bits


def outcome(monkeypatch, ours, theirs, weights=(False, False)):
    """How two parties are settled, seen from both."""
    (first, mine), (second, other) = ours, theirs
    found = {(first, first): mine[0], (first, second): mine[1]}
    found |= {(second, second): other[0], (second, first): other[1]}
    monkeypatch.setattr(rivals, "_bits", lambda one, another: found[one, another])
    shown = {id(first.original): weights[0], id(second.original): weights[1]}
    monkeypatch.setattr(rivals, "made_from", lambda suspect, original: shown[id(original)])
    return settle(first, second).outcome, settle(second, first).outcome


FAVOURED, LOST, OPEN = "descends from this claim", "is the ancestor", "not settled"


@pytest.mark.parametrize(
    ("ours", "theirs", "found"),
    [
        (side((99, 80)), side((99, 19)), (FAVOURED, LOST)),
        (side((99, 79)), side((99, 0)), (OPEN, OPEN)),  # 2^79 tries
        (side((99, 80)), side((99, 20)), (OPEN, OPEN)),  # the other mark is significant, too
        (side((99, 30), token=EARLY), side((99, 0)), (FAVOURED, LOST)),  # 2 x 2^9 requests
        (side((99, 29), token=EARLY), side((99, 0)), (OPEN, OPEN)),
        (side((99, 20), EARLY), side((99, 0), LATE), (FAVOURED, LOST)),  # older than the other original
        (side((99, 20), LATE), side((99, 0), EARLY), (OPEN, OPEN)),
        (side((99, 20), EARLY), side((99, 0)), (OPEN, OPEN)),  # an original without a date may be older
        (side((99, 20), EARLY, shared=None), side((99, 0), LATE), (OPEN, OPEN)),  # no control was read
        (side((99, 49), EARLY, shared=30.0), side((99, 0), LATE), (OPEN, OPEN)),
        (side((99, 50), EARLY, shared=30.0), side((99, 0), LATE), (FAVOURED, LOST)),
        (
            side((19, 80), EARLY),
            side((99, 0), LATE),
            (OPEN, "does not stand"),
        ),  # it lacks its own
    ],
)
def test_a_mark_in_an_original_counts_on_a_ground(monkeypatch, ours, theirs, found):
    assert outcome(monkeypatch, ours, theirs) == found


def test_the_age_of_a_claim_that_settled_a_rival_is_said(monkeypatch):
    for bits, by_date in ((20, True), (80, False)):
        ours, theirs = side((99, bits), EARLY), side((99, 0), LATE)
        outcome(monkeypatch, ours, theirs)
        assert settle(ours[0], theirs[0]).by_date is by_date
        assert "claim older" in settle(ours[0], theirs[0]).says


@pytest.mark.parametrize(
    ("stamps", "bits", "weights", "found"),
    [
        ((EARLY, LATE), (0, 0), (True, False), ("embedded later", LOST)),
        ((LATE, EARLY), (0, 0), (True, False), (OPEN, OPEN)),  # made from the suspect, as far as one knows
        ((None, None), (0, 0), (True, False), (OPEN, OPEN)),
        ((EARLY, None), (0, 0), (True, False), ("embedded later", LOST)),
        ((EARLY, LATE), (0, 30), (True, False), (OPEN, OPEN)),  # the rival's mark is in this original
        ((EARLY, LATE), (30, 30), (True, True), ("embedded later", LOST)),
        ((EARLY, LATE), (0, 0), (False, True), (OPEN, OPEN)),
        ((EARLY, LATE), (0, 0), (False, False), (OPEN, OPEN)),
    ],
)
def test_weights_decide_for_the_older_claim_only(monkeypatch, stamps, bits, weights, found):
    ours, theirs = (side((99, b), stamp, shared=None) for stamp, b in zip(stamps, bits, strict=True))
    assert outcome(monkeypatch, ours, theirs, weights) == found


def test_a_wreck_of_the_suspect_has_its_weights(solid, motifs):
    """Weights do not tell which model was made from which: the larger half destroys every mark."""
    wreck = copy.deepcopy(solid.model)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for weight in wreck.parameters():
            if weight.dim() > 1:
                large = weight.abs() > weight.abs().flatten().quantile(0.55)
                weight[large] = torch.randn(weight.shape, generator=generator)[large]
    assert made_from(solid.model, wreck)
    assert made_from(wreck, solid.model)
    assert solid.mark.evidence(solid.mark.read(wreck)).log_p > math.log(1e-6)
    assert solid.mark.evidence(solid.mark.read(solid.model)).log_p < -80 * math.log(2)


# --- what a judge lacks ---------------------------------------------------------------------------


def test_a_rival_on_other_data_is_heard_with_these_data(decide, solid, house, motifs, people, opened):
    """Whoever names other data would otherwise make the owner's claim fail."""
    mark, part = draw(motifs, 21, m=64), motifs.data[:-1]
    other = draw(replace(motifs, train=motifs.train[:-1]), 22, m=64)
    assert other.context["reference"] != mark.context["reference"]
    claim = Claim.make(other, solid.model, people.thief, part)
    rival = Rival(claim, opened(claim, other, people.thief), solid.model)
    how = {"claim": solid.claim, "opening": opened(solid.claim, solid.mark), "original": solid.model}
    blind = decide(solid.model, **how, rivals=[rival])
    assert (blind.status, blind.codes[0]) == ("inconclusive", "not settled"), str(blind)
    assert "cannot be examined" in blind.payload["rivals"][0]["says"]
    seen = decide(solid.model, **how, rivals=[replace(rival, data=part)])
    assert (seen.status, seen.codes[1]) == ("owned", "does not stand"), str(seen)
    assert "by chance" in seen.payload["rivals"][0]["says"]
    aimed = replace(rival, opened=replace(rival.opened, case="another"))  # what the rival is to blame for
    assert decide(solid.model, **how, rivals=[aimed]).codes[1] == "does not stand"
