"""The estimate of the cost of embedding a mark."""

from __future__ import annotations

import math

import pytest

from invgnn.training.preflight import pilot_epochs, pilot_total, preflight
from invgnn.training.tasks import new_model


@pytest.mark.parametrize("level", ["graph", "node"])
def test_a_pilot_leaves_the_model_alone_and_counts_its_epochs(motifs, web, draw, level, unchanged):
    task = {"graph": motifs, "node": web}[level]
    model, told = new_model(task, "GCN", 0, hidden_channels=8), []
    mark = draw(level)
    with unchanged(model):
        found = preflight(
            model, task, mark, epochs=20, progress=lambda done, total: told.append((done, total))
        )
    total = {"graph": 4, "node": 8}[level]  # two without; two with, or two and then four for the mark
    assert told == [(done, total) for done in range(1, total + 1)]
    assert total == pilot_total(task, mark, 20)
    assert pilot_total(task, mark, 20, trained=True) == 4
    assert found.most == pytest.approx(math.log2(math.comb(16, 8)) - 1)  # two statistics were declared
    assert set(found.bits) == {"embedding", "logits"}
    assert all(0 <= bits <= found.most for bits in found.bits.values())
    assert f"{found.ratio:.1f} times" in str(found)
    rounds = {"graph": 1, "node": 3}[level]
    assert f"for {20 * rounds} epochs" in str(found)
    assert f"evidence after {2 * rounds} epochs" in str(found)
    known = preflight(model, task, mark, epochs=20, trained=True)
    assert (known.pilot, known.epochs) == (2, 20)


def test_longer_pilots_learn_more(motifs, draw):
    """The evidence is read from a model trained with the mark and is not a constant."""
    mark, model = draw(m=16), new_model(motifs, "GIN", 0)
    short, long = (preflight(model, motifs, mark, epochs=n).bits["embedding"] for n in (10, 80))
    assert long > short
    assert long > 6


def test_pilot_is_a_tenth():
    assert [pilot_epochs(n) for n in (1, 4, 20, 100, 104)] == [1, 1, 2, 10, 10]
