"""WM-Remove: changing few parameters until the bits read wrong, and the reduction that makes it hard.

The theorem's problem is to flip all m bits; it is NP-complete, and `reduce_cover` is the reduction from
Set Cover. The thief's problem asks for less: T below tau will do. Both are one problem here, "fewer
than tau bits right", and tau = 1 flips all. What the theorem does not say: its hard instances have a key of
zeros only and parameters at 0; worst-case hardness is silent about any given model; and in a head with
a bias, moving that one number leaves a balanced key at T = m/2.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike

from invgnn.errors import ParameterError
from invgnn.graphs.disjoint_union import Bools, Floats, Ints
from invgnn.nn.perception import PerceptionHead
from invgnn.theory.cover import SetCover


@dataclass(frozen=True, eq=False)
class Removal:
    """An instance of WM-Remove: bit k is 1 if `weights[k] @ theta >= thresholds[k]`.

    amplitude  the least change of a parameter that is changed at all (the paper's theta_min)
    reach      the largest; the paper sets none
    key        the bits the owner expects; by default those that are decoded now
    """

    weights: Floats
    thresholds: Floats
    theta: Floats
    amplitude: float = 1.0
    reach: float = math.inf
    key: Bools | None = None

    def __post_init__(self) -> None:
        for name in ("weights", "thresholds", "theta"):
            object.__setattr__(self, name, np.asarray(getattr(self, name), dtype=np.float64))
        if self.weights.shape != (self.thresholds.size, self.theta.size) or not self.weights.size:
            raise ParameterError(f"weights of shape {self.weights.shape}", "give one row per bit")
        if not self.weights.min() >= 0:
            raise ParameterError("a weight is negative or NaN", "the decoder must be monotone: project it")
        if not all(np.isfinite(x).all() for x in (self.weights, self.thresholds, self.theta)):
            raise ParameterError("a number of the instance is not finite", "give finite numbers")
        if not 0 < self.amplitude <= self.reach or math.isinf(self.amplitude):
            raise ParameterError(
                f"amplitude {self.amplitude}, reach {self.reach}", "use 0 < amplitude <= reach"
            )
        if self.expected.shape != self.thresholds.shape:
            raise ParameterError(
                f"a key of {self.expected.size} bits for {self.m}", "give one bit per threshold"
            )

    @property
    def m(self) -> int:
        return int(self.thresholds.size)

    @cached_property
    def expected(self) -> Bools:
        """The key [m], or the bits decoded now where none was given."""
        return self.decode(self.theta) if self.key is None else np.asarray(self.key, dtype=bool)

    def decode(self, theta: ArrayLike) -> Bools:
        """The bits [..., m] read from parameters [..., d]."""
        return np.asarray(np.asarray(theta) @ self.weights.T >= self.thresholds, dtype=bool)

    def matches(self, delta: ArrayLike) -> Ints:
        """T [...], the bits still right after a change [..., d]."""
        right = self.decode(self.theta + np.asarray(delta, dtype=np.float64)) == self.expected
        return np.asarray(np.count_nonzero(right, axis=-1), dtype=np.int64)


def removes(instance: Removal, delta: ArrayLike, budget: int, tau: int = 1) -> bool:
    """You get whether a change is a certificate: few parameters, each changed enough, T below tau.

    Takes O(md), one product of the weights with the parameters, which puts WM-Remove in NP.
    """
    change = np.asarray(delta, dtype=np.float64)
    moved = np.abs(change[change != 0])
    sized = bool(((moved >= instance.amplitude) & (moved <= instance.reach)).all())
    return sized and moved.size <= budget and int(instance.matches(change)) < tau


def reduce_cover(problem: SetCover, amplitude: float = 1.0) -> Removal:
    """You get the instance whose bits all flip by changing n parameters iff n sets cover all elements.

    A parameter for every set, a bit for every element, weight 1 where the element is in the set,
    thresholds at half the amplitude, all parameters at 0.
    """
    weights = problem.member.astype(np.float64)
    return Removal(weights, np.full(problem.size, amplitude / 2), np.zeros(len(problem.sets)), amplitude)


def change_of(instance: Removal, chosen: Iterable[int]) -> Floats:
    """You get the change that a cover stands for: its parameters raised by the amplitude."""
    delta = np.zeros(instance.theta.size)
    delta[list(chosen)] = instance.amplitude
    return delta


def cover_of(delta: ArrayLike) -> tuple[int, ...]:
    """You get the sets that a change stands for: the parameters it touches, whatever the signs.

    In a reduced instance bits start below their thresholds and only a touched parameter with weight 1
    can raise one, so that sets of a change that flips n bits cover these n elements.
    """
    return tuple(np.flatnonzero(np.asarray(delta)).tolist())


def of_head(
    head: PerceptionHead,
    embeddings: ArrayLike,
    key: ArrayLike,
    amplitude: float = 1e-3,
    reach: float = 100.0,
) -> Removal:
    """You get WM-Remove for the numbers of a real head, its bias last, on its carriers' embeddings [m, h].

    The parameters are the head's effective weights, after spectral normalisation; the instance's weights
    are the embeddings, which must not be negative (after a ReLU they are not).
    """
    seen = np.asarray(embeddings, dtype=np.float64)
    weight = head.weight.detach().double().numpy(force=True).ravel()
    if head.nu is not None:
        weight = head.nu * weight / max(float(np.linalg.norm(weight)), 1e-12)
    theta = np.append(weight, head.bias.detach().double().numpy(force=True))
    weights = np.hstack([seen, np.ones((len(seen), 1))])
    bits = np.asarray(key, dtype=bool)
    return Removal(weights, np.zeros(len(seen)), theta, amplitude, reach, bits)
