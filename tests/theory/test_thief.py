"""The attack with the key: its report is correct, and no other parameter changes."""

from __future__ import annotations

import copy
import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from invgnn.errors import ParameterError
from invgnn.stats import null
from invgnn.theory.thief import _fewest, flat, gradient, rob, steal, strength, typical
from invgnn.training.batching import accuracy
from invgnn.training.tasks import new_model
from invgnn.training.trainer import train
from invgnn.watermark.recipe import Recipe

ALPHA = 1e-2


@pytest.fixture(scope="module", params=["graph", "node"])
def victim(request, motifs, web, draw):
    """Return a small model trained briefly on its task and then on its mark alone."""
    task, mark = {"graph": motifs, "node": web}[request.param], draw(request.param)
    model = new_model(task, "GCN", 0, hidden_channels=16)
    train(model, task, epochs=3 if request.param == "graph" else 30)
    optimiser = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(100):
        optimiser.zero_grad()
        mark.loss(model).backward()
        optimiser.step()
    model.zero_grad()
    return model, mark, task


def test_the_thief_reports_what_is_left(victim, unchanged):
    model, mark, task = victim
    with unchanged(model):
        found = steal(model, mark, task, alpha=ALPHA, steps=30)
    assert found.found
    assert found.threshold == null.EXACT.threshold(16, ALPHA)
    assert (found.matches[0], found.bits[0]) == strength(model, mark)
    assert found.matches[0] >= found.threshold > found.matches[1]
    assert found.bits[1] < found.bits[0]
    assert found.acc[0] == accuracy(model, task, task.test)
    assert 1 <= found.changed <= found.parameters == sum(p.numel() for p in model.parameters())
    assert found.share == found.changed / found.parameters
    assert f"{found.changed} of {found.parameters} parameters" in str(found)
    assert not found.checked  # an upper bound: nobody knows that fewer would not do
    seldom = mark.replace(
        recipe=Recipe(carriers=4, presentations=5)
    )  # the recipe does not matter to the attack
    assert steal(model, seldom, task, alpha=ALPHA, steps=30) == found


def away_from(mark, chosen):
    return lambda net: -gradient(net, mark.loss(net))[chosen]


def test_only_the_chosen_move_and_no_further_than_allowed(victim):
    model, mark, _ = victim
    allowed, chosen = 0.5 * typical(model), torch.tensor([3, 1, 40])
    done, robbed = rob(model, away_from(mark, chosen), lambda net: False, chosen, allowed, 30)
    moved = (flat(robbed.parameters()) - flat(model.parameters())).abs()
    assert not done
    assert set(moved.nonzero().view(-1).tolist()) <= set(chosen.tolist())
    assert moved.sum() > 0
    assert (moved <= allowed * (1 + 1e-4) + 1e-7).all()
    assert mark.loss(robbed).item() > mark.loss(model).item()


def test_he_stops_as_soon_as_he_is_safe(victim):
    model, mark, _ = victim
    asked = []

    def safe(net):
        asked.append(strength(net, mark))
        return len(asked) == 3

    everything = torch.arange(sum(p.numel() for p in model.parameters()))
    done, _ = rob(model, away_from(mark, everything), safe, everything, typical(model), 30)
    assert (done, len(asked)) == (True, 3)


def test_without_reach_nothing_is_stolen(victim):
    model, mark, task = victim
    found = steal(model, mark, task, alpha=ALPHA, reach=1e-6, steps=1)
    assert not found.found
    assert found.changed == found.parameters
    assert found.matches[1] >= found.threshold
    assert "do not suffice" in str(found)


def test_evidence_is_the_harder_goal(victim):
    model, mark, task = victim
    found = steal(model, mark, task, goal="evidence", alpha=ALPHA, steps=30)
    assert found.bits[1] < -math.log2(ALPHA) if found.found else found.changed == found.parameters


def test_the_gradient_is_that_of_finite_differences(draw, motifs):
    mark, model = draw(), new_model(motifs, "GCN", 0, hidden_channels=4).double().eval()
    found, start = gradient(model, mark.loss(model)), flat(model.parameters())
    for i in np.linspace(0, len(start) - 1, 5).astype(int).tolist():
        ends = []
        for step in (1e-5, -1e-5):
            twin, there = copy.deepcopy(model), start.clone()
            there[i] += step
            torch.nn.utils.vector_to_parameters(there, twin.parameters())
            ends.append(mark.loss(twin).item())
        assert float(found[i]) == pytest.approx((ends[0] - ends[1]) / 2e-5, rel=1e-3, abs=1e-7)


@given(st.integers(1, 200), st.integers(1, 220))
def test_bisection_finds_the_first_success_of_a_monotone_search(most, enough):
    tried = []

    def attempt(k):
        tried.append(k)
        return k >= enough, k

    k, done, kept = _fewest(attempt, most)
    assert (k, done) == ((enough, True) if enough <= most else (most, False))
    assert kept == k
    assert len(tried) <= 2 * math.log2(most) + 3


def test_senseless_requests(victim):
    model, mark, task = victim
    for options in ({"goal": "fame"}, {"reach": 0.0}, {"steps": 0}):
        with pytest.raises(ParameterError):
            steal(model, mark, task, **options)


def test_where_nothing_shows_nothing_needs_to_change(motifs, draw):
    """At a level that no evidence reaches, no parameter has to change."""
    model = new_model(motifs, "GCN", 0, hidden_channels=16)
    found = steal(model, draw("graph"), motifs, goal="evidence", alpha=1e-30, steps=1)
    assert (found.found, found.changed) == (True, 0)
    assert found.matches[0] == found.matches[1]
