"""Unscale weights: undo the weight scaling of a marked model, then fine-tune it."""

from __future__ import annotations

from torch import nn

from invgnn.attacks.attack import Attack, Knowledge
from invgnn.attacks.removal.clean import FTClean
from invgnn.nn.weight_scaling import unscale_weights
from invgnn.training.batching import some_inputs
from invgnn.training.tasks import Task


class UnscaleWeights(Attack):
    """FT-clean by a thief who knows about weight scaling and reverses it first.

    A model without scaled weights is fine-tuned as it is.

    Args:
        epochs: Number of epochs.
        lr: Learning rate of Adam.
        seed: Fixes the order of batches and dropout.
    """

    knows: tuple[Knowledge, ...] = ("the weights", "task data", "the algorithm")

    def __init__(self, epochs: int = 20, lr: float = 0.01, seed: int = 0) -> None:
        self.tuning, self.epochs, self.seed = FTClean(epochs, lr, seed), epochs, seed

    def apply(self, model: nn.Module, task: Task) -> nn.Module:
        """Unscale the weights, which keeps the function of the model, then fine-tune."""
        unscale_weights(model, some_inputs(task), task.forward)
        return self.tuning.apply(model, task)

    def __repr__(self) -> str:
        """Return the name in tables and test ids."""
        return f"unscale weights, {self.tuning!r}"
