"""Several edits in a row."""

from __future__ import annotations

from torch import nn

from invgnn.attacks.edits.edit import Edit
from invgnn.errors import ParameterError
from invgnn.training.tasks import Task


class Chain(Edit):
    """Several edits in a row, such as the paper's composite: fine-tune, prune, distil.

    Args:
        edits: The edits, in order.
    """

    def __init__(self, *edits: Edit) -> None:
        if not edits:
            raise ParameterError(
                "a chain needs at least one edit", "pass edits: Chain(FineTune(), Prune(0.4))"
            )
        self.edits = edits
        self.same_architecture = all(edit.same_architecture for edit in edits)
        self.same_function = all(edit.same_function for edit in edits)

    def apply(self, model: nn.Module, task: Task) -> nn.Module:
        """Apply each edit to the result of the previous one."""
        for edit in self.edits:
            model = edit(model, task)
        return model

    def __repr__(self) -> str:
        """Return the name in tables and test ids."""
        return " > ".join(map(repr, self.edits))
