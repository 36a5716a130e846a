"""Distillation: the scores of a teacher as soft targets, and a student trained on them."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from invgnn.nn.distillation import distillation_loss
from invgnn.nn.forward import evaluation_mode
from invgnn.nn.layers import all_learn
from invgnn.training.batching import Collated, batches
from invgnn.training.fitting import BATCH_SIZE, FitOptions, Item, Losses, fit
from invgnn.training.tasks import Task

TEMPERATURE = 2.0


@dataclass(frozen=True)
class SoftTargets:
    """The scores of a teacher on the inputs of a task.

    Attributes:
        classes: The class of every graph or node, for those without teacher scores.
        scores: One row of scores per graph or node.
        asked: Which inputs have teacher scores.
        temperature: The temperature of the distillation.
    """

    classes: Tensor
    scores: Tensor
    asked: Tensor
    temperature: float = TEMPERATURE

    def loss(self, predicted: Tensor, which: Tensor) -> Tensor:
        """Return the mean of T² KL(teacher || student), or of cross-entropy without teacher scores.

        Args:
            predicted: The student's scores.
            which: Indices of the graphs or nodes that the rows belong to.
        """
        soft = distillation_loss(predicted, self.scores[which], self.temperature)
        hard = cross_entropy(predicted, self.classes[which], reduction="none")
        return torch.where(self.asked[which], soft, hard).mean()


@torch.no_grad()
def ask_teacher(
    teacher: nn.Module, task: Task, rho_kd: float, temperature: float = TEMPERATURE
) -> SoftTargets:
    """Return a teacher's scores on a random share of the training inputs.

    A node model is run on its one graph, and only its scores for the chosen nodes are used.

    Args:
        teacher: The teacher; left unchanged.
        task: The task.
        rho_kd: The share of the training inputs with teacher scores.
        temperature: The temperature of the distillation.
    """
    chosen = task.train[torch.randperm(len(task.train))[: max(1, round(rho_kd * len(task.train)))]]
    held, _ = _collated(task)
    with evaluation_mode(teacher):
        if held is None:
            found = task.scores(teacher, task.graphs[0])[chosen]
        else:
            found = task.scores(teacher, held.batch(chosen))
    classes = task.graphs[0].y if held is None else held.y
    scores = found.new_zeros(len(classes), found.shape[-1])
    asked = classes.new_zeros(len(classes), dtype=torch.bool)
    scores[chosen], asked[chosen] = found, True
    return SoftTargets(classes, scores, asked, temperature)


def learn(
    student: nn.Module, task: Task, targets: SoftTargets, *, epochs: int, lr: float, select: bool = True
) -> None:
    """Train a student on soft targets in place.

    Optimiser and batches are those of `train`. Randomness comes from the global generators.

    Args:
        student: The student; all of its weights are trained.
        task: The task.
        targets: The soft targets.
        epochs: Number of epochs.
        lr: Learning rate of Adam.
        select: Whether to keep the epoch with the best validation accuracy, the later of equal ones.
            Otherwise the last epoch is kept, as for a student that starts from a marked model: its first
            epochs are the most accurate, and still marked.
    """
    all_learn(student)
    held, numbered = _collated(task)

    def losses(item: Item, step: int) -> Losses:
        batch, rows = item
        scores = task.scores(student, batch)
        which, scores = (batch.y, scores) if rows is None else (rows, scores[rows])
        found = targets.loss(scores, which)
        return Losses(found, None, found)

    fit(
        student,
        task,
        lambda: batches(task, numbered, BATCH_SIZE),
        losses,
        FitOptions(epochs, lr, select=select),
        prefer_later=True,
        held=held,
    )


def _collated(task: Task) -> tuple[Collated | None, Collated | None]:
    """Collate the graphs of a task, once with their classes and once with their indices in `y`."""
    if task.level == "node":
        return None, None
    held = Collated(task.graphs)
    return held, held.numbered()
