"""KD-kill: distillation of an unmarked teacher into the stolen model."""

from __future__ import annotations

from torch import nn

from invgnn.attacks.attack import Attack, Knowledge
from invgnn.errors import ParameterError
from invgnn.nn.layers import fresh_twin
from invgnn.training.distillation import ask_teacher, learn
from invgnn.training.fitting import FitOptions, fit_task
from invgnn.training.tasks import Task


class KDKill(Attack):
    """Distil an unmarked teacher into the stolen model, starting from the stolen weights.

    Whoever has such a teacher does not need the stolen model. The attack shows whether distillation can
    remove the mark. Without a `teacher`, the thief trains one: the same architecture with new weights.

    Args:
        teacher: The unmarked teacher, if there is one.
        temperature: Temperature of the distillation.
        epochs: Number of epochs.
        lr: Learning rate of Adam.
        seed: Seed of the teacher and of the training.
    """

    knows: tuple[Knowledge, ...] = ("the weights", "task data", "a clean teacher")

    def __init__(
        self,
        teacher: nn.Module | None = None,
        *,
        temperature: float = 2.0,
        epochs: int = 100,
        lr: float = 0.01,
        seed: int = 0,
    ) -> None:
        if epochs < 1 or not all(0 < value < float("inf") for value in (lr, temperature)):
            raise ParameterError(
                f"epochs={epochs}, lr={lr}, temperature={temperature}",
                "use positive, finite numbers; the defaults are 100, 0.01 and 2",
            )
        self.teacher, self.temperature = teacher, temperature
        self.epochs, self.lr, self.seed = epochs, lr, seed

    def apply(self, model: nn.Module, task: Task) -> nn.Module:
        """Compute the teacher's scores on all training inputs, then train the model on them."""
        teacher = self.clean_teacher(model, task) if self.teacher is None else self.teacher
        targets = ask_teacher(teacher, task, 1.0, self.temperature)
        learn(model, task, targets, epochs=self.epochs, lr=self.lr, select=False)
        return model

    def clean_teacher(self, model: nn.Module, task: Task) -> nn.Module:
        """Return a model of the same architecture that is trained on the task alone.

        Args:
            model: The stolen model.
            task: Its task.
        """
        teacher = fresh_twin(model)
        fit_task(teacher, task, FitOptions(self.epochs, self.lr, seed=self.seed))
        return teacher

    def __repr__(self) -> str:
        """Return the name in tables and test ids."""
        more = {
            f", T={self.temperature:g}": self.temperature != 2,
            f", {self.epochs} epochs": self.epochs != 100,
            f" at {self.lr:g}": self.lr != 0.01,
        }
        return "KD-kill" + "".join(word for word, said in more.items() if said)
