"""An edit: a model in, another model out, the secret nowhere."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from typing import final

from torch import Tensor, nn

from invgnn.batches import placed
from invgnn.errors import EditError
from invgnn.randomness import seeded
from invgnn.tasks import Task


class Edit(ABC):
    """A change to a model by somebody who has the task data and not the secret.

    Subclasses write `apply`, which may change the copy it is given and may draw from the global
    generators, which are seeded for it and restored. The original is never touched.

    same_architecture  the edited model has the parameters and buffers of the original, by name and shape
    same_function      the edited model gives the scores of the original, up to rounding
    """

    same_architecture: bool = True
    same_function: bool = False
    seed: int = 0

    @final
    def __call__(self, model: nn.Module, task: Task) -> nn.Module:
        """The edited copy, in evaluation mode."""
        with seeded(self.seed):
            edited = self.apply(copy.deepcopy(model), placed(task, model))
        if not isinstance(edited, nn.Module):
            raise EditError(
                f"the edit {self!r} gave a {type(edited).__name__}, not a model",
                "end `apply` with `return model`",
            )
        return edited.eval()

    @abstractmethod
    def apply(self, model: nn.Module, task: Task) -> nn.Module:
        """Edit this copy, or return another model."""

    @abstractmethod
    def __repr__(self) -> str:
        """The name in tables and test ids."""


def weight_matrices(model: nn.Module) -> list[Tensor]:
    """Every weight matrix, PyG's own `Linear` and convolutions included; no biases, no norms."""
    found: list[Tensor] = [p for p in model.parameters() if p.dim() >= 2 and p.is_floating_point()]
    if not found:
        raise EditError("the model has no weight matrix", "is it a model, or a wrapper around one?")
    return found
