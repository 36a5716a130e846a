"""The explanation that EXPL marks: a regression of output kernels on feature kernels (pure functions)."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.stats import norm
from torch import Tensor

BANDWIDTH = 0.2
"""Divisor of squared distances, per feature or class."""
RIDGE = 0.1
"""Ridge of the regression."""
CONFIDENCE = 0.999999
"""Confidence from which the number of marked features follows."""


def standard(values: Tensor) -> Tensor:
    """Return values minus their mean, divided by their deviation; both are single numbers.

    Args:
        values: Any values.
    """
    deviation, mean = torch.std_mean(values, correction=0)
    return (values - mean) / deviation.clamp(min=1e-9)


def centred(kernels: Tensor) -> Tensor:
    """Return kernels with centred rows and columns and Frobenius norm 1; constant ones become 0.

    Args:
        kernels: Kernel matrices [n, n, ...].
    """
    rows, columns = kernels.mean(1, keepdim=True), kernels.mean(0, keepdim=True)
    found = kernels - rows - columns + kernels.mean((0, 1), keepdim=True)
    size = found.square().sum((0, 1), keepdim=True).sqrt()
    return torch.where(size > 1e-7, found / size.clamp(min=1e-7), torch.zeros_like(found))


def half(kernels: Tensor) -> Tensor:
    """Return symmetric matrices as vectors of their upper triangles, with the same inner products.

    Args:
        kernels: Symmetric matrices [n, n, ...].

    Returns:
        The entries [n (n + 1) / 2, ...]; those off the diagonal are multiplied by the root of 2.
    """
    rows, columns = torch.triu_indices(*kernels.shape[:2])
    scale = torch.where(rows == columns, 1.0, math.sqrt(2.0)).to(kernels)
    found = kernels[rows, columns]
    return found * scale.view(-1, *[1] * (found.dim() - 1))


def feature_kernels(x: Tensor) -> Tensor:
    """Return the kernel of every feature as a column [n (n + 1) / 2, F].

    Args:
        x: Feature rows [n, F].
    """
    x = standard(x)
    squared = (x[:, None] - x[None]).square()
    return half(centred((-squared / (BANDWIDTH * x.shape[1])).exp()))


def output_kernel(probabilities: Tensor) -> Tensor:
    """Return the kernel of the outputs as one column [n (n + 1) / 2], differentiably.

    Args:
        probabilities: Class probabilities [n, C].
    """
    p = standard(probabilities)
    squared = (p[:, None] - p[None]).square().sum(-1)
    return half(centred((-squared / (BANDWIDTH * p.shape[1])).exp()))


def solver(x: Tensor) -> Tensor:
    """Return the matrix that maps an output kernel to the coefficients of the features.

    It is (K'K + ridge)⁻¹ K', computed in the smaller of its two equal forms. Features that are constant
    over the rows have coefficient 0.

    Args:
        x: Feature rows [n, F].
    """
    k = feature_kernels(x)
    if k.shape[1] <= k.shape[0]:
        ridge = RIDGE * torch.eye(k.shape[1]).to(k)
        found = torch.linalg.solve(k.T @ k + ridge, k.T)
    else:
        ridge = RIDGE * torch.eye(k.shape[0]).to(k)
        found = torch.linalg.solve(k @ k.T + ridge, k).T
    return torch.where((k != 0).any(0)[:, None], found, torch.zeros_like(found))


def coefficients(x: Tensor, probabilities: Tensor) -> Tensor:
    """Return the coefficient of every feature in the explanation of outputs [F].

    Args:
        x: Feature rows [n, F].
        probabilities: Class probabilities [n, C].
    """
    return solver(x) @ output_kernel(probabilities)


def match_index(signs: NDArray[np.int8]) -> NDArray[np.int64]:
    """Return the number of features whose sign is the same, and not 0, in all sets.

    Args:
        signs: Signs of the coefficients [..., T, F].
    """
    return np.asarray((np.abs(signs.sum(-2, dtype=np.int64)) == signs.shape[-2]).sum(-1))


@dataclass(frozen=True)
class Size:
    """How many features the authors mark, for a number of features and sets.

    Attributes:
        threshold: The match index t from which the mark counts as shown.
        marked: Number M of marked features.
    """

    threshold: int
    marked: int


def mark_size(features: int, sets: int, confidence: float = CONFIDENCE) -> Size | None:
    """Return the authors' threshold and number of marked features; None if there are too few features.

    In theory the signs of all sets agree with probability 2^(1-T), independently for every feature.

    Args:
        features: Number of features F.
        sets: Number of sets T.
        confidence: One-sided confidence of both limits.
    """
    chance = 2.0 ** (1 - sets)
    mean = features * chance
    width = float(norm.ppf(confidence)) * math.sqrt(features * chance * (1 - chance))
    threshold = math.ceil(mean + width)
    if threshold >= features:
        return None
    marked = math.ceil((threshold - (mean - width)) / ((features - threshold) / features))
    return Size(threshold, marked) if marked <= features else None
