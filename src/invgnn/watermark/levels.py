"""How much evidence a model holds at every declared level, as its owner sees it."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import nn

from invgnn.errors import WeakMarkWarning
from invgnn.nn.forward import evaluation_mode, unwrap
from invgnn.stats.evidence import GRINDING_BITS
from invgnn.watermark.protocol import Refreshable


@dataclass(frozen=True)
class Level:
    """What a model shows at one declared level.

    Attributes:
        bits: Evidence in bits of this level alone; a verdict subtracts a few for the number of tests.
        matches: How many carriers answer their bit.
        m: Number of carriers.
    """

    bits: float
    matches: int
    m: int

    def __str__(self) -> str:
        return f"{self.bits:.1f} bits ({self.matches} of {self.m} carriers)"


def levels_of(mark: Refreshable, model: nn.Module) -> dict[str, Level]:
    """Return the evidence at every declared level, in evaluation mode; the model is left unchanged.

    Args:
        mark: The mark.
        model: The model.
    """
    found: dict[str, Level] = {}
    for reading in mark.readings:
        evidence = mark.evidence(mark.read(unwrap(model), reading.access))
        found[reading.access] = Level(evidence.bits(), evidence.matches, mark.m)
    return found


@torch.no_grad()
def loss_of(mark: Refreshable, model: nn.Module, training: bool) -> float:
    """Return the loss of a mark over all carriers in one mode; the model is left unchanged.

    Args:
        mark: The mark.
        model: The model.
        training: Whether in training mode.
    """
    with evaluation_mode(model):  # restores every mode, buffer and random state
        model.train(training)
        return float(mark.loss(model))


def warn_if_weak(levels: Mapping[str, Level], remedy: str, stacklevel: int = 3) -> None:
    """Warn if a declared level has less evidence than a search for a fitting secret could reach.

    Args:
        levels: The levels.
        remedy: What to do about it, as advice.
        stacklevel: As in `warnings.warn`.
    """
    weak = {name: level for name, level in levels.items() if level.bits < GRINDING_BITS}
    if weak:
        said = ", ".join(f"{level.bits:.1f} bits at {name}" for name, level in weak.items())
        message = f"the mark has only {said}; a verdict needs {GRINDING_BITS} at one level"
        warnings.warn(WeakMarkWarning(message, remedy), stacklevel=stacklevel + 1)
