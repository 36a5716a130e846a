"""Means over seeds: Student's intervals, paired differences, and the interval of the paper."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import mean, stdev
from typing import Any

from scipy.stats import t as student


@dataclass(frozen=True)
class Interval:
    """A mean with its 95 % confidence interval (Student).

    Attributes:
        mean: The mean.
        half: Half the width of the interval; None for a single value.
    """

    mean: float
    half: float | None

    @classmethod
    def of(cls, values: Sequence[float]) -> Interval:
        """Return the interval of the mean of some values.

        Args:
            values: At least one value.
        """
        n = len(values)
        if n < 2:
            return cls(values[0], None)
        return cls(mean(values), float(student.ppf(0.975, n - 1)) * stdev(values) / math.sqrt(n))

    def __str__(self) -> str:
        width = "" if self.half is None else f" ± {100 * self.half:.1f}"
        return f"{100 * self.mean:.1f}{width}"


def paired(first: Mapping[Any, float], second: Mapping[Any, float]) -> list[float]:
    """Return the differences of values with the same key, in the order of the first.

    Args:
        first: Values by key, such as the seed.
        second: The values to subtract.
    """
    return [value - second[key] for key, value in first.items() if key in second]


def paired_p(differences: Sequence[float]) -> float | None:
    """Return the two-sided p-value of Student's paired test; None if it is not defined.

    Args:
        differences: One difference per seed.
    """
    n = len(differences)
    if n < 2 or stdev(differences) == 0:
        return None
    return float(2 * student.sf(abs(mean(differences)) / (stdev(differences) / math.sqrt(n)), n - 1))


def normal_half(values: Sequence[float]) -> float | None:
    """Return half the width of the interval of the paper, mean ± 1.96 s/√n.

    Over three seeds it covers 81 % and not 95 %. It serves to compare widths with the paper's.

    Args:
        values: One value per seed.
    """
    return None if len(values) < 2 else 1.96 * stdev(values) / math.sqrt(len(values))
