"""Softening: the thief gives a stiff model back weights of the usual size, then trains it on."""

from __future__ import annotations

from torch import nn

from invgnn.attacks.attack import Attack, Knowledge
from invgnn.attacks.clean import FTClean
from invgnn.edits.layers import some_inputs
from invgnn.stiffness import soften
from invgnn.tasks import Task


class Soften(Attack):
    """FT-clean by a thief who knows that marked models may be stiff, and that this takes a moment to undo.

    A model that is not stiff is trained on as it is.
    """

    knows: tuple[Knowledge, ...] = ("the weights", "task data", "the algorithm")

    def __init__(self, epochs: int = 20, lr: float = 0.01, seed: int = 0) -> None:
        self.tuning, self.seed = FTClean(epochs, lr, seed), seed

    def apply(self, model: nn.Module, task: Task) -> nn.Module:
        """The same function with small weights, then the library's own loop."""
        soften(model, some_inputs(task))
        return self.tuning.apply(model, task)

    def __repr__(self) -> str:
        return f"soften, {self.tuning!r}"
