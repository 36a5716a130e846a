"""Fine-tuning on clean task data."""

from __future__ import annotations

from torch import nn

from invgnn.edits.edit import Edit
from invgnn.tasks import Task
from invgnn.training import train


class FineTune(Edit):
    """Train on with the task loss alone and keep the last epoch."""

    def __init__(self, epochs: int = 20, lr: float = 1e-3, seed: int = 0) -> None:
        self.epochs, self.lr, self.seed = epochs, lr, seed

    def apply(self, model: nn.Module, task: Task) -> nn.Module:
        """Run the library's own loop without a mark."""
        train(model, task, epochs=self.epochs, lr=self.lr, seed=self.seed, select=False)
        return model

    def __repr__(self) -> str:
        return f"fine-tune {self.epochs} epochs at {self.lr:g}"
