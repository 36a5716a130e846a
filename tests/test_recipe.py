"""The losses of a mark and how they stand beside a task's."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from torch.nn.functional import cross_entropy

from invgnn.recipe import NAT_SHARE, guarded, in_nats
from invgnn.tasks import new_model
from invgnn.training import Collated

VECTORS = arrays(np.float64, 4, elements=st.floats(-10, 10))


@given(VECTORS, VECTORS, st.floats(0.1, 5))
def test_the_mark_never_works_against_the_task(task, mark, outer):
    """Two linear losses have the vectors themselves as gradients: the rule is seen bare."""
    at = [torch.randn(2, dtype=torch.float64, requires_grad=True) for _ in range(2)]
    whole = torch.cat(at)
    a, b = torch.from_numpy(task), torch.from_numpy(mark)
    (outer * guarded(a @ whole, b @ whole, at)).backward()
    got = torch.cat([p.grad for p in at]) / outer
    added = got - a  # what the mark contributes
    size = float(a @ a)
    if size < 1e-12:
        return
    assert float(added @ a) >= -1e-9 * max(1.0, size)
    expected = b if float(a @ b) >= 0 else b - (a @ b) / size * a
    torch.testing.assert_close(added, expected, atol=1e-6, rtol=1e-6)


def test_guarded_value_is_the_sum_and_unused_parameters_stay_still():
    used, unused = (torch.ones(3, requires_grad=True) for _ in range(2))
    frozen = torch.ones(3)
    loss = guarded(used.sum(), 2 * used.square().sum(), [used, unused, frozen])
    assert float(loss.detach()) == 9
    loss.backward()
    assert used.grad.tolist() == [5, 5, 5]
    assert unused.grad.tolist() == [0, 0, 0]


def test_guard_in_ones_own_loop_is_what_the_library_does(motifs, draw):
    """Both ways give the gradients of the pure function; a task without gradient is no error."""
    mark, batch = draw(), Collated(motifs.graphs).batch(torch.arange(20))
    grads = {}
    for way in ("joint", "by hand"):
        model = new_model(motifs, "GIN", 0, hidden_channels=8).eval()
        joint = mark.mix(batch)
        task_loss = cross_entropy(joint(model), batch.y)
        if way == "joint":
            joint.guard(task_loss).backward()
        else:
            guarded(task_loss, joint.loss(), model.parameters()).backward()
        grads[way] = torch.cat([p.grad.view(-1) for p in model.parameters()])
    assert grads["joint"].equal(grads["by hand"])
    model = new_model(motifs, "GIN", 0, hidden_channels=8).eval()
    mark.guard(model, torch.zeros(())).backward()
    mark_only = torch.cat([p.grad.view(-1) for p in model.parameters()])
    model.zero_grad()
    mark.loss(model).backward()
    own = [torch.zeros_like(p) if p.grad is None else p.grad for p in model.parameters()]
    torch.testing.assert_close(mark_only, torch.cat([g.view(-1) for g in own]))  # nothing to guard


@given(VECTORS, VECTORS)
def test_scores_are_measured_in_nats_from_the_usual(said, usual):
    got = in_nats(torch.from_numpy(said), torch.from_numpy(usual)).numpy()
    np.testing.assert_allclose(got * NAT_SHARE, said - usual.mean(), atol=1e-12)


def test_unlearning_the_task_gains_the_mark_nothing():
    """Shrinking the spread of ordinary scores leaves the mark's answers where they are."""
    said = torch.tensor([-0.2, 0.3])
    wide, narrow = (scale * torch.tensor([-1.0, 0.0, 1.0], requires_grad=True) for scale in (5, 0.1))
    assert in_nats(said, wide).tolist() == pytest.approx(in_nats(said, narrow).tolist())
