"""The exact law of right labels, if every label is uniform over the classes and independent of the rest."""

from __future__ import annotations

import math

from invgnn.errors import ParameterError
from invgnn.stats.rank_sum import log_ratio


def log_p_labels(right: int, asked: int, classes: int) -> float:
    """Return log Pr[Binomial(asked, 1/classes) >= right], rounded upwards.

    Guarantee: a p-value for any suspect that is independent of the labels, because each of its answers then
    is right with probability 1/classes, independently. Computed with whole numbers.

    Args:
        right: Number of right labels.
        asked: Number of labels.
        classes: Number of classes.

    Raises:
        ParameterError: If the numbers do not fit together.
    """
    if not 0 <= right <= asked or classes < 2:
        raise ParameterError(
            f"{right} of {asked} labels with {classes} classes", "use at least 2 classes and right <= asked"
        )
    ways = sum(math.comb(asked, k) * (classes - 1) ** (asked - k) for k in range(right, asked + 1))
    return log_ratio(ways, classes**asked)
