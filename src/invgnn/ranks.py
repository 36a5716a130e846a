"""The exact permutation law of the rank sum, and a bound where it is too dear.

The answers are fixed, ties and all; the key is uniform among those with as many ones.
"""

from __future__ import annotations

import math
from functools import lru_cache
from itertools import accumulate
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import minimize
from scipy.special import expit

from invgnn.errors import ParameterError, SuspectError

EXACT_RANK_UP_TO = 512
WHOLE_UP_TO = 128  # answers whose subsets are counted in one table; of more, those of two halves are paired

Row = tuple[int, NDArray[np.float64]]


class RankTail(NamedTuple):
    """The log p-value of a rank sum, and whether it is exact or an upper bound."""

    log_p: float
    exact: bool


def rank_sum(answers: ArrayLike, bits: ArrayLike) -> int:
    """You get twice the sum of the midranks of the answers on 1-carriers (an integer)."""
    return int(_doubled_midranks(as_answers(answers))[as_bits(bits)].sum())


def log_p_rank(answers: ArrayLike, bits: ArrayLike) -> RankTail:
    """You get log Pr[rank sum >= the observed one], ties included.

    Guarantee: for m <= 512 the exact permutation law given the answers; above, an upper bound
    (`exact` false), valid and only less sharp. Condition as for `null.log_p`.
    """
    ranks, w = _doubled_midranks(as_answers(answers)), as_bits(bits)
    n, s = int(w.sum()), int(ranks[w].sum())
    if w.size > EXACT_RANK_UP_TO:
        return RankTail(log_rank_bound(ranks, n, s), False)
    tail = _count_tail(np.sort(ranks).tolist(), n, s)
    return RankTail(min(0.0, math.log(tail) - math.log(math.comb(w.size, n))), True)


def log_rank_bound(weights: ArrayLike, n: int, s: float) -> float:
    """You get a Chernoff bound on log Pr[sum of n weights drawn without replacement >= s].

    Guarantee: an upper bound at every (shift, slope >= 0), so a poor optimum costs sharpness and
    never validity.
    """
    w = np.asarray(weights, dtype=np.float64)
    spread = float(w.std())
    if spread == 0.0:
        return 0.0
    u, goal = (w - w.mean()) / spread, (s - n * float(w.mean())) / spread

    def bound(at: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        z = at[0] + at[1] * u
        value = float(np.logaddexp(0.0, z).sum() - at[0] * n - at[1] * goal)
        return value, np.array([expit(z).sum() - n, expit(z) @ u - goal])

    region = [(None, None), (0, None)]
    best = minimize(bound, np.zeros(2), jac=True, method="L-BFGS-B", bounds=region)
    return min(0.0, bound(best.x)[0] - math.log(math.comb(w.size, n)))


def as_answers(answers: ArrayLike) -> NDArray[np.float64]:
    """You get the answers as a vector of numbers, or an error."""
    r = np.asarray(answers, dtype=np.float64)
    if r.ndim != 1 or not r.size or np.isnan(r).any():
        advice = "give one number per carrier; NaN has no rank"
        raise SuspectError(f"answers of shape {r.shape} are empty, nested or NaN", advice)
    return r


def as_bits(bits: ArrayLike) -> NDArray[np.bool_]:
    """You get the bits as a vector of booleans, or an error."""
    w = np.asarray(bits)
    if w.ndim != 1 or not ((w == 0) | (w == 1)).all():
        raise ParameterError("bits must be a vector of zeros and ones", "pass the mark's own bits")
    return w.astype(np.bool_)


def _doubled_midranks(r: NDArray[np.float64]) -> NDArray[np.int64]:
    ordered = np.sort(r)
    return np.searchsorted(ordered, r, "left") + np.searchsorted(ordered, r, "right") + 1


@lru_cache(maxsize=2)  # answers without ties all share one table
def _subsets(weights: tuple[int, ...]) -> tuple[Row, ...]:
    """Per size k: the least sum of k weights (ascending), and how many subsets have each sum up."""
    low = (0, *accumulate(weights))
    high = (0, *accumulate(reversed(weights)))
    size, half = len(weights), len(weights) // 2
    rows = [np.zeros(b - a + 1) for a, b in zip(low[: half + 1], high, strict=False)]
    rows[0][0] = 1.0
    for i, weight in enumerate(weights):
        for k in range(min(i + 1, half), 0, -1):
            start = weight - weights[k - 1]
            width = low[i] - low[i - k + 1] - low[k - 1] + 1  # k-1 of the first i, largest to least
            rows[k][start : start + width] += rows[k - 1][:width]
    # What k weights leave out are the other size - k: the same counts, from the largest sum down.
    rows += [rows[size - k][::-1].copy() for k in range(half + 1, size + 1)]
    return tuple(zip(low, rows, strict=True))


@lru_cache(maxsize=1)
def _tails(weights: tuple[int, ...]) -> tuple[Row, ...]:
    """Per size k: the least sum of k weights, and how many subsets have at least each sum up."""
    rows = _subsets(weights)
    return tuple((low, np.append(np.cumsum(row[::-1])[::-1], 0.0)) for low, row in rows)


def _count_tail(ranks: list[int], n: int, s: int) -> float:
    """How many n-subsets of the ascending ranks sum to at least s: additions only, so no loss."""
    step = math.gcd(*(rank - ranks[0] for rank in ranks)) or 1
    w = [(rank - ranks[0]) // step for rank in ranks]
    need, half = (s - n * ranks[0]) // step, len(w) // 2 if len(w) > WHOLE_UP_TO else 0
    lower = _subsets(tuple(w[:half]))
    upper = _tails(tuple(x - w[half] for x in w[half:]))
    sizes = range(max(0, n - len(w) + half), min(n, half) + 1)
    return math.fsum(_pairs_reaching(lower[k], upper[n - k], need - (n - k) * w[half]) for k in sizes)


def _pairs_reaching(lower: Row, upper: Row, need: int) -> float:
    """How many pairs of subsets, one of a row and one of a tail, together sum to at least `need`."""
    (low, few), (base, tail) = lower, upper
    index = np.arange(need - low - base, need - low - base - few.size, -1)
    return float(few @ tail.take(index, mode="clip"))
