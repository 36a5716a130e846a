"""ScoreShift: how closely scores follow a secret direction among public features."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import median_filter
from scipy.special import ndtri
from scipy.stats import rankdata

from invgnn.stats import laws
from invgnn.watermark.baseline import Scores


@dataclass(frozen=True)
class ScoreShift:
    """How closely a suspect's scores follow the secret direction.

    Evidence is computed from the distances `chord` and `chord_within` between unit vectors, not from the
    cosines: near 1 a cosine has lost the digits that matter. The better of the two counts, for one bit.

    Guarantee: if the direction is uniform on the sphere given the suspect's scores, the inputs and the
    baseline scores, Pr[p <= u] <= u for every u, whatever the model and the dependence among inputs.

    Attributes:
        cosine: Cosine with the direction over all inputs.
        within: Cosine over differences among inputs of the same predicted class.
        chord: Distance of the unit vectors behind `cosine`, every rounding error included.
        chord_within: Distance of the unit vectors behind `within`, every rounding error included.
        dimension: Number of features.
        inputs: Number of inputs.
        unsure: Probability that the distances do not include all errors.
    """

    cosine: float
    within: float
    chord: float
    chord_within: float
    dimension: int
    inputs: int
    unsure: float = 0.0

    @property
    def log_p(self) -> float:
        """Natural logarithm of an upper bound on the probability that a random direction is as close."""
        one, other = (laws.log_p_chord(c, self.dimension) for c in (self.chord, self.chord_within))
        return laws.log_p_plus(laws.log_p_combined(one, other), self.unsure)

    def bits(self, tests: int = 1) -> float:
        """Return the evidence in bits, less log2 of the number of tests."""
        return laws.evidence_bits(self.log_p, tests)


def beyond(answers: NDArray[np.float64], before: Scores) -> NDArray[np.float64]:
    """Return the residual of answers after a least-squares fit to the baseline scores.

    The regressors are the normal scores of the baseline in every class, and its top class.
    """
    top = before.argmax(1)[:, None] == np.arange(before.shape[1])
    known = np.column_stack([np.ones(len(before)), top, *map(standing, before.T)])
    left = answers - known @ np.linalg.lstsq(known, answers, rcond=1e-9)[0]
    rounding = float(np.linalg.norm(left)) <= 1e-9 * float(np.linalg.norm(answers))  # no answers at all
    return np.zeros_like(left) if rounding else np.asarray(left)


def standing(answers: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the normal scores of answers by their rank, centred at zero."""
    scores = ndtri((rankdata(answers) - 0.5) / len(answers))
    return np.asarray(scores - scores.mean())


def follow(features: NDArray[np.float64], answers: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return how strongly answers correlate with each feature, relative to neighbouring features.

    A model's own preferences lie along the features with the widest spread. Each correlation is divided by
    the median size among its neighbours and clipped. Only the suspect and the inputs are used.
    """
    along = (features - features.mean(0)).T @ answers / len(answers)
    usual = median_filter(np.abs(along), size=2 * max(8, len(along) // 8) + 1, mode="reflect")
    return np.asarray(np.clip(along / np.maximum(usual, 1e-12), -3, 3))


def _means(values: NDArray[np.float64], groups: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return, for every value, the mean of its group."""
    total, count = np.bincount(groups, values), np.bincount(groups)
    return np.asarray((total / np.maximum(count, 1))[groups])
