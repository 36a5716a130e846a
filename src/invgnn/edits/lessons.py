"""What a teacher says, and a student that learns it."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from invgnn.batches import Collated, accuracy, batches
from invgnn.edits.layers import all_learn
from invgnn.forward import call, politely
from invgnn.recipe import distillation_loss
from invgnn.tasks import Task


@dataclass(frozen=True)
class Lessons:
    """The true class of every input of a task, and the scores of the teacher where it was asked."""

    classes: Tensor
    scores: Tensor
    asked: Tensor

    def loss(self, said: Tensor, which: Tensor, temperature: float) -> Tensor:
        """Mean over inputs of T² KL(teacher || student) at temperature T; cross-entropy where not asked."""
        soft = distillation_loss(said, self.scores[which], temperature)
        hard = cross_entropy(said, self.classes[which], reduction="none")
        return torch.where(self.asked[which], soft, hard).mean()


@torch.no_grad()
def ask_teacher(teacher: nn.Module, task: Task, rho_kd: float) -> Lessons:
    """The teacher's scores on a random share of the training inputs; it sees no others of them.

    A node model is run on its one graph and answers for the chosen nodes only.
    """
    chosen = task.train[torch.randperm(len(task.train))[: max(1, round(rho_kd * len(task.train)))]]
    held, _ = _collated(task)
    with politely(teacher):
        said = call(teacher, task.graphs[0])[chosen] if held is None else call(teacher, held.batch(chosen))
    classes = task.graphs[0].y if held is None else held.y
    scores, asked = (
        said.new_zeros(len(classes), said.shape[-1]),
        classes.new_zeros(len(classes), dtype=torch.bool),
    )
    scores[chosen], asked[chosen] = said, True
    return Lessons(classes, scores, asked)


def learn(
    student: nn.Module,
    task: Task,
    lessons: Lessons,
    *,
    temperature: float,
    epochs: int,
    lr: float,
    select: bool = True,
) -> None:
    """Teach in place and keep the epoch with the best validation accuracy, of equals the later.

    `select=False` keeps the last: a student that starts from a marked model is best, and still marked, at
    the beginning.

    Optimiser and batches are those of `train`. Randomness is the global generators'.
    """
    all_learn(student)
    optimiser = torch.optim.Adam(student.parameters(), lr=lr, weight_decay=5e-4)
    held, numbered = _collated(task)
    best, kept = -1.0, student.state_dict()
    for _ in range(epochs):
        student.train()
        for batch, rows in batches(task, numbered, 64):
            said = call(student, batch)
            which, said = (batch.y, said) if rows is None else (rows, said[rows])
            optimiser.zero_grad()
            lessons.loss(said, which, temperature).backward()
            optimiser.step()
        found = accuracy(student, task, task.val, held)
        if not select or found >= best:
            best, kept = found, {k: v.detach().clone() for k, v in student.state_dict().items()}
    student.load_state_dict(kept)


def _collated(task: Task) -> tuple[Collated | None, Collated | None]:
    """The graphs of a task, once with their classes and once with their numbers in `y`."""
    if task.level == "node":
        return None, None
    held = Collated(task.graphs)
    return held, held.numbered()
