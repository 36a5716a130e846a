"""The result of one forward pass: scores and a hidden layer, pooled to one row per graph."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from invgnn.errors import SuspectError

PROBABILITY_FLOOR = 1e-6
"""Probabilities below this count as this, so that their logarithms are finite."""
PERCENT = 100.0
"""Sum of a row of probabilities that are given in percent."""
ROUNDING = 0.02
"""Relative error, per class, that is allowed for the sum of rounded probabilities."""
MOST_ROUNDING = 0.05
"""Largest relative error that is allowed for the sum of rounded probabilities."""


@dataclass(frozen=True, eq=False)
class Observation:
    """The result of one forward pass.

    Attributes:
        scores: The output of the model.
        hidden: The observed hidden layer, if any.
        batch: The PyG batch.
    """

    scores: Tensor
    hidden: Tensor | None
    batch: Any

    @cached_property
    def embeddings(self) -> Tensor:
        """The observed layer, one row per graph."""
        if self.hidden is None:
            raise SuspectError("this reading needs a hidden layer", "pass the model as an nn.Module")
        return pool(full(self.hidden), self.batch)

    @cached_property
    def log_probabilities(self) -> Tensor:
        """The log-probability of every class, one row per graph."""
        return pool(log_scores(self.scores).log_softmax(-1), self.batch)


def num_graphs(batch: Any) -> int:
    """Return the number of graphs in a PyG batch; a single `Data` counts as one."""
    ptr, owners = getattr(batch, "ptr", None), getattr(batch, "batch", None)
    if ptr is not None:
        return len(ptr) - 1
    if owners is None:
        return 1
    known = getattr(batch, "num_graphs", None)
    return len(owners.bincount()) if known is None else int(known)


def pool(rows: Tensor, batch: Any) -> Tensor:
    """Return one row per graph: the rows themselves, or the mean over the nodes of each graph.

    Args:
        rows: One row per graph or one row per node.
        batch: The PyG batch.

    Raises:
        SuspectError: If the number of rows is neither that of the graphs nor that of the nodes.
    """
    graphs, nodes = num_graphs(batch), int(batch.num_nodes)
    if rows.dim() == 1:
        rows = rows.unsqueeze(1)
    if rows.dim() != 2 or rows.shape[0] not in {graphs, nodes}:
        raise SuspectError(
            f"got an array of shape {tuple(rows.shape)} for {graphs} graphs of {nodes} nodes",
            "a suspect must return one row per graph, or one row per node for node tasks",
        )
    if rows.shape[0] == graphs:
        return rows
    index = batch.batch.to(rows.device)
    total = rows.new_zeros(graphs, rows.shape[1]).index_add_(0, index, rows)
    return total / torch.bincount(index, minlength=graphs).clamp(min=1).unsqueeze(1)


def log_scores(scores: Tensor) -> Tensor:
    """Return scores on a log scale: logits unchanged, probabilities as their logarithms.

    Scores count as probabilities if all rows are non-negative and sum to one, or all to a hundred, up to
    rounding.

    Guarantee: the choice depends on the suspect alone, so it may cost evidence but never validity.
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
    """Return whether the scores cannot be probabilities: all finite, and some outside [0, 100]."""
    if not scores.numel():
        return False
    low, high = (float(value) for value in scores.detach().aminmax())
    return -math.inf < low and high < math.inf and (low < 0 or high > PERCENT)


def _finite(scores: Tensor) -> Tensor:
    """Return the finite rows of scores without gradient, so that NaN rows do not affect the others."""
    rows = scores.detach()
    return rows[torch.isfinite(rows).reshape(len(rows), -1).all(-1)]


def _two_columns(score: Tensor) -> Tensor:
    """Return a single score per row (a logit, or a probability in [0, 1]) as scores of two classes."""
    values = _finite(score)
    if bool(((values >= 0) & (values <= 1)).all()):
        return torch.stack([1 - score, score], dim=-1)
    return torch.stack([-score / 2, score / 2], dim=-1)


def full(values: Tensor) -> Tensor:
    """Return half-precision values in single precision, in which losses are computed; others unchanged."""
    return values.to(torch.promote_types(values.dtype, torch.float32))
