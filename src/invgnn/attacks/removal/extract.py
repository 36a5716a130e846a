"""Extraction: a student that is trained only on the replies of an API."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Literal, get_args

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from invgnn.attacks.attack import Attack, Knowledge
from invgnn.attacks.edits import Distil
from invgnn.attacks.edits.distil import Student
from invgnn.errors import ParameterError
from invgnn.training.distillation import SoftTargets, ask_teacher, learn
from invgnn.training.tasks import Task

Replies = Literal["probabilities", "labels"]


class Extract(Attack):
    """Train a new student on the replies of the model's API for a share of the task inputs.

    No weight and no true label is used; a tenth of the replies is held out to select the epoch.

    Args:
        share: Share of the training inputs that are sent to the API; the student sees no others.
        replies: What the API returns: "probabilities", or "labels" alone.
        student: As for `Distil`; "same" assumes that the thief guesses the architecture.
        epochs: Number of epochs.
        lr: Learning rate of Adam.
        seed: Seed of the student and of the training.
    """

    knows: tuple[Knowledge, ...] = ("an API",)

    def __init__(
        self,
        share: float = 1.0,
        replies: Replies = "probabilities",
        *,
        student: Student = "same",
        epochs: int = 100,
        lr: float = 0.01,
        seed: int = 0,
    ) -> None:
        if not 0 < share <= 1:
            raise ParameterError(f"share={share} is not in (0, 1]", "1 sends every training input")
        if replies not in get_args(Replies):
            raise ParameterError(f"unknown replies {replies!r}", f"choose {' or '.join(get_args(Replies))}")
        self.distil = Distil(student, epochs=epochs, lr=lr)  # checks and builds the student
        self.share, self.replies = share, replies
        self.epochs, self.lr, self.seed = epochs, lr, seed
        self.same_architecture = self.distil.same_architecture

    def apply(self, model: nn.Module, task: Task) -> nn.Module:
        """Query the model, then train a new student on the replies."""
        targets = ask_teacher(model, task, self.share, temperature=1.0)
        student = self.distil.new_student(model, task)
        asked, told = as_told(targets, soft=self.replies == "probabilities")
        shown = seen_through(task, asked, told.classes)
        learn(student, shown, told, epochs=self.epochs, lr=self.lr)
        return student

    def __repr__(self) -> str:
        """Return the name in tables and test ids."""
        what = "" if self.replies == "probabilities" else " from labels"
        student = repr(self.distil).removeprefix("distil")
        return f"extract with {self.share:.0%} of inputs{what}{student}"


def as_told(targets: SoftTargets, *, soft: bool) -> tuple[Tensor, SoftTargets]:
    """Return the inputs that were sent, and targets with the top class in place of the true class.

    Args:
        targets: The model's scores.
        soft: Whether the API returns probabilities; otherwise labels alone.
    """
    asked = targets.asked if soft else torch.zeros_like(targets.asked)
    return targets.asked.nonzero().view(-1), replace(
        targets, classes=targets.scores.argmax(-1), asked=asked
    )


def seen_through(task: Task, asked: Tensor, classes: Tensor) -> Task:
    """Return the task as an API shows it: the inputs that were sent, with the labels that it returned.

    A tenth of them is used for validation.

    Args:
        task: The task.
        asked: Indices of the inputs that were sent.
        classes: The labels that the API returned.
    """
    order = asked[torch.randperm(len(asked))]
    kept_back = order[: max(1, len(order) // 10)]
    learnt = order[len(kept_back) :] if len(order) > 1 else order
    rows = [classes] if task.level == "node" else list(classes.split(1))
    graphs = [_labelled(graph, y) for graph, y in zip(task.graphs, rows, strict=True)]
    return replace(task, graphs=graphs, train=learnt, val=kept_back)


def _labelled(graph: Data, y: Tensor) -> Data:
    """Return a copy of the graph with other labels."""
    twin = copy.copy(graph)
    twin.y = y
    return twin
