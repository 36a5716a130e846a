"""The base class of edits: a model in, another model out, without access to the secret."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from typing import final

from torch import nn

from invgnn.errors import EditError
from invgnn.nn.rng import seeded
from invgnn.training.batching import placed
from invgnn.training.tasks import Task


class Edit(ABC):
    """A change to a model by somebody who has the task data but not the secret.

    Subclasses implement `apply`, which may change the copy that it receives and may draw from the global
    random generators; they are seeded before and restored after. The original is never changed.

    Attributes:
        same_architecture: Whether the edited model has the parameters and buffers of the original, by name
            and shape.
        same_function: Whether the edited model returns the scores of the original, up to rounding.
        seed: Seed of the global generators during `apply`.
    """

    same_architecture: bool = True
    same_function: bool = False
    seed: int = 0

    @final
    def __call__(self, model: nn.Module, task: Task) -> nn.Module:
        """Return the edited copy, in evaluation mode.

        Args:
            model: The model; left unchanged.
            task: Its task.

        Raises:
            EditError: If the edit does not apply to this model, or returned no model.
        """
        with seeded(self.seed):
            edited = self.apply(copy.deepcopy(model), placed(task, model))
        if not isinstance(edited, nn.Module):
            raise EditError(
                f"the edit {self!r} returned a {type(edited).__name__}, not a model",
                "end `apply` with `return model`",
            )
        return edited.eval()

    @abstractmethod
    def apply(self, model: nn.Module, task: Task) -> nn.Module:
        """Edit this copy and return it, or return another model.

        Args:
            model: A copy of the model.
            task: Its task, on the device of the model.
        """

    @abstractmethod
    def __repr__(self) -> str:
        """Return the name in tables and test ids."""
