"""Zero head: the layer that might hold a mark is set to zero."""

from __future__ import annotations

from typing import Literal, get_args

import torch
from torch import nn

from invgnn.attacks.attack import Attack, Knowledge
from invgnn.errors import EditError, ParameterError
from invgnn.nn.perception import PerceptionHead
from invgnn.training.batching import last_layer
from invgnn.training.tasks import Task

Head = Literal["last", "perception"]


class ZeroHead(Attack):
    """Set every weight of the model's last layer, or of the paper's head, to zero.

    Without its "last" layer a model returns the same scores for every input and is useless until a new
    layer is trained (`FineTune(part="last", fresh=True)`). The "perception" head exists only if the owner
    attached one, as the paper does. Nothing else uses it, so removing it costs the thief nothing. A reading
    at `embedding` has no head in the model that could be removed.

    Args:
        head: "last" or "perception".
    """

    knows: tuple[Knowledge, ...] = ("the weights",)

    def __init__(self, head: Head = "last") -> None:
        if head not in get_args(Head):
            raise ParameterError(f"unknown head {head!r}", f"choose {' or '.join(get_args(Head))}")
        self.head = head

    @torch.no_grad()
    def apply(self, model: nn.Module, task: Task) -> nn.Module:
        """Set all parameters of that layer to zero."""
        layer = last_layer(model, task) if self.head == "last" else _perception(model)
        for value in layer.parameters():
            value.zero_()
        return model

    def __repr__(self) -> str:
        """Return the name in tables and test ids."""
        return "zero last layer" if self.head == "last" else "zero perception head"


def _perception(model: nn.Module) -> nn.Module:
    """Return the perception head."""
    head = getattr(model, "perception", None)
    if not isinstance(head, PerceptionHead):
        raise EditError("the model carries no perception head", "leave this attack out")
    return head
