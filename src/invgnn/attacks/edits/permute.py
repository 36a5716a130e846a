"""A permutation of the hidden units; the function of the model stays the same."""

from __future__ import annotations

import torch
from torch import nn

from invgnn.attacks.edits.edit import Edit
from invgnn.nn.hidden_units import hidden_units, require_same_scores
from invgnn.training.batching import scores, some_inputs
from invgnn.training.tasks import Task


class PermuteUnits(Edit):
    """Shuffle the hidden units of every layer; all scores stay the same.

    Guarantee: scores on task inputs agree to 1e-5 of their size, or the edit refuses the model.

    Args:
        seed: Seed of the permutations.
    """

    same_function = True

    def __init__(self, seed: int = 0) -> None:
        self.seed = seed

    @torch.no_grad()
    def apply(self, model: nn.Module, task: Task) -> nn.Module:
        """Apply the same permutation to the outputs of a layer and to the inputs of the next."""
        before = scores(model, task)
        for units in hidden_units(model, some_inputs(task), task.forward):
            order = torch.randperm(len(units))
            for value in (*units.makers, *units.norms):
                value.copy_(value[order])
            for weight in units.takers:
                weight.copy_(weight[:, order])
        require_same_scores(before, scores(model, task), "permuting units")
        return model

    def __repr__(self) -> str:
        """Return the name in tables and test ids."""
        return "permute units"
