"""An edit: a model in, another model out, the secret nowhere."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod

from torch import Tensor, nn

from invgnn.tasks import Task


class Edit(ABC):
    """A change to a model by somebody who has the task data and not the secret.

    Subclasses write `apply`, which may change the copy it is given. The original is never touched.
    """

    def __call__(self, model: nn.Module, task: Task) -> nn.Module:
        """The edited copy, in evaluation mode."""
        return self.apply(copy.deepcopy(model), task).eval()

    @abstractmethod
    def apply(self, model: nn.Module, task: Task) -> nn.Module:
        """Edit this copy, or return another model."""

    @abstractmethod
    def __repr__(self) -> str:
        """The name in tables and test ids."""


def weight_matrices(model: nn.Module) -> list[Tensor]:
    """Every weight matrix, PyG's own `Linear` and convolutions included; no biases, no norms."""
    return [p for p in model.parameters() if p.dim() >= 2]
