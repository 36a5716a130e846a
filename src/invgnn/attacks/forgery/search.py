"""Search without gradients: random, evolution by tournament, and covariance matrix adaptation."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from invgnn.errors import ParameterError
from invgnn.graphs.disjoint_union import Floats

Score: TypeAlias = Callable[[Floats], Floats]
"""Maps points [n,d] in the cube [-1,1]^d to values [n], which takes n queries."""

Rounds: TypeAlias = Generator[Floats, Floats, None]
"""A generator without end that yields points and receives their values."""


@dataclass(frozen=True, eq=False)
class Found:
    """The result of a search.

    Attributes:
        point: The best point.
        best: The best value after every query.
    """

    point: Floats
    best: Floats


class Search(ABC):
    """A strategy to find the maximum of a black-box function.

    Attributes:
        most: The largest budget that the strategy is meant for.
    """

    most: int = 100_000

    def run(self, score: Score, d: int, budget: int, rng: np.random.Generator) -> Found:
        """Search with exactly `budget` queries.

        Args:
            score: The function to maximise.
            d: Number of dimensions.
            budget: Number of queries.
            rng: Source of randomness.

        Raises:
            ParameterError: If the budget or the dimension is below 1.
        """
        if budget < 1 or d < 1:
            raise ParameterError(f"budget={budget}, d={d}", "use budget >= 1 and d >= 1")
        rounds, left = self.rounds(d, rng), budget
        points, values = [], []
        asked = next(rounds)[:left]
        while True:
            points.append(asked)
            values.append(np.asarray(score(asked), dtype=np.float64))
            left -= len(asked)
            if not left:
                break
            asked = np.clip(rounds.send(values[-1]), -1, 1)[:left]
        said = np.concatenate(values)
        return Found(np.concatenate(points)[int(said.argmax())], np.maximum.accumulate(said))

    @abstractmethod
    def rounds(self, d: int, rng: np.random.Generator) -> Rounds:
        """Yield points to evaluate and receive their values.

        Args:
            d: Number of dimensions.
            rng: Source of randomness.
        """

    def __repr__(self) -> str:
        """Return the name in tables and test ids."""
        return type(self).__name__.lower()


class Random(Search):
    """Random points, the baseline of the comparison."""

    def rounds(self, d: int, rng: np.random.Generator) -> Rounds:
        """Draw points uniformly from the cube."""
        while True:
            yield rng.uniform(-1, 1, (256, d))


class Evolution(Search):
    """A genetic algorithm: tournament selection, crossover and mutation, with elitism.

    Mutations become smaller with every generation, down to a floor.

    Args:
        size: Points per generation.
        kept: Number of best points that are kept.
        tournament: Points per tournament.
        reach: Standard deviation of the first mutations.
    """

    def __init__(self, size: int = 64, kept: int = 8, tournament: int = 3, reach: float = 0.4) -> None:
        self.size, self.kept, self.tournament, self.reach = size, kept, tournament, reach

    def rounds(self, d: int, rng: np.random.Generator) -> Rounds:
        """Produce one generation after the other."""
        points = rng.uniform(-1, 1, (self.size, d))
        values = yield points
        reach = self.reach
        while True:
            rivals = rng.integers(len(points), size=(2, self.size, self.tournament))
            winners = np.take_along_axis(rivals, values[rivals].argmax(-1)[..., None], -1)[..., 0]
            mother, father = points[winners]
            children = np.where(rng.random((self.size, d)) < 0.5, mother, father)
            children = np.clip(children + reach * rng.normal(size=children.shape), -1, 1)
            said = yield children
            elders = np.argsort(-values, kind="stable")[: self.kept]
            points = np.concatenate([points[elders], children[: len(said)]])
            values = np.concatenate([values[elders], said])
            reach = max(0.02, 0.9 * reach)


class Cma(Search):
    """Covariance matrix adaptation (Hansen's (mu/mu_w, lambda)), restarted when it stops improving.

    Args:
        size: Points per generation.
        sigma: Initial step size.
        patience: Generations without improvement before a restart.
    """

    def __init__(self, size: int = 24, sigma: float = 0.5, patience: int = 60) -> None:
        self.size, self.sigma, self.patience = size, sigma, patience

    def rounds(self, d: int, rng: np.random.Generator) -> Rounds:
        """Run from random starts, one after the other."""
        while True:
            yield from self._one_run(d, rng)

    def _one_run(self, d: int, rng: np.random.Generator) -> Rounds:
        """Run until there is no improvement for `patience` generations."""
        weights = np.maximum(0.0, math.log((self.size + 1) / 2) - np.log(np.arange(1, self.size + 1)))
        weights /= weights.sum()
        mass = 1 / float((weights**2).sum())
        rates = _rates(d, mass)
        mean, sigma, cov = rng.uniform(-1, 1, d), self.sigma, np.eye(d)
        path, drift = np.zeros(d), np.zeros(d)
        best, still = -math.inf, 0
        while still < self.patience and sigma > 1e-6:
            scale, axes = np.linalg.eigh(cov)
            root = axes * np.sqrt(np.maximum(scale, 1e-12))
            z = rng.normal(size=(self.size, d))
            said = yield np.clip(mean + sigma * z @ root.T, -1, 1)
            order = np.argsort(-said, kind="stable")
            y = (z @ root.T)[order]
            step = weights @ y
            mean = np.clip(mean + sigma * step, -1, 1)
            white = axes @ ((axes.T @ step) / np.sqrt(np.maximum(scale, 1e-12)))
            path = (1 - rates.path) * path + math.sqrt(rates.path * (2 - rates.path) * mass) * white
            drift = (1 - rates.drift) * drift + math.sqrt(rates.drift * (2 - rates.drift) * mass) * step
            old = 1 - rates.one - rates.many
            cov = old * cov + rates.one * np.outer(drift, drift) + rates.many * (y.T * weights) @ y
            length = float(np.linalg.norm(path)) / rates.length
            sigma = min(1.0, sigma * math.exp(rates.path / rates.damping * (length - 1)))
            still = 0 if float(said.max()) > best else still + 1
            best = max(best, float(said.max()))


@dataclass(frozen=True)
class _Rates:
    """Learning rates of paths, covariance and step size: the usual settings."""

    path: float
    drift: float
    one: float
    many: float
    damping: float
    length: float


def _rates(d: int, mass: float) -> _Rates:
    """Return the usual learning rates for a dimension and an effective number of parents."""
    path = (mass + 2) / (d + mass + 5)
    one = 2 / ((d + 1.3) ** 2 + mass)
    many = min(1 - one, 2 * (mass - 2 + 1 / mass) / ((d + 2) ** 2 + mass))
    damping = 1 + 2 * max(0.0, math.sqrt((mass - 1) / (d + 1)) - 1) + path
    length = math.sqrt(d) * (1 - 1 / (4 * d) + 1 / (21 * d * d))
    return _Rates(path, (4 + mass / d) / (d + 4 + 2 * mass / d), one, many, damping, length)
