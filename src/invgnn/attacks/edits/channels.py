"""Channel pruning: removal of whole hidden units."""

from __future__ import annotations

import torch
from torch import nn

from invgnn.attacks.edits.edit import Edit
from invgnn.errors import ParameterError
from invgnn.nn.hidden_units import hidden_units
from invgnn.training.batching import some_inputs
from invgnn.training.tasks import Task


class PruneChannels(Edit):
    """Set the hidden units with the smallest incoming weights to zero, in every hidden layer.

    Their rows, biases and norms become zero, so their output is zero for every input.

    Args:
        share: Share of the hidden units, in (0, 1).
    """

    def __init__(self, share: float) -> None:
        if not 0 < share < 1:
            raise ParameterError(f"share={share} is not in (0, 1)", "for example, 0.2 prunes a fifth")
        self.share = share

    @torch.no_grad()
    def apply(self, model: nn.Module, task: Task) -> nn.Module:
        """Rank the units of each layer by the Euclidean norm of their rows and set the smallest to zero."""
        for units in hidden_units(model, some_inputs(task), task.forward):
            strength = torch.cat([w for w in units.makers if w.dim() == 2], dim=1).norm(dim=1)
            weak = strength.argsort()[: max(1, int(self.share * len(units)))]
            for value in (*units.makers, *units.sizes):
                value[weak] = 0
        return model

    def __repr__(self) -> str:
        """Return the name in tables and test ids."""
        return f"prune {self.share:.0%} of channels"
