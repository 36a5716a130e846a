"""Knowledge distillation into another model, or into a copy of the teacher."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Literal

import torch
from torch import nn

from invgnn.attacks.edits.edit import Edit
from invgnn.errors import EditError, ParameterError
from invgnn.nn.backbones import Backbone, build
from invgnn.nn.forward import weight_of
from invgnn.nn.layers import fresh_twin
from invgnn.training.batching import scores
from invgnn.training.distillation import ask_teacher, learn
from invgnn.training.tasks import Task, new_model

STUDENTS = {"same": "", "half": " into half width", "other": " into other backbone"}
Student = Literal["same", "half", "other"] | Callable[[Task], nn.Module]
Start = Literal["fresh", "teacher"]


class Distil(Edit):
    """Train a student on the softened scores of the model and keep its best epoch on validation data.

    A student that starts from the teacher keeps the last epoch instead, because in the first epochs it is
    almost the teacher.

    Args:
        student: "same" architecture, "half" the hidden width, the "other" backbone (GraphSAGE, or GCN for a
            GraphSAGE), or a function from the task to a model of your own.
        start: "fresh" weights, or those of the "teacher".
        rho_kd: The paper's retention fraction: share of the training inputs with teacher scores; on the
            others the student is trained on the true label.
        temperature: Temperature of the distillation.
        epochs: Number of epochs.
        lr: Learning rate of Adam.
        seed: Seed of the student and of the training.
    """

    def __init__(
        self,
        student: Student = "same",
        *,
        start: Start = "fresh",
        rho_kd: float = 1.0,
        temperature: float = 2.0,
        epochs: int = 100,
        lr: float = 0.01,
        seed: int = 0,
    ) -> None:
        if isinstance(student, nn.Module) or not (callable(student) or student in STUDENTS):
            advice = f"choose one of {', '.join(STUDENTS)}, or pass student=lambda task: YourModel(...)"
            raise ParameterError(f"unknown student {student!r}", advice)
        if start not in ("fresh", "teacher") or (start == "teacher" and student != "same"):
            raise ParameterError(
                f"the student {student!r} cannot start from {start!r}",
                "use start='fresh', or student='same' with start='teacher'",
            )
        if not 0 < rho_kd <= 1:
            raise ParameterError(
                f"rho_kd={rho_kd} is not in (0, 1]", "1 uses teacher scores on all training inputs"
            )
        if epochs < 1 or not all(0 < value < float("inf") for value in (lr, temperature)):
            raise ParameterError(
                f"epochs={epochs}, lr={lr}, temperature={temperature}",
                "use positive, finite numbers; the defaults are 100, 0.01 and 2",
            )
        self.student, self.start, self.rho_kd = student, start, rho_kd
        self.temperature, self.epochs, self.lr, self.seed = temperature, epochs, lr, seed
        self.same_architecture = student == "same"

    def apply(self, model: nn.Module, task: Task) -> nn.Module:
        """Compute the teacher's scores once, then train the student."""
        targets = ask_teacher(model, task, self.rho_kd, self.temperature)
        student = model if self.start == "teacher" else self.new_student(model, task)
        learn(student, task, targets, epochs=self.epochs, lr=self.lr, select=self.start == "fresh")
        return student

    def new_student(self, teacher: nn.Module, task: Task) -> nn.Module:
        """Return an untrained student.

        Args:
            teacher: The model.
            task: Its task.
        """
        if callable(self.student):
            student = copy.deepcopy(self.student(task))  # it may return the same model every time
            scores(student, task)  # initialises lazy layers
            return student
        if self.student == "same":
            return fresh_twin(teacher)
        made = _narrow(teacher) if self.student == "half" else _other(teacher, task)
        like = weight_of(teacher)
        return made if like is None else made.to(like)

    def __repr__(self) -> str:
        """Return the name in tables and test ids."""
        own = getattr(self.student, "__name__", "own model").replace("<lambda>", "own model")
        into = f" into {own}" if callable(self.student) else STUDENTS[self.student]
        more = {
            " from teacher": self.start == "teacher",
            f", {self.rho_kd:.0%} soft targets": self.rho_kd < 1,
            f", T={self.temperature:g}": self.temperature != 2,
            f", {self.epochs} epochs": self.epochs != 100,
            f" at {self.lr:g}": self.lr != 0.01,
        }
        return f"distil{into}" + "".join(word for word, said in more.items() if said)


def _narrow(teacher: nn.Module) -> nn.Module:
    """Return a new model of the teacher's kind with half the hidden width."""
    plan = dict(teacher.architecture) if isinstance(teacher, Backbone) else {}
    if not plan or (plan["num_layers"], plan["level"]) == (1, "node"):
        raise EditError(
            f"the hidden width of a {type(teacher).__name__} is unknown, or there is none",
            "pass student=lambda task: YourModel(...) with the width you want",
        )
    return build({**plan, "hidden_channels": max(1, plan["hidden_channels"] // 2)})


def _other(teacher: nn.Module, task: Task) -> nn.Module:
    """Return a new model with another backbone."""
    plan = teacher.architecture if isinstance(teacher, Backbone) else {}
    name = "GCN" if plan.get("name") == "GraphSAGE" else "GraphSAGE"
    seed = int(torch.randint(2**31, ()))
    return new_model(task, name, seed, hidden_channels=plan.get("hidden_channels", 64))
