"""The owner's refresh: a student who learns the task from the marked model, and the mark with it."""

from __future__ import annotations

import copy
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn
from torch_geometric.data import Batch
from torch_geometric.loader import DataLoader
from torch_geometric.nn import GraphConv, global_add_pool

from invgnn.audit.verify import verify
from invgnn.errors import DataError, ParameterError, SuspectError
from invgnn.training.tasks import new_model
from invgnn.training.trainer import train
from invgnn.watermark.recipe import Recipe
from invgnn.watermark.schedule import CarrierSchedule

ACCESSES = ("embedding", "logits")


@pytest.fixture(scope="module", params=["graph", "node"])
def owned(request, motifs, web, draw):
    """A task, its owner's mark and the marked model."""
    task = {"graph": motifs, "node": web}[request.param]
    mark = draw(request.param, m=32, access=ACCESSES, recipe=Recipe(after_task=150))
    teacher = new_model(task, "GIN", 0, hidden_channels=16)
    train(teacher, task, mark, epochs=epochs(task), batch_size=32)
    return task, mark, teacher


def inputs(task):
    """The training inputs as a user has them."""
    return DataLoader(task.data, 32, shuffle=True) if task.level == "graph" else [task.data]


def epochs(task):
    return 50 if task.level == "graph" else 150


def bits(mark, model):
    return [mark.evidence(mark.read(model, access)).bits() for access in ACCESSES]


def distance(task, student, teacher):
    """Mean divergence of a student's scores on training inputs from the teacher's."""
    batch = task.data if task.level == "node" else Batch.from_data_list(task.data)
    with torch.no_grad():
        said, wanted = (_ask(model.eval(), batch).log_softmax(-1) for model in (student, teacher))
    return float(nn.KLDivLoss(reduction="batchmean", log_target=True)(said, wanted))


# --- what it is for -------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def refreshed(owned):
    """A student of half the width and another backbone."""
    task, mark, teacher = owned
    student = new_model(task, "GIN", 7, hidden_channels=12)
    shape = {name: value.shape for name, value in student.state_dict().items()}
    mark.refresh(student, teacher, inputs(task), epochs=epochs(task))
    assert {name: value.shape for name, value in student.state_dict().items()} == shape
    assert not student.training
    return student


def test_a_refreshed_student_verifies_at_both_accesses(owned, refreshed):
    task, mark, teacher = owned
    assert min(bits(mark, refreshed)) > 14
    assert verify(refreshed, mark, access="logits").evidence_bits > 13
    fresh = new_model(task, "GIN", 7, hidden_channels=12)
    assert distance(task, refreshed, teacher) < distance(task, fresh, teacher)


def test_distillation_alone_loses_the_mark(owned):
    """All the same but for the mark: the teacher's scores on task inputs do not tell its bits."""
    task, mark, teacher = owned
    student = new_model(task, "GIN", 7, hidden_channels=12)
    mark.replace(recipe=Recipe(beta=0.0)).refresh(student, teacher, inputs(task), epochs=epochs(task))
    assert max(bits(mark, student)) < 12 < min(bits(mark, teacher))


class Strange(nn.Module):
    """A user's own model: other names, one argument, weights of edges, no dropout."""

    def __init__(self, features=4, pooled=True):
        super().__init__()
        self.one, self.two, self.top = GraphConv(features, 12), GraphConv(12, 12), nn.Linear(12, 2)
        self.pooled = pooled

    def forward(self, data):
        weight = getattr(data, "edge_weight", None)
        h = self.one(data.x, data.edge_index, weight).relu()
        h = self.two(h, data.edge_index, weight).relu()
        return self.top(global_add_pool(h, data.batch) if self.pooled else h)


def test_any_model_and_any_batches_will_do(motifs, draw):
    teacher, mark = new_model(motifs, "GIN", 0, hidden_channels=8), draw(m=16, access=("logits",))
    parts = [motifs.data[at : at + 40] for at in range(0, 160, 40)]
    batches = [Batch.from_data_list(part) for part in parts]
    for batch in batches:
        batch.edge_weight = torch.ones(batch.num_edges)
    student = Strange()
    with pytest.raises(DataError, match="edge_weight"):
        mark.refresh(student, teacher, batches, epochs=10)
    apart = mark.replace(recipe=Recipe(joint=False))
    apart.refresh(student, teacher, batches, epochs=60, lr=0.02)
    assert mark.evidence(mark.read(student)).matches >= 14


# --- what is learnt -------------------------------------------------------------------------------


