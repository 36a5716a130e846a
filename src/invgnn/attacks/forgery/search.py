"""Searching without gradients: random, evolution by tournament, and covariance matrix adaptation."""

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
"""Values [n] of points [n,d] in the cube [-1,1]^d: n queries."""

Rounds: TypeAlias = Generator[Floats, Floats, None]
"""Yields points to ask about, is sent their values, for ever."""


@dataclass(frozen=True, eq=False)
class Found:
    """The best point, and the best value after every query."""

    point: Floats
    best: Floats


class Search(ABC):
    """A way to look for the maximum of a black box; `most` is the largest budget it is meant for."""

    most: int = 100_000

    def run(self, score: Score, d: int, budget: int, rng: np.random.Generator) -> Found:
        """Spend exactly `budget` queries."""
        if budget < 1 or d < 1:
            raise ParameterError(f"budget={budget}, d={d}", "ask at least once, in one dimension at least")
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
        """The strategy."""

    def __repr__(self) -> str:
        return type(self).__name__.lower()


class Random(Search):
    """Points at random: the base line."""

    def rounds(self, d: int, rng: np.random.Generator) -> Rounds:
        """Uniform in the cube."""
        while True:
            yield rng.uniform(-1, 1, (256, d))


class Evolution(Search):
    """Children of tournament winners, crossed and mutated; the best `kept` live on.

    Mutations shrink with every generation down to a floor, so that it first roams and then refines.
    """

    def __init__(self, size: int = 64, kept: int = 8, tournament: int = 3, reach: float = 0.4) -> None:
        self.size, self.kept, self.tournament, self.reach = size, kept, tournament, reach

    def rounds(self, d: int, rng: np.random.Generator) -> Rounds:
        """One generation after the other."""
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
    """Covariance matrix adaptation (Hansen's (mu/mu_w, lambda)), started anew when it stands still."""

    def __init__(self, size: int = 24, sigma: float = 0.5, patience: int = 60) -> None:
        self.size, self.sigma, self.patience = size, sigma, patience

    def rounds(self, d: int, rng: np.random.Generator) -> Rounds:
        """Runs from random starts, one after the other."""
        while True:
            yield from self._one_run(d, rng)

    def _one_run(self, d: int, rng: np.random.Generator) -> Rounds:
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
    """How fast paths, covariance and step size learn: the usual settings."""

    path: float
    drift: float
    one: float
    many: float
    damping: float
    length: float


def _rates(d: int, mass: float) -> _Rates:
    path = (mass + 2) / (d + mass + 5)
    one = 2 / ((d + 1.3) ** 2 + mass)
    many = min(1 - one, 2 * (mass - 2 + 1 / mass) / ((d + 2) ** 2 + mass))
    damping = 1 + 2 * max(0.0, math.sqrt((mass - 1) / (d + 1)) - 1) + path
    length = math.sqrt(d) * (1 - 1 / (4 * d) + 1 / (21 * d * d))
    return _Rates(path, (4 + mass / d) / (d + 4 + 2 * mass / d), one, many, damping, length)
