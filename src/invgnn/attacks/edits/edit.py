"""An edit: a model in, another model out, the secret nowhere."""

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