def test_the_first_steps_are_distillation_as_everybody_does_it(owned):
    """Steps without a mark, against a plain loop with a loss of PyTorch's own."""
    task, mark, teacher = owned
    batch = task.data if task.level == "node" else Batch.from_data_list(task.data)
    ours = Strange(task.num_features, task.level == "graph")
    theirs = copy.deepcopy(ours)
    silent = mark.replace(recipe=Recipe(beta=0.0))
    silent.refresh(ours, teacher, [batch], epochs=5, lr=0.02, temperature=3.0)
    optimiser = torch.optim.Adam(theirs.train().parameters(), lr=0.02, weight_decay=5e-4)
    with torch.no_grad():
        wanted = torch.softmax(_ask(teacher, batch) / 3, -1)
    for epoch in range(5):  # the rate falls to nearly zero over the second half
        optimiser.param_groups[0]["lr"] = 0.02 * min(1.0, 2 * (4.5 - epoch) / 5)
        optimiser.zero_grad()
        said = torch.log_softmax(_ask(theirs, batch) / 3, -1)
        (9 * nn.KLDivLoss(reduction="batchmean")(said, wanted)).backward()
        optimiser.step()
    for name, value in theirs.state_dict().items():
        assert torch.allclose(value, ours.state_dict()[name], atol=1e-5)


def _ask(model, batch):
    return model(batch) if isinstance(model, Strange) else model(batch.x, batch.edge_index, batch.batch)


def test_presentations_are_spread_over_all_batches_of_all_epochs(motifs, draw, monkeypatch):
    """Forty batches in three epochs: 120 steps, 24 of them warm-up; 64 use a quarter of the carriers."""
    mark, teacher = draw(m=16), new_model(motifs, "GIN", 0, hidden_channels=4)
    student, turns, called = new_model(motifs, "GIN", 1, hidden_channels=4), {}, []
    whole, recipe = CarrierSchedule.at, Recipe(presentations=16, carriers=4, warmup_steps=30)

    def note(schedule, given, step, steps):
        turns[step] = whole(schedule, given, step, steps)
        called.append((given, steps))
        return turns[step]

    monkeypatch.setattr(CarrierSchedule, "at", note)
    mark.replace(recipe=recipe).refresh(student, teacher, DataLoader(motifs.data, 4), epochs=3)
    plan = recipe.plan(16, 120)
    assert set(called) == {(recipe.following(plan), 120)}
    assert sorted(turns) == [step for step in range(120) if plan.use(step) is not None]
    assert len(turns) == 64
    assert min(turns) >= 24
    counts = np.bincount(np.concatenate([turn.carriers for turn in turns.values()]), minlength=16)
    assert counts.tolist() == [16] * 16


# --- nothing else changes -------------------------------------------------------------------------


def test_teacher_and_random_states_stay_and_runs_repeat(owned, unchanged):
    task, mark, teacher = owned
    students = [new_model(task, "GCN", 5, hidden_channels=4) for _ in range(3)]
    seen = []
    with unchanged(teacher):
        for student, seed in zip(students, (1, 1, 2), strict=True):
            options = {"epochs": 2, "seed": seed, "progress": lambda *at: seen.append(at)}
            mark.refresh(student, teacher.train(teacher.training), inputs(task), **options)
    first, second, third = (torch.cat([p.flatten() for p in s.parameters()]) for s in students)
    assert torch.equal(first, second)
    assert not torch.equal(first, third)
    assert seen == [(1, 2), (2, 2)] * 3
    assert all(p.grad is None for s in students for p in s.parameters())


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_after_an_error_everything_is_as_it_was(owned, unchanged, error):
    task, mark, teacher = owned
    student = new_model(task, "GIN", 5, hidden_channels=4)
    before = copy.deepcopy(student)

    def stop(done, total):
        assert any(
            not torch.equal(a, b) for a, b in zip(student.parameters(), before.parameters(), strict=True)
        )
        raise error("enough")

    with unchanged(student), unchanged(teacher), pytest.raises(error, match="enough"):
        mark.refresh(student, teacher, inputs(task), epochs=5, progress=stop)


def test_what_makes_no_sense_is_refused_with_advice(owned):
    task, mark, teacher = owned
    student = new_model(task, "GCN", 5, hidden_channels=4)
    with pytest.raises(ParameterError, match="is the teacher"):
        mark.refresh(teacher, teacher, inputs(task))
    for wrong in ({"epochs": 0}, {"lr": 0.0}, {"temperature": float("nan")}):
        with pytest.raises(ParameterError, match="positive"):
            mark.refresh(student, teacher, inputs(task), **wrong)
    with pytest.raises(ParameterError, match="only once"):
        mark.refresh(student, teacher, iter(inputs(task)))
    for nothing in ([], task.graphs[0]):
        with pytest.raises(ParameterError, match="no batches"):
            mark.refresh(student, teacher, nothing)
    wider = new_model(replace(task, num_classes=3), "GCN", 5, hidden_channels=4)
    with pytest.raises(DataError, match="the student's"):
        mark.refresh(wider, teacher, inputs(task))


def test_a_student_without_a_hidden_layer_is_refused_at_once(web, draw):
    mark, told = draw("node", access=ACCESSES), []
    with pytest.raises(SuspectError, match="no hidden"):
        mark.refresh(
            new_model(web, "SGC", 0),
            new_model(web, "GCN", 0),
            [web.data],
            progress=lambda *at: told.append(at),
        )
    assert not told
