"""Feature rows of a task, and random ones that look like them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from invgnn.errors import SchemeError
from invgnn.secret import Stream
from invgnn.training.tasks import Task

Rows = NDArray[np.float32]


def task_features(task: Task) -> Rows:
    """Return the feature rows of all nodes of the training data.

    Args:
        task: The task.

    Raises:
        SchemeError: If the nodes have no features.
    """
    graphs = [task.data] if task.level == "node" else task.data
    if any(graph.x is None for graph in graphs):
        raise SchemeError(
            "the nodes of this task have no features", "give every node features, e.g. its degree"
        )
    return np.concatenate([graph.x.cpu().numpy() for graph in graphs]).astype(np.float32)


def dense_features(draws: Stream, count: int, share: float, rows: Rows) -> Rows:
    """Return random rows in which a share of the features is set, normalised like the rows of the task.

    A feature that is set has the mean of the task's features other than 0, which is 1 for binary ones. If
    all rows of the task have the same sum, the new rows have it too.

    Args:
        draws: The stream.
        count: Number of rows.
        share: Share of the features to set; at least one is.
        rows: Feature rows of the task.
    """
    width = rows.shape[1]
    ones = max(1, int(share * width))
    x = np.zeros((count, width), dtype=np.float32)
    for row in x:
        row[draws.permutation(width)[:ones]] = 1
    sums = rows.sum(1)
    if float(np.ptp(sums)) <= 1e-3 * abs(float(sums.mean())):
        return np.asarray(x * (float(sums.mean()) / ones), dtype=np.float32)
    return np.asarray(x * float(rows[rows != 0].mean()), dtype=np.float32)
