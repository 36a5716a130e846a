"""Zero head: the layer in which a mark might sit is wiped."""

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

    Without its "last" layer a model gives the same scores for everything and is worth nothing until a
    new layer is trained (`FineTune(part="last", fresh=True)`). The "perception" head is there only if the
    owner attached one, as the paper does; nothing else needs it, so wiping it costs the thief nothing. A
    reading of embeddings is the owner's own and cannot be wiped.
    """

    knows: tuple[Knowledge, ...] = ("the weights",)

    def __init__(self, head: Head = "last") -> None:
        if head not in get_args(Head):
            raise ParameterError(f"unknown head {head!r}", f"choose {' or '.join(get_args(Head))}")
        self.head = head

    @torch.no_grad()
    def apply(self, model: nn.Module, task: Task) -> nn.Module:
        """Weights, biases and norms of that layer."""
        layer = last_layer(model, task) if self.head == "last" else _perception(model)
        for value in layer.parameters():
            value.zero_()
        return model

    def __repr__(self) -> str:
        return "zero last layer" if self.head == "last" else "zero perception head"


def _perception(model: nn.Module) -> nn.Module:
    head = getattr(model, "perception", None)
    if not isinstance(head, PerceptionHead):
        raise EditError("the model carries no perception head", "there is nothing to wipe; leave it out")
    return head
