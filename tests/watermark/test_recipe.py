"""The losses of a mark and how they stand beside a task's."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from torch.nn.functional import cross_entropy

from invgnn.errors import ParameterError
from invgnn.nn.gradient_projection import RareProjection, projected_sum
from invgnn.training.batching import Collated
from invgnn.training.tasks import new_model
from invgnn.watermark.losses import NAT_SHARE, in_nats
from invgnn.watermark.recipe import Recipe

VECTORS = arrays(np.float64, 4, elements=st.floats(-10, 10))


@given(VECTORS, VECTORS, st.floats(0.1, 5), st.none() | st.floats(0.1, 3))
def test_the_mark_never_works_against_the_task(task, mark, outer, cap):
    """Two linear losses have the vectors themselves as gradients: the rule is seen bare."""
    at = [torch.randn(2, dtype=torch.float64, requires_grad=True) for _ in range(2)]
    whole = torch.cat(at)
    a, b = torch.from_numpy(task), torch.from_numpy(mark)
    (outer * projected_sum(a @ whole, b @ whole, at, cap)).backward()
    got = torch.cat([p.grad for p in at]) / outer
    added = got - a  # what the mark contributes
    size = float(a @ a)
    if size < 1e-12:
        return
    assert float(added @ a) >= -1e-9 * max(1.0, size)
    expected = b if float(a @ b) >= 0 else b - (a @ b) / size * a
    if cap is not None and float(expected.norm()) > 0:
        assert float(added.norm()) <= cap * size**0.5 * (1 + 1e-6) + 1e-6
        expected = expected * min(1.0, cap * size**0.5 / float(expected.norm()))
    torch.testing.assert_close(added, expected, atol=1e-6, rtol=1e-6)


def test_guarded_value_is_the_sum_and_unused_parameters_stay_still():
    used, unused = (torch.ones(3, requires_grad=True) for _ in range(2))
    frozen = torch.ones(3)
    loss = projected_sum(used.sum(), 2 * used.square().sum(), [used, unused, frozen])
    assert float(loss.detach()) == 9
    loss.backward()
    assert used.grad.tolist() == [5, 5, 5]
    assert unused.grad is None  # an optimiser must leave it alone, as it does without a guard


def test_sparse_gradients_are_guarded_too():
    table = torch.nn.Embedding(5, 3, sparse=True)
    rows = table(torch.tensor([1, 3]))
    projected_sum(rows.sum(), -2 * rows.sum(), table.parameters()).backward()
    assert table.weight.grad.to_dense()[1].tolist() == [1, 1, 1]  # the mark's part is all opposition


@pytest.mark.parametrize("way", ["joint", "own pass"])
def test_guard_in_ones_own_loop(motifs, draw, way):
    """Against gradients taken one loss at a time and put together in numpy."""
    mark, batch = draw(), Collated(motifs.graphs).batch(torch.arange(20))
    model = new_model(motifs, "GIN", 0, hidden_channels=8).eval()

    def gradient(which):
        model.zero_grad()
        joint = mark.mix(batch)
        scores = joint(model) if way == "joint" else model(batch.x, batch.edge_index, batch.batch)
        task_loss = cross_entropy(scores, batch.y)
        if which == "task":
            task_loss.backward()
        elif which == "mark":
            (joint.loss() if way == "joint" else mark.loss(model)).backward()
        else:
            (
                joint.joint_loss(task_loss) if way == "joint" else mark.joint_loss(model, task_loss)
            ).backward()
        grads = [torch.zeros_like(p) if p.grad is None else p.grad for p in model.parameters()]
        return torch.cat([g.view(-1).double() for g in grads]).numpy()

    task, own, both = (gradient(which) for which in ("task", "mark", "both"))
    added = own - min(0, own @ task) / (task @ task) * task
    np.testing.assert_allclose(both, task + added, rtol=1e-4, atol=1e-6 * np.abs(own).max())


def test_a_task_without_gradient_is_refused(motifs, draw):
    mark, model = draw(), new_model(motifs, "GIN", 0, hidden_channels=8).eval()
    with pytest.raises(ParameterError, match="no gradient"):
        mark.joint_loss(model, torch.zeros(()))


def test_half_precision_gradients_are_guarded_too():
    at = torch.zeros(2, dtype=torch.float16, requires_grad=True)
    task, mark = (torch.tensor(g, dtype=torch.float16) for g in ([1e-4, 0], [-1e-4, 1e-4]))
    projected_sum((at * task).sum(), (at * mark).sum(), [at]).backward()
    assert at.grad.tolist() == pytest.approx([1e-4, 1e-4], rel=1e-2)


def test_nothing_to_train_is_no_error():
    loss = torch.ones((), requires_grad=True)
    assert float(projected_sum(loss * 2, loss * 3, []).detach()) == 5


@given(VECTORS, VECTORS)
def test_scores_are_measured_in_nats_from_the_usual(said, usual):
    got = in_nats(torch.from_numpy(said), torch.from_numpy(usual)).numpy()
    np.testing.assert_allclose(got * NAT_SHARE, said - usual.mean(), atol=1e-12)


def test_unlearning_the_task_gains_the_mark_nothing():
    """Shrinking the spread of ordinary scores leaves the mark's answers where they are."""
    said = torch.tensor([-0.2, 0.3])
    wide, narrow = (scale * torch.tensor([-1.0, 0.0, 1.0], requires_grad=True) for scale in (5, 0.1))
    assert in_nats(said, wide).tolist() == pytest.approx(in_nats(said, narrow).tolist())


