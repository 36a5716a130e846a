"""How far a change moves a model: the quantities of the paper's table of robustness."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import nn

from invgnn.bench.marked import Made
from invgnn.schemes.published import Perceived


def drifted(made: Made, changed: nn.Module) -> dict[str, Any]:
    """Return drift, margin and relative change of the weights, as the paper defines them.

    Args:
        made: The model with its mark, before the change.
        changed: The model after it.

    Returns:
        `drift`: the largest change of what the head perceives (the paper's gamma). `margin`: the least
        distance from one half before (kappa). Both exist for schemes that perceive. `moved`: change of the
        weights relative to their norm (Delta_theta); empty if the model has other weights.
    """
    moved = weight_change(made.model, changed)
    found: dict[str, Any] = {"moved": "" if moved is None else round(moved, 4)}
    if isinstance(made.mark, Perceived) and hasattr(changed, "perception"):
        before, after = (made.mark.mark.read(one, "perception").carriers for one in (made.model, changed))
        found |= {"drift": round(float(np.abs(after - before).max()), 4), "margin": margin(before)}
    return found


def margin(perceived: np.typing.NDArray[np.float64]) -> float:
    """Return the least distance of answers from one half.

    Args:
        perceived: What a head perceives on every carrier.
    """
    return round(float(np.abs(perceived - 0.5).min()), 4)


def weight_change(first: nn.Module, second: nn.Module) -> float | None:
    """Return the norm of the change of all weights relative to the norm of the first model's.

    Args:
        first: A model.
        second: A model; None is returned if its weights have other names or shapes.
    """
    old, new = dict(first.named_parameters()), dict(second.named_parameters())
    if {n: p.shape for n, p in old.items()} != {n: p.shape for n, p in new.items()}:
        return None
    apart, whole = (
        torch.cat([part.detach().double().flatten() for part in parts])
        for parts in ([new[name] - old[name] for name in old], list(old.values()))
    )
    return float(apart.norm() / whole.norm())
