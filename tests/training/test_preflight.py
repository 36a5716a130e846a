"""The estimate of the cost of embedding a mark."""

from __future__ import annotations

import math

import pytest

from invgnn.training.preflight import pilot_epochs, pilot_total, preflight
from invgnn.training.tasks import new_model
from invgnn.training.trainer import train
from invgnn.watermark.recipe import Recipe
from invgnn.watermark.schedule import CarrierSchedule


@pytest.mark.parametrize("level", ["graph", "node"])
def test_a_pilot_leaves_the_model_alone_and_counts_its_epochs(motifs, web, draw, level, unchanged):
    task = {"graph": motifs, "node": web}[level]
    model, told = new_model(task, "GCN", 0, hidden_channels=8), []
    mark = draw(level)
    with unchanged(model):
        found = preflight(
            model, task, mark, epochs=20, progress=lambda done, total: told.append((done, total))
        )
    total = {"graph": 4, "node": 11}[level]  # two without; two with, or two and then seven for the mark
    assert told == [(done, total) for done in range(1, total + 1)]
    assert total == pilot_total(model, task, mark, 20)
    assert pilot_total(model, task, mark, 20, trained=True) == {"graph": 4, "node": 9}[level]
    assert found.most == pytest.approx(math.log2(math.comb(16, 8)) - 1)  # two statistics were declared
    assert set(found.bits) == {"embedding", "logits"}
    assert all(0 <= bits <= found.most for bits in found.bits.values())
    assert f"{found.ratio:.2f} times" in str(found)
    assert f"at most {({'graph': 20, 'node': 90})[level]} epochs" in str(found)
    assert "evidence after 10% of it" in str(found)
    assert str(found.plan) in str(found)
    assert found.record()["plan"]["m"] == 16
    known = preflight(model, task, mark, epochs=20, trained=True)
    assert (known.pilot, known.epochs) == {"graph": (0.1, 20), "node": (0.1, 70)}[level]


@pytest.mark.parametrize("level", ["graph", "node"])
def test_a_pilot_costs_a_tenth_of_what_the_training_costs(motifs, web, draw, monkeypatch, level):
    """Its carriers are counted, with those of a whole training."""
    task, used, at = {"graph": motifs, "node": web}[level], [], CarrierSchedule.at

    def counted(self, recipe, step, steps):
        portion = at(self, recipe, step, steps)
        if steps is not None:
            used.append(len(portion.carriers))
        return portion

    monkeypatch.setattr(CarrierSchedule, "at", counted)
    mark = draw(level, recipe=Recipe(presentations=20, after_task=30, carriers=4, warmup_steps=0))
    preflight(new_model(task, "GCN", 0, hidden_channels=8), task, mark, epochs=40)
    pilot = sum(used)
    used.clear()
    train(new_model(task, "GCN", 0, hidden_channels=8), task, mark, epochs=40)
    assert sum(used) == pytest.approx(10 * pilot, rel=0.35)  # whole presentations of 16 carriers
    assert pilot >= 2 * 16 or level == "node"


def test_longer_pilots_learn_more(motifs, draw):
    """The evidence is read from a model trained with the mark and is not a constant."""
    mark, model = draw(m=16), new_model(motifs, "GIN", 0)
    short, long = (preflight(model, motifs, mark, epochs=n).bits["embedding"] for n in (10, 80))
    assert long > short
    assert long > 6


def test_pilot_is_a_tenth():
    assert [pilot_epochs(n) for n in (1, 4, 20, 100, 104)] == [1, 1, 2, 10, 10]


@pytest.mark.parametrize(("presentations", "few"), [(4, False), (400, True)])
def test_a_short_training_is_told_that_it_has_few_steps(motifs, draw, presentations, few):
    mark = draw(recipe=Recipe(presentations=presentations, warmup_steps=0))
    found = preflight(new_model(motifs, "GIN", 0, hidden_channels=8), motifs, mark, epochs=10)
    assert found.plan.scarce == few
    assert ("fewer than half of 400" in str(found)) == few
