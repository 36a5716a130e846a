"""Global magnitude pruning in one step."""

from __future__ import annotations

import torch
from torch import nn

from invgnn.attacks.edits.edit import Edit
from invgnn.errors import ParameterError
from invgnn.nn.layers import weight_matrices
from invgnn.training.tasks import Task


class Prune(Edit):
    """Set the share of weights with the smallest magnitudes to zero, over all layers together.

    Args:
        share: Share of the weights, in (0, 1).
    """

    def __init__(self, share: float) -> None:
        if not 0 < share < 1:
            raise ParameterError(f"share={share} is not in (0, 1)", "for example, 0.5 prunes half")
        self.share = share

    @torch.no_grad()
    def apply(self, model: nn.Module, task: Task) -> nn.Module:
        """Set the weights below the global quantile of magnitudes to zero."""
        weights = weight_matrices(model)
        sizes = torch.cat([w.abs().flatten() for w in weights])
        limit = sizes.kthvalue(max(1, int(self.share * sizes.numel()))).values
        for weight in weights:
            weight.masked_fill_(weight.abs() <= limit, 0)
        return model

    def __repr__(self) -> str:
        """Return the name in tables and test ids."""
        return f"prune {self.share:.0%}"
