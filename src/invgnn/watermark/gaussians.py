"""Normal numbers from a secret stream, and a bound on how far a direction made of them is from uniform."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from invgnn.secret import Stream

EPSILON = 2.0**-53


ERROR = 1e-12
"""Bound on the error of a normal number (`gaussians`)."""


SLACK = 1e-12
"""Bound on the rounding of the distance between two unit vectors, with room to spare."""


def gaussians(stream: Stream, n: int) -> NDArray[np.float64]:
    """Return n standard normal numbers, each from three words of a stream.

    Guarantee: there are independent, exactly normal numbers, one for each, that differ from these by at
    most `ERROR`, or `ERROR` times their size where that exceeds one, except with probability n 2^-151. A
    sign and 191 bits k give the probability (k + 1/2) / 2^192 to lie farther out. Where k is at least
    2^40, the width of its cell moves a number by at most 1.26 * 2^-41 < 6e-13; it is smaller with
    probability 2^-151. Rounding the probability, and scipy's inverse (checked against mpmath), add less
    than 1e-13.
    """
    words = stream.words(3 * n).reshape(n, 3)
    sign = np.where(words[:, 0] & np.uint64(1), 1.0, -1.0)
    first, second, third = (words[:, 0] >> np.uint64(1)).astype(np.float64), *words[:, 1:].astype(float).T
    outside = first * 2.0**-64 + second * 2.0**-128 + (third + 0.5) * 2.0**-192
    return np.asarray(-sign * ndtri(outside))


ERROR_1, UNSURE_1 = 2e-4, 2.0**-30
"""For format 1, whose numbers had 53 bits: where k < 2^9, the error may be larger than this. That is so for
one of 1,536 numbers with probability 2^-32, so such a channel is worth 30 bits at most."""


def _gaussians_1(stream: Stream, n: int) -> NDArray[np.float64]:
    words = (stream.words(n) >> np.uint64(11)).astype(np.float64)
    return np.asarray(ndtri((words + 0.5) / 2.0**53))


def _slack(
    axes: NDArray[np.float64], drawn: NDArray[np.float64], shadow: NDArray[np.float64], error: float
) -> float:
    """Return how far the direction may lie from one that is exactly uniform, as a distance of unit vectors.

    A vector that is moved by e of its length turns by at most 2 e. Moved is the shadow by the error of
    the normal numbers and by the rounding of the product; and by how far the axes are from orthonormal,
    which is measured, the rounding of that measurement added.
    """
    rows, columns = axes.shape
    skew = float(np.linalg.norm(axes.T @ axes - np.eye(columns))) + rows * columns * EPSILON
    size = float(np.linalg.norm(drawn))
    moved = (1 + skew) * error * (size + math.sqrt(rows)) + rows * EPSILON * math.sqrt(2 * columns) * size
    return float(SLACK + 2 * moved / float(np.linalg.norm(shadow)) + 2 * skew)
