"""Channel scrub: the hidden units that task inputs use least are set to zero."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from invgnn.attacks.attack import Attack, Knowledge
from invgnn.errors import EditError, ParameterError
from invgnn.nn.hidden_units import Units, hidden_units
from invgnn.training.batching import scores, some_inputs
from invgnn.training.tasks import Task


class ChannelScrub(Attack):
    """Set the hidden units that task inputs use least to zero, in every hidden layer.

    A mark in a pathway of its own is inactive on task inputs and is found here, however large its weights
    are. The use of a unit is its share in the input of the next layer (absolute value times absolute
    weight), which rescaling of units does not change. The paper names this attack without a definition.

    Args:
        share: Share of the hidden units, in (0, 1).
    """

    knows: tuple[Knowledge, ...] = ("the weights", "task data")

    def __init__(self, share: float = 0.4) -> None:
        if not 0 < share < 1:
            raise ParameterError(f"share={share} is not in (0, 1)", "for example, 0.4 removes two fifths")
        self.share = share

    @torch.no_grad()
    def apply(self, model: nn.Module, task: Task) -> nn.Module:
        """Measure the use of all layers first, then set the least used units to zero."""
        layers = hidden_units(model, some_inputs(task), task.forward)
        uses = [use(units, model, task) for units in layers]
        for units, used in zip(layers, uses, strict=True):
            idle = used.argsort(stable=True)[: max(1, int(self.share * len(units)))]
            for value in (*units.makers, *units.sizes):
                value[idle] = 0
        return model

    def __repr__(self) -> str:
        """Return the name in tables and test ids."""
        return f"channel scrub {self.share:.0%}"


def use(units: Units, model: nn.Module, task: Task) -> Tensor:
    """Return the share of each hidden unit in the input of the next layer on task inputs; they sum to 1.

    Args:
        units: The hidden units of a layer.
        model: The model.
        task: Its task.

    Raises:
        EditError: If no module that takes these units as input can be observed.
    """
    seen: list[Tensor] = []

    def look(module: nn.Module, given: tuple[Any, ...]) -> None:
        seen.extend(v for v in given if isinstance(v, Tensor) and v.shape[-1] == len(units))

    takers = [m for m in model.modules() for p in m.parameters(recurse=False) if _among(p, units.takers)]
    handles = [module.register_forward_pre_hook(look) for module in takers]
    try:
        scores(model, task)
    finally:
        for handle in handles:
            handle.remove()
    if not seen:
        raise EditError(
            "no layer that takes the hidden units as input can be observed", "leave this attack out"
        )
    level = torch.stack([value.abs().mean(0) for value in seen]).mean(0)
    taken = torch.cat(units.takers).abs() * level
    return (taken / taken.sum(dim=1, keepdim=True).clamp(min=1e-30)).mean(0)


def _among(parameter: Tensor, tensors: list[Tensor]) -> bool:
    """Return whether a parameter is one of the tensors."""
    return any(parameter is tensor for tensor in tensors)
