"""Collusion: licensees who hold differently marked copies average them."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from invgnn.attacks.attack import Attack, Knowledge
from invgnn.errors import EditError, ParameterError
from invgnn.training.tasks import Task


class Collude(Attack):
    """Average the weights of several licensees' copies, each of which carries its own mark.

    This is a threat if the copies come from the same initial model and the same order of training; the
    average of unrelated models is useless. Integer buffers keep the values of the first copy.

    Args:
        others: The other copies.
    """

    knows: tuple[Knowledge, ...] = ("the weights", "a second licensed copy")

    def __init__(self, *others: nn.Module) -> None:
        if not others or not all(isinstance(other, nn.Module) for other in others):
            raise ParameterError(
                "collusion needs at least one other model", "pass the other copies: Collude(second)"
            )
        self.others = others

    @torch.no_grad()
    def apply(self, model: nn.Module, task: Task) -> nn.Module:
        """Average every parameter and floating-point buffer.

        Raises:
            EditError: If the copies have different parameters.
        """
        ours, theirs = model.state_dict(), [other.state_dict() for other in self.others]
        if any(_shapes(state) != _shapes(ours) for state in theirs):
            raise EditError(
                "the copies have different parameters and cannot be averaged",
                "pass copies of the same architecture",
            )
        for name, value in ours.items():
            if value.is_floating_point():
                value.copy_(torch.stack([value, *(state[name].to(value) for state in theirs)]).mean(0))
        return model

    def __repr__(self) -> str:
        """Return the name in tables and test ids."""
        return f"average of {1 + len(self.others)} copies"


def _shapes(state: dict[str, Tensor]) -> dict[str, torch.Size]:
    """Return the shape of every tensor by name."""
    return {name: value.shape for name, value in state.items()}
