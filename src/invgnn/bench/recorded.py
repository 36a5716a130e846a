"""An edit that keeps the model it made."""

from __future__ import annotations

from torch import nn

from invgnn.attacks.edits import Edit
from invgnn.training.tasks import Task


class Recorded(Edit):
    """An edit that keeps the model it made, so that it can be read once more.

    Args:
        change: The edit.
    """

    def __init__(self, change: Edit) -> None:
        self.change, self.made = change, nn.Module()

    def apply(self, model: nn.Module, task: Task) -> nn.Module:
        """Make the change.

        Args:
            model: The model.
            task: Its task.
        """
        self.made = self.change(model, task)
        return self.made

    def __repr__(self) -> str:
        """Return the name of the edit."""
        return repr(self.change)
