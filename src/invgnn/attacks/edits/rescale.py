"""A rescaling of the hidden units; the function of the model stays the same."""

from __future__ import annotations

import math

import torch
from torch import nn

from invgnn.attacks.edits.edit import Edit
from invgnn.errors import ParameterError
from invgnn.nn.hidden_units import hidden_units, require_same_scores
from invgnn.training.batching import scores, some_inputs
from invgnn.training.tasks import Task


class RescaleUnits(Edit):
    """Multiply every hidden unit by its own factor and divide by it in the next layer.

    All scores stay the same. Factors are log-uniform between `1 / factor` and `factor`. ReLU and pooling
    commute with positive factors.

    Guarantee: scores on task inputs agree to 1e-5 of their size, or the edit refuses the model.

    Args:
        factor: Largest factor, in (1, 1000].
        seed: Seed of the factors.
    """

    same_function = True

    def __init__(self, factor: float = 4.0, seed: int = 0) -> None:
        if not 1 < factor <= 1e3:
            raise ParameterError(f"factor={factor} is not in (1, 1000]", "the default is 4")
        self.factor, self.seed = factor, seed

    @torch.no_grad()
    def apply(self, model: nn.Module, task: Task) -> nn.Module:
        """Scale the outputs of each layer, and the inputs of the next by the inverse."""
        before = scores(model, task)
        for units in hidden_units(model, some_inputs(task), task.forward):
            by = torch.exp(math.log(self.factor) * (2 * torch.rand(len(units)) - 1))
            for value in units.sizes:
                value.mul_(by if value.dim() == 1 else by[:, None])
            for weight in units.takers:
                weight.div_(by)
        require_same_scores(before, scores(model, task), "rescaling units")
        return model

    def __repr__(self) -> str:
        """Return the name in tables and test ids."""
        return f"rescale units by up to {self.factor:g}"
