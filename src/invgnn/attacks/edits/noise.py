"""Gaussian noise on the weights."""

from __future__ import annotations

import torch
from torch import nn

from invgnn.attacks.edits.edit import Edit
from invgnn.errors import ParameterError
from invgnn.nn.layers import weight_matrices
from invgnn.training.tasks import Task


class WeightNoise(Edit):
    """Add Gaussian noise to every weight matrix, relative to its mean absolute weight.

    Args:
        scale: Standard deviation, relative to the mean absolute weight.
        seed: Seed of the noise.
    """

    def __init__(self, scale: float = 0.1, seed: int = 0) -> None:
        if not 0 < scale < float("inf"):
            raise ParameterError(
                f"scale={scale} is not positive and finite",
                "for example, 0.1 is a tenth of a typical weight",
            )
        self.scale, self.seed = scale, seed

    @torch.no_grad()
    def apply(self, model: nn.Module, task: Task) -> nn.Module:
        """Draw the noise once and add it."""
        for weight in weight_matrices(model):
            weight.add_(self.scale * weight.abs().mean() * torch.randn_like(weight))
        return model

    def __repr__(self) -> str:
        """Return the name in tables and test ids."""
        return f"noise {self.scale:.0%}"
