"""Find out which column of a suspect's scores belongs to which class of the task, by public means.

A copy can be served with its classes in another order, with columns added or removed, or with other label
names. The suspect's own scores on labelled ordinary inputs show which column belongs to which class.

Guarantee: columns are chosen from the suspect's answers to ordinary inputs and from their labels. The key
is bound to both, so it is uniform given them: every reading of the chosen columns has the exact null. Two
ways to read the columns (in their given order, and as assigned by labels) count as two tests.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment
from torch import Tensor

from invgnn.nn.observation import PROBABILITY_FLOOR

Columns = tuple[int, ...]
"""For every class the column that holds its scores, -1 if there is none."""

TIE = 1e-9
"""How much better, in nats, another order must fit than the given order of the columns."""


def in_order(classes: int, width: int) -> Columns:
    """Return the columns in their given order: the first for the first class, and so on.

    Args:
        classes: Number of classes.
        width: Number of columns.
    """
    return tuple(c if c < width else -1 for c in range(classes))


def assign(logs: Tensor, labels: NDArray[np.int64], classes: int) -> Columns:
    """Return the assignment of columns to classes with the largest mean log-probabilities of the labels.

    Args:
        logs: Log-probabilities, one row per labelled input and one column per score [rows, width].
        labels: The class of every row, -1 if unknown.
        classes: Number of classes.

    Returns:
        A column for every class, each column at most once; -1 for classes without a column.
    """
    width = logs.shape[1]
    known = (labels >= 0) & torch.isfinite(logs).all(1).numpy()
    rows, of = logs.numpy()[known].astype(np.float64), labels[known]
    means = np.zeros((classes, width))
    if len(rows):
        rows = rows - rows.mean(0)  # a column that is always high does not indicate a class
        count = np.bincount(of, minlength=classes)
        np.add.at(means, of, rows)
        means /= np.maximum(count, 1)[:, None]
    means[np.arange(min(classes, width)), np.arange(min(classes, width))] += TIE
    chosen = np.full(classes, -1, dtype=np.int64)
    found, columns = linear_sum_assignment(means, maximize=True)
    chosen[found] = columns
    return tuple(chosen.tolist())


def select(logs: Tensor, columns: Sequence[int]) -> Tensor:
    """Return log-probabilities of the task's classes.

    Args:
        logs: Log-probabilities of the suspect's columns.
        columns: The column of every class, -1 for a class without one, which gets the lowest probability.
    """
    held = torch.cat([logs, torch.full_like(logs[:, :1], float(np.log(PROBABILITY_FLOOR)))], dim=1)
    return held[:, list(columns)].log_softmax(1)
