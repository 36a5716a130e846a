"""WM-Remove: change few parameters until the bits are read wrong, and the reduction that shows it is hard.

The theorem's problem is to flip all m bits. It is NP-complete, and `reduce_cover` is the reduction from Set
Cover. A thief needs less: T below the threshold. Both are the same problem here, "fewer than tau bits
right", where tau = 1 flips all. The theorem has limits. Its hard instances have a key of zeros only and
parameters at 0. Worst-case hardness implies nothing about a given model. And in a head with a bias,
changing this one number reduces a balanced key to T = m/2.
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

    Attributes:
        weights: Non-negative weights [m, d].
        thresholds: Thresholds [m].
        theta: Parameters [d].
        amplitude: Smallest non-zero change of a parameter (the paper's theta_min).
        reach: Largest change of a parameter; the paper has no limit.
        key: The bits that the owner expects; by default the bits that are decoded now.
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
            raise ParameterError(
                f"weights of shape {self.weights.shape} for {self.thresholds.size} thresholds and "
                f"{self.theta.size} parameters",
                "pass one row per bit and one column per parameter",
            )
        if not self.weights.min() >= 0:
            raise ParameterError(
                "a weight is negative or NaN", "use a monotone decoder; `monotone.project` makes one"
            )
        if not all(np.isfinite(x).all() for x in (self.weights, self.thresholds, self.theta)):
            raise ParameterError("a number of the instance is not finite", "pass finite numbers")
        if not 0 < self.amplitude <= self.reach or math.isinf(self.amplitude):
            raise ParameterError(
                f"amplitude {self.amplitude}, reach {self.reach}", "use 0 < amplitude <= reach"
            )
        if self.expected.shape != self.thresholds.shape:
            raise ParameterError(
                f"a key of {self.expected.size} bits for {self.m} thresholds", "pass one bit per threshold"
            )

    @property
    def m(self) -> int:
        """Number of bits."""
        return int(self.thresholds.size)

    @cached_property
    def expected(self) -> Bools:
        """The key [m], or the bits that are decoded now if no key was given."""
        return self.decode(self.theta) if self.key is None else np.asarray(self.key, dtype=bool)

    def decode(self, theta: ArrayLike) -> Bools:
        """Return the bits [..., m] decoded from parameters [..., d]."""
        return np.asarray(np.asarray(theta) @ self.weights.T >= self.thresholds, dtype=bool)

    def matches(self, delta: ArrayLike) -> Ints:
        """Return T [...], the number of bits still right after a change [..., d]."""
        right = self.decode(self.theta + np.asarray(delta, dtype=np.float64)) == self.expected
        return np.asarray(np.count_nonzero(right, axis=-1), dtype=np.int64)


def removes(instance: Removal, delta: ArrayLike, budget: int, tau: int = 1) -> bool:
    """Return whether a change is a certificate: few parameters, each changed enough, and T below tau.

    It takes O(md) operations, one product of the weights with the parameters, so WM-Remove is in NP.

    Args:
        instance: The instance.
        delta: The change [d].
        budget: Largest number of changed parameters.
        tau: The threshold; 1 requires that all bits flip.
    """
    change = np.asarray(delta, dtype=np.float64)
    moved = np.abs(change[change != 0])
    sized = bool(((moved >= instance.amplitude) & (moved <= instance.reach)).all())
    return sized and moved.size <= budget and int(instance.matches(change)) < tau


def reduce_cover(problem: SetCover, amplitude: float = 1.0) -> Removal:
    """Return the instance in which n changed parameters can flip all bits iff n sets cover all elements.

    It has a parameter for every set, a bit for every element, weight 1 where the element is in the set,
    thresholds at half the amplitude, and all parameters at 0.

    Args:
        problem: The instance of Set Cover.
        amplitude: Smallest non-zero change of a parameter.
    """
    weights = problem.member.astype(np.float64)
    return Removal(weights, np.full(problem.size, amplitude / 2), np.zeros(len(problem.sets)), amplitude)


def change_of(instance: Removal, chosen: Iterable[int]) -> Floats:
    """Return the change that corresponds to a cover: its parameters raised by the amplitude.

    Args:
        instance: The reduced instance.
        chosen: Indices of the chosen sets.
    """
    delta = np.zeros(instance.theta.size)
    delta[list(chosen)] = instance.amplitude
    return delta


def cover_of(delta: ArrayLike) -> tuple[int, ...]:
    """Return the sets that correspond to a change: the parameters that it changes, whatever the signs.

    In a reduced instance all bits start below their thresholds, and only a changed parameter with weight 1
    can raise one. So the sets of a change that flips n bits cover these n elements.
    """
    return tuple(np.flatnonzero(np.asarray(delta)).tolist())


def of_head(
    head: PerceptionHead,
    embeddings: ArrayLike,
    key: ArrayLike,
    amplitude: float = 1e-3,
    reach: float = 100.0,
) -> Removal:
    """Return WM-Remove for the parameters of a real head, its bias last.

    The parameters are the head's effective weights, after spectral normalisation.

    Args:
        head: The head.
        embeddings: Embeddings of the carriers [m, h], which are the weights of the instance. They must not
            be negative, as after a ReLU.
        key: The bits that the owner expects.
        amplitude: Smallest non-zero change of a parameter.
        reach: Largest change of a parameter.
    """
    seen = np.asarray(embeddings, dtype=np.float64)
    weight = head.weight.detach().double().numpy(force=True).ravel()
    if head.nu is not None:
        weight = head.nu * weight / max(float(np.linalg.norm(weight)), 1e-12)
    theta = np.append(weight, head.bias.detach().double().numpy(force=True))
    weights = np.hstack([seen, np.ones((len(seen), 1))])
    bits = np.asarray(key, dtype=bool)
    return Removal(weights, np.zeros(len(seen)), theta, amplitude, reach, bits)
