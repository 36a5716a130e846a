"""Monitor: how far the embedding of a mark has come, epoch by epoch, in anybody's training loop."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from weakref import WeakKeyDictionary

from torch import nn

from invgnn.errors import MonitorWarning
from invgnn.nn.forward import unwrap
from invgnn.nn.layers import has_batch_norm
from invgnn.stats.evidence import GRINDING_BITS
from invgnn.watermark.levels import levels_of, loss_of
from invgnn.watermark.protocol import Refreshable

PATIENCE = 10
"""After so many calls without a gain, the evidence at a level counts as stalled."""
GAIN = 2.0
"""Fewest bits that count as a gain."""
UNLEARNT = 10.0
"""A level below this evidence counts as not learnt at all."""
LAG = 1.5
"""How many times as large the loss in evaluation mode may be as that in training mode."""
SMALL = 0.1
"""A loss in evaluation mode below this, relative to beta, needs no warning."""


@dataclass
class _Past:
    """What was measured of one model so far."""

    bits: dict[str, list[float]] = field(default_factory=dict)
    warned: set[str] = field(default_factory=set)


class Monitor:
    """Measures models and remembers what it measured, to notice when nothing moves any more.

    Args:
        mark: The mark.
    """

    def __init__(self, mark: Refreshable) -> None:
        self.mark = mark
        self._past: WeakKeyDictionary[nn.Module, _Past] = WeakKeyDictionary()

    def __call__(self, model: nn.Module) -> dict[str, float]:
        """Return bits and losses of a model, and warn where something is wrong; see `Watermark.monitor`."""
        core = unwrap(model)
        past = self._past.setdefault(core, _Past())
        bits = {name: level.bits for name, level in levels_of(self.mark, core).items()}
        evaluation, training = (loss_of(self.mark, core, mode) for mode in (False, True))
        for name, value in bits.items():
            past.bits.setdefault(name, []).append(value)
        said = _lag(evaluation, training, self.mark.recipe.beta, has_batch_norm(core))
        for reason, warning in {**said, **_stalled(past.bits)}.items():
            if reason not in past.warned:
                past.warned.add(reason)
                warnings.warn(warning, stacklevel=3)
        return {
            **{f"mark/bits/{name}": value for name, value in bits.items()},
            "mark/loss/evaluation": evaluation,
            "mark/loss/training": training,
        }


def _lag(evaluation: float, training: float, beta: float, norms: bool) -> dict[str, MonitorWarning]:
    """Return a warning if a mark is learnt in training mode and not read in evaluation mode."""
    if evaluation <= max(LAG * training, SMALL * beta):
        return {}
    message = (
        f"the mark's loss is {evaluation:.2f} in evaluation mode, in which suspects are read, and "
        f"{training:.2f} in training mode"
    )
    advice = (
        "the running statistics of batch norms lag behind the weights: let the learning rate fall to zero "
        "over the second half of the training, and call mark.finish(model, loader) at the end"
        if norms
        else "check what the model or forward= does differently in the two modes"
    )
    return {"lag": MonitorWarning(message, advice)}


def _stalled(bits: Mapping[str, list[float]]) -> dict[str, MonitorWarning]:
    """Return a warning for every level that is too weak and has gained nothing for a while."""
    found = {}
    for name, past in bits.items():
        recent, earlier = past[-PATIENCE:], past[:-PATIENCE]
        weak = past[-1] < GRINDING_BITS
        if weak and earlier and max(recent) < max(earlier) + GAIN:
            found[f"{name} {max(past) < UNLEARNT}"] = _stall(name, max(past))
    return found


def _stall(name: str, best: float) -> MonitorWarning:
    if best < UNLEARNT:
        return MonitorWarning(
            f"the level {name} is not being learnt: at most {best:.1f} bits in {PATIENCE} calls and more",
            "check that the mark's loss is part of the loss that is minimised and that the model can tell "
            "the carriers apart (mean pooling over few node types sees little: add degrees to them)",
        )
    return MonitorWarning(
        f"the evidence at {name} has not grown in the last {PATIENCE} calls: {best:.1f} bits, and a "
        f"verdict needs {GRINDING_BITS}",
        "train longer with a learning rate that falls to zero, use more carriers per step "
        "(Recipe(presentations=...)), or call mark.embed(model, data) afterwards",
    )
