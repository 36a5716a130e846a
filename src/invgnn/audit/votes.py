"""How strongly every answer speaks for the bit 1, from answers alone."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata

from invgnn.readout.answers import rounded

Floats = NDArray[np.float64]

RULES = 2
"""Rules by which audits bet and decide. Transcripts that do not name theirs were made by rules 1: no bet by
clusters, all declared levels share the wealth, and a decision comes after every 16 questions."""
SHARES = {1: (0.5, 0.25, 0.25), 2: (0.2, 0.1, 0.1, 0.6)}
"""Shares of the wealth, by rules, that bet by the median of ordinary answers, by the median of carriers, by
ranks, and by the border between the two clusters of answers to carriers."""
RANKS = 2
"""The place of ranks among these; all others compare an answer with a threshold."""
TAIL = 8
"""One in so many answers at each end, which may be absurd, counts as its neighbour among clusters."""
LARGEST = 1e140
"""Distance of answers above which they have no clusters, since squares would overflow."""


def votes_of(values: Floats, carriers: NDArray[np.bool_], binary: bool) -> Floats:
    """Return how strongly each answer speaks for the bit 1, in four ways [4, questions].

    The first two compare an answer with the median of the ordinary inputs, and of the carriers answered so
    far. The third is its rank among these carriers, from -1 to 1. The last compares it with the border
    between the two clusters of their answers, which a few carriers show, also if most of their bits are
    equal. A tie, or a missing answer, is 0.

    Guarantee: depends on answers alone, never on bits.

    Args:
        values: The answers to all questions asked so far; NaN where there is none.
        carriers: Which of them are carriers.
        binary: Whether answers are 0 or 1.
    """
    values = rounded(np.where(np.isfinite(values), values, np.nan))
    known = np.isfinite(values)
    out = np.zeros((4, len(values)))
    if binary:
        out[:] = _sides(values, 0.5)
        return out
    mine = known & carriers
    for row, group in enumerate((known & ~carriers, mine)):
        if group.any():
            with np.errstate(over="ignore"):
                out[row] = _sides(values, float(np.median(values[group])))
    if mine.any():
        out[RANKS, mine] = (2 * rankdata(values[mine]) - 1) / mine.sum() - 1
        out[3] = _sides(values, _border(values[mine]))
    return out


def _sides(values: Floats, threshold: float) -> Floats:
    """Return 1 above a threshold, -1 below it, and 0 at it or where there is no value."""
    return (values > threshold).astype(np.float64) - (values < threshold)


def _border(values: Floats) -> float:
    """Return the border between the two clusters of some values whose squared distances are least."""
    held = np.sort(values)
    low, high = held[len(held) // TAIL], held[-1 - len(held) // TAIL]
    with np.errstate(over="ignore"):
        width = high - low
    if not 0 < width < LARGEST:
        return float(low)
    held = np.clip(held, low, high) - low
    left, sums = np.arange(1, len(held)), np.cumsum(held)  # summed one by one, so the same everywhere
    right, rest = len(held) - left, sums[-1] - sums[:-1]
    place = int((np.square(sums[:-1] / left - rest / right) * left * right).argmax())
    return float(low + (held[place] + held[place + 1]) / 2)
