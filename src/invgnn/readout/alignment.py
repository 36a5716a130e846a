"""Which column of a suspect's scores is which class of the task, found by public means.

A copy can be served with its classes in another order, with columns added or dropped, or under other label
names. The suspect's own scores on labelled ordinary inputs tell which column is which class.

Guarantee: a column is chosen from the suspect's answers to ordinary inputs and from their labels. The key
is bound to both, so it is uniform given them: every reading of the columns that were chosen has the exact
null. Two ways to read the columns (as they come, and as they were assigned) count as two tests.
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
"""For every class the column that holds its scores, -1 where there is none."""

TIE = 1e-9
"""How much better, in nats, another order has to fit than the order in which the columns come."""


def in_order(classes: int, width: int) -> Columns:
    """Return the columns as they come: the first for the first class, and so on."""
    return tuple(c if c < width else -1 for c in range(classes))


def assign(logs: Tensor, labels: NDArray[np.int64], classes: int) -> Columns:
    """Return the columns that fit the labels best: the assignment with the largest mean log-probabilities.

    Args:
        logs: Log-probabilities, one row per labelled input and a column per score [rows, width].
        labels: The class of every row, -1 where it is unknown.
        classes: How many classes there are.

    Returns:
        A column for every class, each column at most once; -1 for classes left without one.
    """
    width = logs.shape[1]
    known = (labels >= 0) & torch.isfinite(logs).all(-1).numpy()
    rows, of = logs.numpy()[known].astype(np.float64), labels[known]
    means = np.zeros((classes, width))
    if len(rows):
        rows = rows - rows.mean(0)  # a column that is always high belongs to no class
        count = np.bincount(of, minlength=classes)[:classes]
        np.add.at(means, of, rows)
        means /= np.maximum(count, 1)[:, None]
    means[np.arange(min(classes, width)), np.arange(min(classes, width))] += TIE
    chosen = np.full(classes, -1, dtype=np.int64)
    found, columns = linear_sum_assignment(means, maximize=True)
    chosen[found] = columns
    return tuple(chosen.tolist())


def select(logs: Tensor, columns: Sequence[int]) -> Tensor:
    """Return log-probabilities of the task's classes; a class without a column gets the least there is."""
    held = torch.cat([logs, torch.full_like(logs[:, :1], float(np.log(PROBABILITY_FLOOR)))], dim=1)
    return held[:, list(columns)].log_softmax(-1)