def test_a_wait_that_was_a_share_is_recalled_as_the_default():
    """Marks saved when `wait` was a share of the epochs must still open."""
    assert Recipe.recall({**Recipe(beta=2.0).record(), "wait": 0.2}) == Recipe(beta=2.0)
    assert Recipe.recall(Recipe(warmup_steps=3).record()) == Recipe(warmup_steps=3)


@pytest.mark.parametrize("after", [True, False])
def test_settings_of_the_former_pace_are_recalled_as_the_defaults(after):
    """Marks saved with `ratio`, `every`, and `after_task` as a choice must still open."""
    old = {**Recipe(beta=2.0, gradient_projection=True).record(), "ratio": 0.16, "every": 4}
    for name in ("presentations", "carriers", "after_task"):
        del old[name]
    for name in ("after", "after_task"):  # two names that it had
        found = Recipe.recall({**old, name: after})
        assert found == Recipe(beta=2.0, gradient_projection=True)
        assert (found.presentations, found.carriers, found.after_task) == (None, None, 70)


def test_the_number_of_steps_after_the_task_is_recalled():
    for after in (0, 1, 7):
        assert Recipe.recall(Recipe(after_task=after).record()).after_task == after


def test_unknown_settings_are_refused():
    with pytest.raises(ParameterError, match="unknown settings: pace, tempo") as caught:
        Recipe.recall({**Recipe().record(), "tempo": 1, "pace": 2})
    assert caught.value.advice


# --- projection that is measured rarely


def two_losses(weight):
    """Return two losses whose gradients conflict."""
    return weight.square().sum(), (weight - 3).square().sum() + weight[0]


def test_between_measurements_the_task_weighs_as_much_as_in_the_last():
    """The weight is that of an exact projection, computed by hand."""
    weight = torch.tensor([1.0, 2.0], dtype=torch.float64, requires_grad=True)
    task, mark = (torch.autograd.grad(loss, weight)[0] for loss in two_losses(weight))
    factor = 1 - float(task @ mark) / float(task @ task)
    assert factor > 1  # they conflict
    projection = RareProjection(3)
    found = []
    for _ in range(6):
        loss = projection.sum(*two_losses(weight), [weight])
        found.append(torch.autograd.grad(loss, weight)[0])
    for gradient in found:
        torch.testing.assert_close(gradient, factor * task + mark)


def test_every_measurement_replaces_the_weight():
    weight = torch.tensor([1.0, 2.0], dtype=torch.float64, requires_grad=True)
    projection = RareProjection(2)
    projection.sum(*two_losses(weight), [weight])
    moved = torch.tensor([5.0, 4.0], dtype=torch.float64, requires_grad=True)
    old = torch.autograd.grad(projection.sum(*two_losses(moved), [moved]), moved)[0]  # no conflict here
    new = torch.autograd.grad(projection.sum(*two_losses(moved), [moved]), moved)[0]
    exact = torch.autograd.grad(projected_sum(*two_losses(moved), [moved]), moved)[0]
    torch.testing.assert_close(new, exact)
    assert not torch.allclose(old, exact)


def test_a_cap_is_measured_in_every_step():
    weight = torch.tensor([1.0, 2.0], dtype=torch.float64, requires_grad=True)
    projection = RareProjection(4)
    for _ in range(5):
        ours = torch.autograd.grad(projection.sum(*two_losses(weight), [weight], 0.1), weight)[0]
        exact = torch.autograd.grad(projected_sum(*two_losses(weight), [weight], 0.1), weight)[0]
        torch.testing.assert_close(ours, exact)


@pytest.mark.parametrize("steps", [70, 1400, 5200, 20_000])
def test_a_recipe_that_follows_a_plan_has_that_plan(steps):
    for apart, count in ((False, 10), (True, 48)):
        plan = Recipe().plan(128, steps, apart=apart)
        assert Recipe().following(plan).plan(128, steps, apart=apart) == plan
        assert 0.97 < plan.uses / min(steps - min(20, steps // 5), 200 * 128 // count) <= 1.01
