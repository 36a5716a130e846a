"""Numbers of carriers and thresholds under every null, with their true alpha."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from invgnn.stats import null
from invgnn.stats.null import NULLS, Null
from invgnn.theory.statement import Assumption, Statement

PAPER_TABLE = {64: 42, 96: 68, 128: 94, 192: 150}
"""The thresholds in the paper's table of m against tau, which the paper states for alpha = 1e-6."""

ACCURACIES = (0.8, 0.9, 0.95)


@dataclass(frozen=True)
class Threshold(Statement):
    """A threshold at m carriers: its nominal level, and how often an independent suspect reaches it.

    Attributes:
        null: Name of the null.
        m: Number of carriers.
        alpha: The nominal level.
        threshold: The threshold.
        true_alpha: The exact level for a balanced key and answers without ties.
        worst_alpha: The exact level for a balanced key and the most favourable number of decoded ones; ties
            can make an odd threshold easier to reach.
        iid_alpha: The level for independent fair bits, which the paper assumes.
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
        """The share of wrong bits that the threshold allows, (m - tau) / m: the paper's eps_err."""
        return (self.m - self.threshold) / self.m

    @property
    def sound(self) -> bool:
        """Whether no independent suspect passes more often than alpha, for any number of decoded ones."""
        return self.worst_alpha <= self.alpha


@dataclass(frozen=True)
class Size(Statement):
    """The smallest m whose threshold is reached with the required power at a bit accuracy.

    Attributes:
        accuracy: Probability that a bit is read right.
        power: Probability of reaching the threshold.
        threshold: The threshold at this m.
    """

    accuracy: float
    power: float
    threshold: Threshold


def thresholds(
    ms: Iterable[int] = tuple(PAPER_TABLE),
    alpha: float = 1e-6,
    nulls: Sequence[Null] = tuple(NULLS.values()),
) -> list[Threshold]:
    """Return one row per null and m.

    Guarantee: `true_alpha` and `worst_alpha` are exact for every row, whatever its null assumes.

    Args:
        ms: Numbers of carriers.
        alpha: The nominal level.
        nulls: The nulls.
    """
    return [threshold(law.name, m, law.threshold(m, alpha), alpha, law) for law in nulls for m in ms]


def paper_table(alpha: float = 1e-6) -> list[Threshold]:
    """Return the thresholds printed in the paper, which follow no formula, with their true alpha."""
    return [threshold("paper's table", m, tau, alpha) for m, tau in PAPER_TABLE.items()]


def threshold(name: str, m: int, tau: int, alpha: float, law: Null | None = None) -> Threshold:
    """Return the row of any threshold, with its true alpha.

    Args:
        name: Name of the null.
        m: Number of carriers.
        tau: The threshold.
        alpha: The nominal level.
        law: The null, if any; its caveat becomes an assumption.
    """
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
    """Return, for every null and bit accuracy, the smallest m that reaches the power.

    Guarantee: the power is exact if bits are read right independently of each other; use it for planning
    (`null.power`). Compare rows only where `threshold.sound`: a threshold that is too low is easily
    reached.

    Args:
        alpha: The nominal level.
        accuracies: Probabilities that a bit is read right.
        power: The required probability of reaching the threshold.
        nulls: The nulls.
    """
    wanted = list(accuracies)
    return [_size(law, alpha, accuracy, power) for law in nulls for accuracy in wanted]


def _size(law: Null, alpha: float, accuracy: float, power: float) -> Size:
    """Return the row of one null and bit accuracy."""
    m = null.smallest_m(alpha, accuracy, power, law)
    row = threshold(law.name, m, law.threshold(m, alpha), alpha, law)
    reached = null.power(m, row.threshold, accuracy)
    independent = Assumption("bits are read right independently of each other")
    return Size(accuracy, reached, row, assumptions=(*row.assumptions, independent))
