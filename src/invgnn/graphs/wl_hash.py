"""Weisfeiler-Lehman hashes of graphs in integer arithmetic: the same values on every machine.

Changing this breaks every mark in the field; golden vectors in the tests guard it.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from invgnn.errors import ParameterError
from invgnn.graphs.disjoint_union import Graphs, Words, sum_runs

# Two lanes, each with its own 64-bit mixing function: one column per lane (splitmix64 and the finaliser
# of MurmurHash3).
_ADD = np.array([0x9E3779B97F4A7C15, 0xD1B54A32D192ED03], dtype=np.uint64)
_TIMES = np.array(
    [[0xBF58476D1CE4E5B9, 0xFF51AFD7ED558CCD], [0x94D049BB133111EB, 0xC4CEB9FE1A85EC53]],
    dtype=np.uint64,
)
_SHIFT = np.array([[30, 33], [27, 33], [31, 33]], dtype=np.uint64)
_OWN = np.array([0xD6E8FEB86659FD93, 0xA0761D6478BD642F], dtype=np.uint64)


def _mix(words: Words, lane: int) -> Words:
    """Return 64-bit words passed through the mixing function of a lane."""
    z: Words = words + _ADD[lane]
    for shift, times in zip(_SHIFT[:, lane], _TIMES[:, lane], strict=False):
        z ^= z >> shift
        z *= times
    z ^= z >> _SHIFT[2, lane]
    return z


def wl_hash(g: Graphs, labels: ArrayLike | None = None, rounds: int = 3) -> Words:
    """Compute a 128-bit Weisfeiler-Lehman hash of each graph, as two words [G,2].

    Isomorphic graphs have equal hashes. So have graphs that `rounds` rounds of colour refinement cannot
    distinguish. Only integers are used: the value is the same on every machine and may be stored.

    Args:
        g: The graphs.
        labels: One integer per node; all nodes are equal by default. `label_nodes` makes labels of
            features.
        rounds: Number of rounds of colour refinement.

    Returns:
        The hashes.

    Raises:
        ParameterError: If `rounds` is negative, or `labels` is not one integer per node.
    """
    if rounds < 0:
        raise ParameterError(
            f"rounds is {rounds}, expected 0 or more", "use a non-negative number of rounds"
        )
    own = np.zeros(g.num_nodes, dtype=np.int64) if labels is None else np.asarray(labels)
    if own.shape != (g.num_nodes,) or own.dtype.kind not in "iub":
        raise ParameterError(
            f"labels of shape {own.shape} and type {own.dtype} for {g.num_nodes} nodes",
            "pass one integer per node; label_nodes(x) computes them from features",
        )
    words = own.astype(np.uint64)
    return np.stack([_hash_lane(g, words, rounds, lane) for lane in (0, 1)], axis=1)


def _hash_lane(g: Graphs, labels: Words, rounds: int, lane: int) -> Words:
    """Compute one word of the hash of each graph."""
    ends, others = g.edges.T.ravel(), g.edges.T[::-1].ravel()
    colour = _mix(labels, lane)
    for _ in range(rounds):
        around = colour * _OWN[lane]
        np.add.at(
            around, ends, colour.take(others)
        )  # wraps on overflow as intended; the order of neighbours does not matter
        colour = _mix(around, lane)
    return _mix(sum_runs(_mix(colour, lane), g.ptr) + g.sizes.astype(np.uint64) * _OWN[lane], lane)


def label_nodes(x: ArrayLike, decimals: int = 4) -> Words:
    """Compute one stable label per row of features [N].

    Rows that are equal after rounding get equal labels.

    Args:
        x: The features [N,F].
        decimals: Number of decimal places that count.
    """
    rows = np.asarray(x, dtype=np.float64)
    # Beyond 2**53 a float is not an exact integer, and its cast differs between machines.
    whole = np.clip(np.rint(rows * 10.0**decimals), -(2.0**53), 2.0**53).astype(np.int64)
    row, column = np.nonzero(whole)  # zeros contribute nothing: one-hot rows and word counts stay cheap
    place = _mix(np.arange(rows.shape[1], dtype=np.uint64), 0)
    cells = _mix(whole[row, column].astype(np.uint64) + place[column], 0)
    return _mix(sum_runs(cells, np.searchsorted(row, np.arange(len(rows) + 1))), 0)
