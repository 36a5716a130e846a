"""How many carriers, and how many of them right: thresholds under every null, with their true alpha."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from invgnn.stats import null
from invgnn.stats.null import NULLS, Null
from invgnn.theory.statement import Assumption, Statement

PAPER_TABLE = {64: 42, 96: 68, 128: 94, 192: 150}
"""The thresholds in the paper's table of m against tau, said to be for alpha = 1e-6."""

ACCURACIES = (0.8, 0.9, 0.95)


@dataclass(frozen=True)
class Threshold(Statement):
    """A threshold at m carriers: what it promises, and how often an innocent suspect truly reaches it.

    true_alpha   for a balanced key and answers without ties, the exact law
    worst_alpha  for a balanced key and the most favourable number of ones said; ties can make an odd
                 threshold easier to reach
    iid_alpha    for independent fair bits, the law the paper has in mind
    tolerated    the share of wrong bits it lets pass, (m - tau) / m: the paper's eps_err
    """

    null: str
    m: int
    alpha: float
    threshold: int
    true_alpha: float
    worst_alpha: float
    iid_alpha: float

    @property
    def tolerated(self) -> float:
        return (self.m - self.threshold) / self.m

    @property
    def sound(self) -> bool:
        """No suspect passes more often than promised, however many ones it says."""
        return self.worst_alpha <= self.alpha


@dataclass(frozen=True)
class Size(Statement):
    """The smallest m whose threshold is reached with the wanted power at a bit accuracy."""

    accuracy: float
    power: float
    threshold: Threshold


def thresholds(
    ms: Iterable[int] = tuple(PAPER_TABLE),
    alpha: float = 1e-6,
    nulls: Sequence[Null] = tuple(NULLS.values()),
) -> list[Threshold]:
    """You get one row per null and m.

    Guarantee: `true_alpha` and `worst_alpha` are exact for every row, whatever its null claims.
    """
    return [threshold(law.name, m, law.threshold(m, alpha), alpha, law) for law in nulls for m in ms]


def paper_table(alpha: float = 1e-6) -> list[Threshold]:
    """You get the thresholds printed in the paper, which follow no formula, with their true alpha."""
    return [threshold("paper's table", m, tau, alpha) for m, tau in PAPER_TABLE.items()]


def threshold(name: str, m: int, tau: int, alpha: float, law: Null | None = None) -> Threshold:
    """You get the row of any threshold, with the alpha it truly has."""
    true = NULLS["exact"].true_alpha(m, tau)
    worst = max(NULLS["exact"].true_alpha(m, tau, ones) for ones in range(m // 2 + 1))  # else mirrored
    iid = math.exp(NULLS["binomial"].log_tail(m, tau))
    key = Assumption("the key is balanced and random given the answers")
    why = () if law is None else (Assumption(law.caveat, None if worst <= alpha else False),)
    return Threshold(name, m, alpha, tau, true, worst, iid, assumptions=(key, *why))


def sizes(
    alpha: float = 1e-6,
    accuracies: Iterable[float] = ACCURACIES,
    power: float = 0.99,
    nulls: Sequence[Null] = tuple(NULLS.values()),
) -> list[Size]:
    """You get, for every null and bit accuracy, the smallest m that reaches the power.

    Guarantee: the power is exact if bits are read right independently of each other, a planning figure
    (`null.power`). Compare rows only where `threshold.sound`: a lax threshold is easily reached.
    """
    wanted = list(accuracies)
    return [_size(law, alpha, accuracy, power) for law in nulls for accuracy in wanted]


def _size(law: Null, alpha: float, accuracy: float, power: float) -> Size:
    m = null.smallest_m(alpha, accuracy, power, law)
    row = threshold(law.name, m, law.threshold(m, alpha), alpha, law)
    reached = null.power(m, row.threshold, accuracy)
    independent = Assumption("bits are read right independently of each other")
    return Size(accuracy, reached, row, assumptions=(*row.assumptions, independent))
