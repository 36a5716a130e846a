"""Extraction: a student that has only ever seen the answers of an API."""

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
    """Train a fresh student on what the model's API says about a share of the task inputs.

    No weight and no true label is used: a tenth of the answers is kept back to choose the epoch.

    share    of the training inputs that the API is asked about; the student sees no others
    replies  what the API gives: "probabilities", or "labels" alone
    student  as for `Distil`; "same" grants the thief a good guess of the architecture
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
            raise ParameterError(f"share={share} is not in (0, 1]", "1 asks about every training input")
        if replies not in get_args(Replies):
            raise ParameterError(f"unknown replies {replies!r}", f"choose {' or '.join(get_args(Replies))}")
        self.distil = Distil(student, epochs=epochs, lr=lr)  # it knows which students there are
        self.share, self.replies = share, replies
        self.epochs, self.lr, self.seed = epochs, lr, seed
        self.same_architecture = self.distil.same_architecture

    def apply(self, model: nn.Module, task: Task) -> nn.Module:
        """Ask, forget the model, then learn from the answers."""
        targets = ask_teacher(model, task, self.share, temperature=1.0)
        student = self.distil.new_student(model, task)
        asked, told = as_told(targets, soft=self.replies == "probabilities")
        shown = seen_through(task, asked, told.classes)
        learn(student, shown, told, epochs=self.epochs, lr=self.lr)
        return student

    def __repr__(self) -> str:
        what = "" if self.replies == "probabilities" else " from labels"
        student = repr(self.distil).removeprefix("distil")
        return f"extract with {self.share:.0%} of inputs{what}{student}"


def as_told(targets: SoftTargets, *, soft: bool) -> tuple[Tensor, SoftTargets]:
    """Return the inputs asked about, and targets without true classes: the top class stands for them."""
    asked = targets.asked if soft else torch.zeros_like(targets.asked)
    return targets.asked.nonzero().view(-1), replace(
        targets, classes=targets.scores.argmax(-1), asked=asked
    )


def seen_through(task: Task, asked: Tensor, classes: Tensor) -> Task:
    """The task as an API shows it: the inputs asked about, with its labels, a tenth to validate."""
    order = asked[torch.randperm(len(asked))]
    kept_back = order[: max(1, len(order) // 10)]
    learnt = order[len(kept_back) :] if len(order) > 1 else order
    rows = [classes] if task.level == "node" else list(classes.split(1))
    graphs = [_labelled(graph, y) for graph, y in zip(task.graphs, rows, strict=True)]
    return replace(task, graphs=graphs, train=learnt, val=kept_back)


def _labelled(graph: Data, y: Tensor) -> Data:
    twin = copy.copy(graph)
    twin.y = y
    return twin
