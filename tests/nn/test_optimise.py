"""The learning rate rises, stays and falls as it says, and the optimiser follows it."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from invgnn.nn.optimise import WEIGHT_DECAY, LearningRate, optimise

EPOCHS, WARMUP = st.integers(1, 400), st.integers(0, 100)


def rates(rate):
    return [rate.at(epoch) for epoch in range(rate.epochs)]


@given(EPOCHS, st.floats(1e-4, 1))
def test_without_warm_up_and_decay_the_rate_is_constant(epochs, lr):
    assert rates(LearningRate(lr, epochs)) == [lr] * epochs


@given(EPOCHS)
def test_a_decaying_rate_is_constant_for_half_the_epochs_and_then_falls_to_nearly_zero(epochs):
    found = rates(LearningRate(1.0, epochs, decay=True))
    half = epochs // 2
    assert found[:half] == [1.0] * half
    falling = found[half:]
    np.testing.assert_allclose(np.diff(falling[1:]), -2 / epochs, atol=1e-12)  # a straight line
    assert found[-1] == pytest.approx(1 / epochs)
    assert all(0 < rate <= 1 for rate in found)


@given(EPOCHS, WARMUP)
def test_a_rate_with_warm_up_rises_in_equal_steps(epochs, warmup):
    found = rates(LearningRate(1.0, epochs, warmup=warmup))
    rising = found[:warmup]
    np.testing.assert_allclose(rising, [(i + 1) / (warmup + 1) for i in range(len(rising))])
    assert found[warmup:] == [1.0] * max(0, epochs - warmup)


@given(EPOCHS, WARMUP)
def test_with_both_the_lower_counts(epochs, warmup):
    both = rates(LearningRate(0.3, epochs, decay=True, warmup=warmup))
    ups, downs = (
        rates(LearningRate(0.3, epochs, **{name: value}))
        for name, value in (("warmup", warmup), ("decay", True))
    )
    assert both == [min(up, down) for up, down in zip(ups, downs, strict=True)]


@given(EPOCHS, st.data())
def test_finishing_lets_the_rate_fall_from_then_on(epochs, data):
    """From its highest value, in so many epochs, and never longer than planned."""
    last, further = data.draw(st.integers(0, epochs - 1)), data.draw(st.integers(1, epochs))
    rate = LearningRate(1.0, epochs, decay=True)
    before = rates(rate)
    rate.finish_after(last, further)
    after = rates(rate)
    if last >= epochs / 2:  # it was falling already
        assert after == before
        return
    assert rate.epochs == min(epochs, last + 1 + further)
    assert after[: last + 1] == before[: last + 1]
    falling, left = after[last + 1 :], rate.epochs - last - 1
    np.testing.assert_allclose(falling, [(left - 0.5 - i) / left for i in range(left)])
    for later in range(last + 1, rate.epochs):  # asked again, it does not change
        rate.finish_after(later, 1)
        assert rates(rate) == after


def run(rate, after_epoch=None, batches=3, weight_decay=0.0):
    """Return the rate of every epoch and the numbers of all steps, and the weight after each step."""
    seen, steps, weights = [], [], []
    model = nn.Linear(1, 1, bias=False)
    nn.init.zeros_(model.weight)
    adam = torch.optim.Adam
    made = []

    class Watched(adam):
        def __init__(self, *parts, **options):
            super().__init__(*parts, **options)
            made.append(options)

        def step(self, *parts):
            seen.append(self.param_groups[0]["lr"])
            super().step(*parts)

    def loss(batch, step):
        steps.append((batch, step))
        weights.append(float(model.weight.detach()))
        return -model.weight.sum()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("torch.optim.Adam", Watched)
        optimise(
            model, lambda: range(batches), loss, rate, weight_decay=weight_decay, after_epoch=after_epoch
        )
    return seen, steps, [*weights, float(model.weight.detach())], made


@pytest.mark.parametrize("options", [{}, {"decay": True}, {"warmup": 3}, {"decay": True, "warmup": 2}])
def test_the_optimiser_follows_the_rate(options):
    """A constant gradient moves Adam by exactly its learning rate in every step."""
    rate = LearningRate(0.1, 8, **options)
    seen, steps, weights, made = run(rate)
    wanted = [rate.at(epoch) for epoch in range(8) for _ in range(3)]
    assert seen == wanted
    np.testing.assert_allclose(np.diff(weights), wanted, rtol=1e-4)
    assert steps == [(number % 3, number) for number in range(24)]
    assert made == [{"lr": 0.1, "weight_decay": 0.0}]


def test_a_run_that_is_told_to_finish_ends_early():
    rate, ends = LearningRate(0.1, 50, decay=True), []

    def after(epoch):
        ends.append(epoch)
        if epoch == 5:
            rate.finish_after(epoch, 6)

    seen, _, _, _ = run(rate, after, batches=1)
    assert ends == list(range(12))
    assert seen[:6] == [0.1] * 6
    np.testing.assert_allclose(seen[6:], [0.1 * (11.5 - epoch) / 6 for epoch in range(6, 12)])


def test_weights_decay_unless_told_otherwise(monkeypatch):
    made = []
    adam = torch.optim.Adam
    monkeypatch.setattr("torch.optim.Adam", lambda *a, **o: made.append(o) or adam(*a, **o))
    optimise(nn.Linear(1, 1), lambda: [], lambda batch, step: torch.zeros(()), LearningRate(0.1, 1))
    assert made == [{"lr": 0.1, "weight_decay": WEIGHT_DECAY}]


def test_it_is_known_which_rates_fall():
    rate = LearningRate(1.0, 10, decay=True, warmup=2)
    assert [rate.falls(epoch) for epoch in range(10)] == [False] * 5 + [True] * 5
    rate.finish_after(2, 3)
    assert [rate.falls(epoch) for epoch in range(rate.epochs)] == [False] * 3 + [True] * 3
    assert not LearningRate(1.0, 10).falls(9)
