"""The same function in another order."""

from __future__ import annotations

import torch
from torch import nn

from invgnn.attacks.edits.edit import Edit
from invgnn.nn.hidden_units import hidden_units, require_same_scores
from invgnn.training.batching import scores, some_inputs
from invgnn.training.tasks import Task


class PermuteUnits(Edit):
    """Shuffle the hidden units of every layer; every score stays the same.

    Guarantee: scores on task inputs agree to 1e-5 of their size, or the edit refuses the model.
    """

    same_function = True

    def __init__(self, seed: int = 0) -> None:
        self.seed = seed

    @torch.no_grad()
    def apply(self, model: nn.Module, task: Task) -> nn.Module:
        """Shuffle what makes a unit and what takes it in alike."""
        before = scores(model, task)
        for units in hidden_units(model, some_inputs(task)):
            order = torch.randperm(len(units))
            for value in (*units.makers, *units.norms):
                value.copy_(value[order])
            for weight in units.takers:
                weight.copy_(weight[:, order])
        require_same_scores(before, scores(model, task), "permuting units")
        return model

    def __repr__(self) -> str:
        return "permute units"
