"""Channel scrub: the channels that the task leaves idle are silenced."""

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
    """Silence the share of hidden units that task inputs use least, in every hidden layer.

    A mark that lives in a pathway of its own sleeps on task inputs and is found here, however large its
    weights are. A unit's use is its share of what the units of the next layer take in (absolute value times
    absolute weight), which no rescaling of units changes. The paper names this attack without a definition.
    """

    knows: tuple[Knowledge, ...] = ("the weights", "task data")

    def __init__(self, share: float = 0.4) -> None:
        if not 0 < share < 1:
            raise ParameterError(f"share={share} is not in (0, 1)", "0.4 silences two fifths")
        self.share = share

    @torch.no_grad()
    def apply(self, model: nn.Module, task: Task) -> nn.Module:
        """Measure every layer first, then silence: a silent layer would make the next look idle."""
        layers = hidden_units(model, some_inputs(task))
        uses = [use(units, model, task) for units in layers]
        for units, used in zip(layers, uses, strict=True):
            idle = used.argsort(stable=True)[: max(1, int(self.share * len(units)))]
            for value in (*units.makers, *units.sizes):
                value[idle] = 0
        return model

    def __repr__(self) -> str:
        return f"channel scrub {self.share:.0%}"


def use(units: Units, model: nn.Module, task: Task) -> Tensor:
    """The share of each hidden unit in what the next layer takes in on task inputs; they sum to 1."""
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
        raise EditError("the hidden units are taken in by no layer that can be watched", "leave this out")
    level = torch.stack([value.abs().mean(0) for value in seen]).mean(0)
    taken = torch.cat(units.takers).abs() * level
    return (taken / taken.sum(dim=1, keepdim=True).clamp(min=1e-30)).mean(0)


def _among(parameter: Tensor, tensors: list[Tensor]) -> bool:
    return any(parameter is tensor for tensor in tensors)
