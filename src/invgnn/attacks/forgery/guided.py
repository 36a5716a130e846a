"""Search with a model of the objective: Parzen estimators, and a Gaussian process."""

from __future__ import annotations

import math

import numpy as np
from scipy.linalg import cho_factor, cho_solve
from scipy.special import logsumexp

from invgnn.attacks.forgery.search import Rounds, Search
from invgnn.graphs.disjoint_union import Floats


class Tpe(Search):
    """Tree-structured Parzen estimator: points where the density of good points most exceeds that of bad.

    Args:
        batch: Points per round.
        start: Random points at the start.
        good: Share of the points that count as good.
        limit: Largest number of good points.
    """

    most = 10_000

    def __init__(self, batch: int = 16, start: int = 64, good: float = 0.1, limit: int = 24) -> None:
        self.batch, self.start, self.good, self.limit = batch, start, good, limit

    def rounds(self, d: int, rng: np.random.Generator) -> Rounds:
        """Start at random, then choose the most promising of many draws from the density of good points."""
        points = rng.uniform(-1, 1, (self.start, d))
        values = yield points
        while True:
            order = np.argsort(-values, kind="stable")
            count = min(self.limit, max(2, int(self.good * len(values))))
            good, rest = points[order[:count]], points[order[count:]]
            bad = rest[rng.permutation(len(rest))[: 8 * self.limit]]
            width = np.clip(good.std(0), 0.05, 1.0) * count ** (-1 / (d + 4))
            near = good[rng.integers(count, size=16 * self.batch)]
            drawn = np.clip(near + width * rng.normal(size=near.shape), -1, 1)
            wide = np.clip(bad.std(0), 0.05, 1.0) * len(bad) ** (-1 / (d + 4))
            gain = log_density(drawn, good, width) - log_density(drawn, bad, wide)
            asked = drawn[np.argsort(-gain, kind="stable")[: self.batch]]
            said = yield asked
            points = np.concatenate([points, asked[: len(said)]])
            values = np.concatenate([values, said])


def log_density(at: Floats, centres: Floats, width: Floats) -> Floats:
    """Return the log of the mean of Gaussians around the centres.

    Args:
        at: Points to evaluate.
        centres: Centres of the Gaussians.
        width: Standard deviation per dimension.
    """
    z = (at[:, None] - centres) / width
    logs = -0.5 * (z * z).sum(-1) - np.log(width).sum() - 0.5 * at.shape[1] * math.log(2 * math.pi)
    return np.asarray(logsumexp(logs, axis=1) - math.log(len(centres)))


class Gp(Search):
    """Thompson sampling: points where a function drawn from a Gaussian process posterior is largest.

    Args:
        batch: Points per round.
        start: Random points at the start.
        candidates: Candidate points per round.
        noise: Variance of the noise, relative to that of the values.
    """

    most = 1_000

    def __init__(self, batch: int = 8, start: int = 32, candidates: int = 384, noise: float = 0.05) -> None:
        self.batch, self.start, self.candidates, self.noise = batch, start, candidates, noise

    def rounds(self, d: int, rng: np.random.Generator) -> Rounds:
        """Start at random, then draw one function from the posterior for every point of a batch."""
        points = rng.uniform(-1, 1, (self.start, d))
        values = yield points
        while True:
            scaled = (values - values.mean()) / max(float(values.std()), 1e-9)
            length = max(
                (s * math.sqrt(d) for s in (0.3, 0.6, 1.2)),
                key=lambda one: log_evidence(points, scaled, one, self.noise),
            )
            free = rng.uniform(-1, 1, (self.candidates // 2, d))
            top = points[np.argsort(-values, kind="stable")[: self.batch]]
            near = top[rng.integers(len(top), size=self.candidates - len(free))]
            pool = np.concatenate([free, np.clip(near + 0.15 * rng.normal(size=near.shape), -1, 1)])
            mean, cov = posterior(pool, points, scaled, length, self.noise)
            draws = mean + rng.normal(size=(self.batch, len(pool))) @ np.linalg.cholesky(cov).T
            asked = pool[np.unique(draws.argmax(1))]
            said = yield asked
            points = np.concatenate([points, asked[: len(said)]])
            values = np.concatenate([values, said])


def kernel(a: Floats, b: Floats, length: float) -> Floats:
    """Return the squared-exponential covariance of the points a [n,d] and b [k,d].

    Args:
        a: Points.
        b: Points.
        length: Length scale.
    """
    squares = (a * a).sum(1)[:, None] + (b * b).sum(1) - 2 * a @ b.T
    return np.asarray(np.exp(-0.5 * np.maximum(squares, 0.0) / length**2))


def posterior(
    at: Floats, points: Floats, values: Floats, length: float, noise: float
) -> tuple[Floats, Floats]:
    """Return mean and covariance of the process at some points, given noisy values at others.

    Args:
        at: Points to evaluate.
        points: Points with known values.
        values: Their values.
        length: Length scale.
        noise: Variance of the noise.
    """
    factor = cho_factor(kernel(points, points, length) + noise * np.eye(len(points)), lower=True)
    cross = kernel(at, points, length)
    cov = kernel(at, at, length) - cross @ cho_solve(factor, cross.T)
    return cross @ cho_solve(factor, values), 0.5 * (cov + cov.T) + 1e-6 * np.eye(len(at))


def log_evidence(points: Floats, values: Floats, length: float, noise: float) -> float:
    """Return the log density of the values under the process, up to a constant.

    Args:
        points: The points.
        values: Their values.
        length: Length scale.
        noise: Variance of the noise.
    """
    factor = cho_factor(kernel(points, points, length) + noise * np.eye(len(points)), lower=True)
    fit = float(values @ cho_solve(factor, values))
    return -0.5 * fit - float(np.log(np.diag(factor[0])).sum())
