"""What one forward pass returned: scores and a hidden layer, pooled to one row per graph."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from invgnn.errors import SuspectError

PROBABILITY_FLOOR = 1e-6


PERCENT = 100.0


ROUNDING = 0.02


MOST_ROUNDING = 0.05


@dataclass(frozen=True, eq=False)
class Observation:
    """What one forward pass showed: the model's output and, if watched, a hidden layer."""

    scores: Tensor
    hidden: Tensor | None
    batch: Any

    @cached_property
    def embeddings(self) -> Tensor:
        """What the watched layer shows, one row per graph."""
        if self.hidden is None:
            raise SuspectError("this reading needs a hidden layer", "pass an nn.Module")
        return pool(full(self.hidden), self.batch)

    @cached_property
    def log_probabilities(self) -> Tensor:
        """Of every class, one row per graph."""
        return pool(log_scores(self.scores).log_softmax(-1), self.batch)


def num_graphs(batch: Any) -> int:
    """How many graphs a PyG batch holds; a single `Data` is one."""
    ptr, owners = getattr(batch, "ptr", None), getattr(batch, "batch", None)
    if ptr is not None:
        return len(ptr) - 1
    if owners is None:
        return 1
    known = getattr(batch, "num_graphs", None)
    return len(owners.bincount()) if known is None else int(known)


def pool(rows: Tensor, batch: Any) -> Tensor:
    """One row per graph: rows as they are, or the mean over each graph's nodes."""
    graphs, nodes = num_graphs(batch), int(batch.num_nodes)
    if rows.dim() == 1:
        rows = rows.unsqueeze(1)
    if rows.dim() != 2 or rows.shape[0] not in {graphs, nodes}:
        raise SuspectError(
            f"got an array of shape {tuple(rows.shape)} for {graphs} graphs of {nodes} nodes",
            "a suspect returns one row per graph, or one row per node for node tasks",
        )
    if rows.shape[0] == graphs:
        return rows
    index = batch.batch.to(rows.device)
    total = rows.new_zeros(graphs, rows.shape[1]).index_add_(0, index, rows)
    return total / torch.bincount(index, minlength=graphs).clamp(min=1).unsqueeze(1)


def log_scores(scores: Tensor) -> Tensor:
    """Scores on a log scale: logits as they are, probabilities as their logarithms.

    Rows that are not negative and all sum to one, or all to a hundred, up to rounding, are taken for
    probabilities. The choice depends
    on the suspect alone, so it costs evidence at worst and never validity.
    """
    scores = full(scores)
    if scores.dim() == 1 or scores.shape[-1] == 1:
        scores = _two_columns(scores.reshape(-1))
    if _improbable(scores):
        return scores
    rows = _finite(scores)
    rounding = min(ROUNDING * rows.shape[-1], MOST_ROUNDING)
    for whole in (1.0, PERCENT):
        inside = bool(((rows >= 0) & (rows <= whole)).all())
        if inside and bool(((rows.sum(-1) / whole - 1).abs() <= rounding).all()):
            return (scores / whole).clamp(min=PROBABILITY_FLOOR).log()
    return scores


def _improbable(scores: Tensor) -> bool:
    """Whether the extremes show that these are no probabilities: all finite, and some outside [0, 100]."""
    low, high = (float(value) for value in scores.detach().aminmax()) if scores.numel() else (0.0, 0.0)
    return -math.inf < low and high < math.inf and (low < 0 or high > PERCENT)


def _finite(scores: Tensor) -> Tensor:
    """The rows of scores that say something, without gradient: one NaN must not change how others read."""
    rows = scores.detach()
    return rows[torch.isfinite(rows).reshape(len(rows), -1).all(-1)]


def _two_columns(score: Tensor) -> Tensor:
    """A single score per row (a logit, or a probability in [0, 1]) as scores of two classes."""
    values = _finite(score)
    if bool(((values >= 0) & (values <= 1)).all()):
        return torch.stack([1 - score, score], dim=-1)
    return torch.stack([-score / 2, score / 2], dim=-1)


def full(values: Tensor) -> Tensor:
    """Half-precision values in single precision, as losses are computed; others as they are."""
    return values.to(torch.promote_types(values.dtype, torch.float32))
