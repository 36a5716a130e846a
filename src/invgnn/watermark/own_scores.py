"""The scores of a model before a mark is embedded in it, and the loss that keeps them."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor, nn

from invgnn.errors import DataError
from invgnn.nn.distillation import distillation_loss
from invgnn.nn.forward import Forward, evaluation_mode, observe
from invgnn.nn.observation import full, log_scores

TEMPERATURE = 2.0
"""Temperature at which a model is trained on its own scores."""


class OwnScores:
    """A model as it was, asked for the scores that it should keep.

    Args:
        model: The model; a copy of it is kept.
        forward: Calls the model on a batch; by default the names of its arguments decide.
        remember: Whether batches come again as the same objects, so that their scores can be kept.
    """

    def __init__(self, model: nn.Module, forward: Forward | None, *, remember: bool = False) -> None:
        self._model, self._forward, self._remember = copy.deepcopy(model).eval(), forward, remember
        self._known: dict[int, tuple[Any, Tensor]] = {}

    def __call__(self, batch: Any) -> Tensor:
        """Return the scores of a batch."""
        held, scores = self._known.get(id(batch), (None, None))
        if scores is None or held is not batch:
            scores = scores_of(self._model, batch, self._forward)
            if self._remember:
                self._known[id(batch)] = batch, scores
        return scores


@torch.no_grad()
def scores_of(model: nn.Module, batch: Any, forward: Forward | None = None) -> Tensor:
    """Return the scores of a model in evaluation mode; the model is left unchanged.

    Args:
        model: The model.
        batch: A PyG batch.
        forward: Calls the model on a batch; by default the names of its arguments decide.
    """
    with evaluation_mode(model):
        return observe(model, batch, None, forward).scores


def kept_loss(found: Tensor, kept: Tensor, classes: int | None) -> Tensor:
    """Return how far scores are from those to keep, averaged over the rows.

    Class scores are compared as softened probabilities. Other outputs (a regression, a node embedding,
    independent labels) are compared by their squared distance, relative to their own variance.

    Args:
        found: Scores of the model.
        kept: Scores to keep.
        classes: Number of classes of the task, if it is known.

    Raises:
        DataError: If the shapes differ.
    """
    if found.shape != kept.shape:
        raise DataError(
            f"scores of shape {tuple(found.shape)}, but {tuple(kept.shape)} before",
            "the model must return the same rows in training and in evaluation mode",
        )
    if is_classes(kept, classes):
        return distillation_loss(log_scores(found), log_scores(kept), TEMPERATURE).mean()
    one, other = (_rows(scores) for scores in (found, kept))
    return (one - other).square().mean() / _variance(other)


def agreement(found: Tensor, kept: Tensor, classes: int | None) -> float:
    """Return the share of rows with the same top class, or R² for outputs that are not class scores.

    Args:
        found: Scores of the model.
        kept: Scores of the model before.
        classes: Number of classes of the task, if it is known.
    """
    if is_classes(kept, classes):
        same = log_scores(found).argmax(-1) == log_scores(kept).argmax(-1)
        return float(same.double().mean())
    one, other = (_rows(scores) for scores in (found, kept))
    return 1.0 - float((one - other).square().mean() / _variance(other))


def is_classes(scores: Tensor, classes: int | None) -> bool:
    """Return whether an output is one score per class; a single column counts as two classes."""
    if classes is None or scores.dim() > 2:
        return False
    columns = 1 if scores.dim() == 1 else scores.shape[-1]
    return max(2, columns) == classes


def _rows(scores: Tensor) -> Tensor:
    """Return outputs as a matrix in single precision at least."""
    return full(scores).reshape(len(scores), -1)


def _variance(rows: Tensor) -> Tensor:
    """Return the mean variance of the columns, and their mean square where they do not vary."""
    found = rows.var(0, correction=0).mean()
    return torch.where(found > 0, found, rows.square().mean().clamp(min=1e-12))
