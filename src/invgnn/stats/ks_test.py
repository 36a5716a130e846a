"""Two-sample Kolmogorov-Smirnov tests of many small samples against one pool, decided in integers.

The decisions select the carriers. Changing this breaks every mark in the field; golden vectors in the tests
guard it.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.stats import kstwo


def similar(
    values: NDArray[np.float64], ptr: NDArray[np.int64], pool: NDArray[np.float64], delta: float
) -> NDArray[np.bool_]:
    """Return which graphs pass a two-sample KS test (p >= delta) against a sorted pool.

    The statistic is computed in integers, so every machine reaches the same decision.

    Args:
        values: One value per node.
        ptr: Node offsets of the graphs [G+1].
        pool: The values of the reference, ascending.
        delta: Smallest p-value that passes.

    Returns:
        One boolean per graph.
    """
    sizes, found = np.unique(np.diff(ptr), return_inverse=True)
    critical = np.array([ks_critical(int(n), len(pool), delta) for n in sizes], dtype=np.int64)
    return ks_numerator(values, ptr, pool) <= critical[found]


def ks_numerator(
    values: NDArray[np.float64], ptr: NDArray[np.int64], pool: NDArray[np.float64]
) -> NDArray[np.int64]:
    """Compute the KS statistic of each graph against a sorted pool, times both sample sizes.

    Args:
        values: One value per node.
        ptr: Node offsets of the graphs [G+1].
        pool: The values of the reference, ascending.

    Returns:
        One integer per graph.
    """
    sizes = np.diff(ptr)
    if not len(values):
        return np.zeros(len(sizes), dtype=np.int64)
    graph = np.repeat(np.arange(len(sizes)), sizes)
    order = np.lexsort((values, graph))
    v, n = values[order], sizes[graph]
    rank = np.arange(len(v)) - ptr[graph]
    fresh = np.ones(len(v), dtype=bool)  # whether a run of equal values starts here
    fresh[1:] = (v[1:] != v[:-1]) | (graph[1:] != graph[:-1])
    starts = np.flatnonzero(fresh)
    run = np.cumsum(fresh) - 1
    below = rank[starts][run]
    upto = rank[np.append(starts[1:], len(v)) - 1][run] + 1
    left = np.abs(below * len(pool) - np.searchsorted(pool, v, "left") * n)
    right = np.abs(upto * len(pool) - np.searchsorted(pool, v, "right") * n)
    out = np.zeros(len(sizes), dtype=np.int64)
    np.maximum.at(out, graph, np.maximum(left, right))
    return out


@lru_cache(maxsize=4096)
def ks_critical(n: int, pool: int, delta: float) -> int:
    """Return the largest `ks_numerator` whose p-value is at least delta.

    The p-value is the one-sample law at the effective sample size, as in scipy's asymptotic two-sample
    test. The critical value is rounded to nine digits before it is used.

    Args:
        n: Number of nodes of the graph.
        pool: Number of values in the pool.
        delta: Smallest p-value that passes.
    """
    if not n or delta <= 0:
        return n * pool
    effective = max(1, round(n * pool / (n + pool)))
    return round(1e9 * float(kstwo.isf(delta, effective))) * n * pool // 10**9
