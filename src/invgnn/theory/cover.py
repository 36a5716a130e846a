"""Set Cover, the problem behind WM-Remove: solved exactly, greedily, and by rounding its relaxation.

The paper calls the problem Hitting Set. As stated there (choose few sets that contain every element) it is
Set Cover, the dual of Hitting Set, which is NP-complete too. With a `demand` below the number of elements
it is partial cover, the problem of a thief who only needs T below the threshold.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial, reduce
from operator import or_
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse
from scipy.optimize import Bounds, LinearConstraint, milp

from invgnn.errors import ParameterError
from invgnn.graphs.disjoint_union import Bools
from invgnn.theory.statement import Assumption, Statement

TOLERANCE = 1e-6  # of the solver, on values that are whole numbers if solved exactly
EXACT = Assumption("the solver's arithmetic is right to one part in a million")


@dataclass(frozen=True)
class SetCover:
    """An instance of Set Cover: sets over the elements 0..size-1, as bit masks.

    Attributes:
        size: Number of elements.
        sets: One mask per set; element k belongs to the set if bit k is 1.
    """

    size: int
    sets: tuple[int, ...]

    def __post_init__(self) -> None:
        if self.size < 1 or not self.sets or any(s < 0 or s >> self.size for s in self.sets):
            raise ParameterError(
                f"{len(self.sets)} sets over {self.size} elements, or a set contains other elements",
                "pass at least one element and one set, and masks below 2^size",
            )

    @classmethod
    def of(cls, member: ArrayLike) -> SetCover:
        """Return the instance for a boolean table [elements, sets] of membership."""
        table = np.asarray(member, dtype=bool)
        packed = np.packbits(table.T, axis=1, bitorder="little")
        return cls(table.shape[0], tuple(int.from_bytes(row.tobytes(), "little") for row in packed))

    @property
    def member(self) -> Bools:
        """The boolean table [elements, sets] of membership."""
        width = -(-self.size // 8)
        packed = np.frombuffer(b"".join(s.to_bytes(width, "little") for s in self.sets), dtype=np.uint8)
        bits = np.unpackbits(packed.reshape(-1, width), axis=1, count=self.size, bitorder="little")
        return bits.T.astype(bool)

    def covered(self, chosen: Iterable[int]) -> int:
        """Return how many elements are in at least one of the chosen sets."""
        return reduce(or_, (self.sets[j] for j in chosen), 0).bit_count()

    def demand(self, demand: int | None) -> int:
        """Return how many elements must be covered: `demand`, or all if it is None."""
        wanted = self.size if demand is None else demand
        if not 0 <= wanted <= self.size:
            raise ParameterError(
                f"demand {wanted} of {self.size} elements", f"choose a number from 0 to {self.size}"
            )
        return wanted


@dataclass(frozen=True)
class Cover(Statement):
    """A choice of sets that meets the demand, and a proved lower bound on their number.

    Attributes:
        chosen: Indices of the chosen sets.
        least: The proved lower bound.
        method: The solver: "greedy", "rounded" or "exact".
    """

    chosen: tuple[int, ...]
    least: int
    method: str

    @property
    def gap(self) -> int:
        """The largest possible distance from the optimum, in sets; 0 if the choice is proved optimal."""
        return len(self.chosen) - self.least


def greedy_cover(problem: SetCover, demand: int | None = None) -> Cover | None:
    """Choose sets one by one, each covering the most elements that are left.

    Guarantee: at most H(demand) = 1 + 1/2 + ... + 1/demand times as many sets as needed. While r elements
    are missing, some set of an optimal family of n sets covers r/n of them, so each element costs at most
    n/r sets.

    Args:
        problem: The instance.
        demand: How many elements to cover; by default all.

    Returns:
        The cover, or None if no family of sets meets the demand.
    """
    wanted, have, chosen = problem.demand(demand), 0, list[int]()
    while have.bit_count() < wanted:
        gains = [(s & ~have).bit_count() for s in problem.sets]
        best = max(range(len(gains)), key=gains.__getitem__)
        if not gains[best]:
            return None
        chosen.append(best)
        have |= problem.sets[best]
    return Cover(tuple(chosen), math.ceil(len(chosen) / _harmonic(wanted) - TOLERANCE), "greedy")


def rounded_cover(problem: SetCover, demand: int | None = None) -> Cover | None:
    """Choose sets in the order of their values in the linear relaxation until the demand is met.

    Guarantee: the value of the relaxation, rounded up, is a lower bound. If all elements are demanded, at
    most f times as many sets are chosen as needed, where f is the largest number of sets that share an
    element: every element is in some set with a value of 1/f or more. For partial cover rounding has no
    such factor.

    Args:
        problem: The instance.
        demand: How many elements to cover; by default all.

    Returns:
        The cover, or None if no family of sets meets the demand.
    """
    wanted = problem.demand(demand)
    if problem.covered(range(len(problem.sets))) < wanted:
        return None
    solved = _solve(problem, wanted, whole=False)
    order = np.argsort(-solved.x[: len(problem.sets)].round(9), kind="stable").tolist()
    enough = next(n for n in range(len(order) + 1) if problem.covered(order[:n]) >= wanted)
    chosen = _without_idle(problem, order[:enough], wanted)
    return Cover(chosen, math.ceil(solved.fun - TOLERANCE), "rounded", assumptions=(EXACT,))


def least_cover(problem: SetCover, demand: int | None = None, seconds: float = math.inf) -> Cover | None:
    """Find the smallest number of sets that meets the demand, by branch and bound.

    Guarantee: optimal if `gap` is 0, which only a time limit prevents.

    Args:
        problem: The instance.
        demand: How many elements to cover; by default all.
        seconds: Time limit of the solver.

    Returns:
        The cover, or None if no family of sets meets the demand.

    Raises:
        ParameterError: If the solver found nothing within the time limit.
    """
    wanted = problem.demand(demand)
    if problem.covered(range(len(problem.sets))) < wanted:
        return None
    solved = _solve(problem, wanted, whole=True, seconds=seconds)
    if solved.x is None:
        raise ParameterError(f"the solver found no cover in {seconds} s", "raise the time limit `seconds`")
    chosen = np.flatnonzero(solved.x[: len(problem.sets)] > 0.5).tolist()
    least = math.ceil(solved.mip_dual_bound - TOLERANCE)
    return Cover(tuple(chosen), min(least, len(chosen)), "exact", assumptions=(EXACT,))


@dataclass(frozen=True)
class Effort:
    """The processor time of one solver on one random instance.

    Attributes:
        size: Number of elements and of sets.
        method: The solver.
        seconds: Processor time.
        sets: Number of chosen sets.
        gap: Largest possible distance from the optimum.
    """

    size: int
    method: str
    seconds: float
    sets: int
    gap: int


def measure_effort(
    sizes: Iterable[int], rng: np.random.Generator, share: float = 0.2, seconds: float = math.inf
) -> list[Effort]:
    """Measure the run time of every solver on a random instance of each size (as many sets as elements).

    The measurement only shows how hard these instances are for these solvers.

    Args:
        sizes: Sizes of the instances.
        rng: Source of randomness.
        share: Probability that an element is in a set.
        seconds: Time limit of the exact solver per instance; if it is reached, the gap may exceed 0.
    """
    solvers: dict[str, Callable[[SetCover], Cover | None]] = {
        "greedy": greedy_cover,
        "rounded": rounded_cover,
        "exact": partial(least_cover, seconds=seconds),
    }
    problems = [random_cover(size, size, share, rng) for size in sizes]
    return [_effort(problem, *solver) for problem in problems for solver in solvers.items()]


def _effort(problem: SetCover, method: str, solve: Callable[[SetCover], Cover | None]) -> Effort:
    """Run one solver on one instance and measure its processor time."""
    start = time.process_time()  # others may share the machine
    found = solve(problem)
    took = time.process_time() - start
    if found is None:
        raise ParameterError("some element is in no set", "draw instances with `random_cover`")
    return Effort(problem.size, method, took, len(found.chosen), found.gap)


def random_cover(size: int, sets: int, share: float, rng: np.random.Generator) -> SetCover:
    """Draw random sets; each element is in each set with probability `share`, and in at least one set.

    Args:
        size: Number of elements.
        sets: Number of sets.
        share: Probability that an element is in a set.
        rng: Source of randomness.
    """
    member = rng.random((size, sets)) < share
    member[np.arange(size), rng.integers(sets, size=size)] = True
    return SetCover.of(member)


def _harmonic(n: int) -> float:
    """Return 1 + 1/2 + ... + 1/n, or 1 for n = 0."""
    return math.fsum(1 / k for k in range(1, n + 1)) or 1.0


def _without_idle(problem: SetCover, chosen: list[int], wanted: int) -> tuple[int, ...]:
    """Return the choice without redundant sets, removing the last chosen first."""
    kept = list(chosen)
    for j in reversed(chosen):
        rest = [i for i in kept if i != j]
        kept = rest if problem.covered(rest) >= wanted else kept
    return tuple(kept)


def _solve(problem: SetCover, wanted: int, *, whole: bool, seconds: float = math.inf) -> Any:
    """Minimise the number of sets z subject to: covered f <= member z, f <= 1, sum of f >= `wanted`."""
    m, d = problem.size, len(problem.sets)
    cost = np.concatenate([np.ones(d), np.zeros(m)])
    within = sparse.hstack([sparse.csr_array(problem.member.astype(float)), -sparse.eye_array(m)])
    enough = np.concatenate([np.zeros(d), np.ones(m)])
    return milp(
        cost,
        integrality=np.concatenate([np.full(d, int(whole)), np.zeros(m)]),
        bounds=Bounds(0, 1),
        constraints=[LinearConstraint(within, lb=0), LinearConstraint(enough, lb=wanted)],
        options={"time_limit": seconds} if math.isfinite(seconds) else {},
    )
