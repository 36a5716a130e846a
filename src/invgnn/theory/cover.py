"""Set Cover, the problem behind WM-Remove: exactly, greedily, and by rounding its relaxation.

The paper calls it Hitting Set; as stated there (choose few sets that contain every element) it is Set
Cover, the dual of Hitting Set, and just as NP-complete. With a `demand` below the number of elements
it is partial cover, which is what a thief who only wants T below tau has to solve.
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
    """Sets over the elements 0..size-1, each as a bit mask: element k belongs if bit k is 1."""

    size: int
    sets: tuple[int, ...]

    def __post_init__(self) -> None:
        if self.size < 1 or not self.sets or any(s < 0 or s >> self.size for s in self.sets):
            raise ParameterError(
                f"{len(self.sets)} sets over {self.size} elements, or a set with others",
                "give at least one element and one set, and masks below 2^size",
            )

    @classmethod
    def of(cls, member: ArrayLike) -> SetCover:
        """You get the problem of a table [elements, sets] that says which element is in which set."""
        table = np.asarray(member, dtype=bool)
        packed = np.packbits(table.T, axis=1, bitorder="little")
        return cls(table.shape[0], tuple(int.from_bytes(row.tobytes(), "little") for row in packed))

    @property
    def member(self) -> Bools:
        """The table [elements, sets] that says which element is in which set."""
        width = -(-self.size // 8)
        packed = np.frombuffer(b"".join(s.to_bytes(width, "little") for s in self.sets), dtype=np.uint8)
        bits = np.unpackbits(packed.reshape(-1, width), axis=1, count=self.size, bitorder="little")
        return bits.T.astype(bool)

    def covered(self, chosen: Iterable[int]) -> int:
        """How many elements lie in at least one of the chosen sets."""
        return reduce(or_, (self.sets[j] for j in chosen), 0).bit_count()

    def demand(self, demand: int | None) -> int:
        """How many elements must be covered: all, unless fewer are asked for."""
        wanted = self.size if demand is None else demand
        if not 0 <= wanted <= self.size:
            raise ParameterError(f"demand {wanted} of {self.size} elements", "ask for 0 to all of them")
        return wanted


@dataclass(frozen=True)
class Cover(Statement):
    """Chosen sets that meet the demand, and the least number that could, as far as was proved."""

    chosen: tuple[int, ...]
    least: int
    method: str

    @property
    def gap(self) -> int:
        """By how many sets the choice may miss the optimum; 0 if it is proved optimal."""
        return len(self.chosen) - self.least


def greedy_cover(problem: SetCover, demand: int | None = None) -> Cover | None:
    """You get sets taken one by one, each covering most of what is left; None if no family can.

    Guarantee: at most H(demand) = 1 + 1/2 + ... + 1/demand times as many as needed. While r elements
    are wanting, some set of an optimal family of n covers r/n of them, so each costs at most n/r sets.
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
    """You get sets in the order of their share in the linear relaxation, until the demand is met.

    Guarantee: the relaxation's value, rounded up, is a lower bound. Where all elements are wanted, at
    most f times as many sets as needed, f being the most sets that share an element: every element
    lies in some set with a share of 1/f or more. For partial cover rounding has no such factor.
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
    """You get the fewest sets that meet the demand, by branch and bound; None if no family does.

    Guarantee: optimal if `gap` is 0, which only a time limit prevents.
    """
    wanted = problem.demand(demand)
    if problem.covered(range(len(problem.sets))) < wanted:
        return None
    solved = _solve(problem, wanted, whole=True, seconds=seconds)
    if solved.x is None:
        raise ParameterError(f"nothing found in {seconds} s", "allow the solver more time")
    chosen = np.flatnonzero(solved.x[: len(problem.sets)] > 0.5).tolist()
    least = math.ceil(solved.mip_dual_bound - TOLERANCE)
    return Cover(tuple(chosen), min(least, len(chosen)), "exact", assumptions=(EXACT,))


@dataclass(frozen=True)
class Effort:
    """The processor time one solver took on one random instance, and what its answer is known to miss."""

    size: int
    method: str
    seconds: float
    sets: int
    gap: int


def measure_effort(
    sizes: Iterable[int], rng: np.random.Generator, share: float = 0.2, seconds: float = math.inf
) -> list[Effort]:
    """You get every solver's run time on a random instance of each size (as many sets as elements).

    `seconds` limits the exact solver on each instance; its gap is then no longer 0. Hard for this
    solver on these instances is all it shows.
    """
    solvers: dict[str, Callable[[SetCover], Cover | None]] = {
        "greedy": greedy_cover,
        "rounded": rounded_cover,
        "exact": partial(least_cover, seconds=seconds),
    }
    problems = [random_cover(size, size, share, rng) for size in sizes]
    return [_effort(problem, *solver) for problem in problems for solver in solvers.items()]


def _effort(problem: SetCover, method: str, solve: Callable[[SetCover], Cover | None]) -> Effort:
    start = time.process_time()  # others may share the machine
    found = solve(problem)
    took = time.process_time() - start
    if found is None:
        raise ParameterError("the sets leave an element out", "draw instances with `random_cover`")
    return Effort(problem.size, method, took, len(found.chosen), found.gap)


def random_cover(size: int, sets: int, share: float, rng: np.random.Generator) -> SetCover:
    """You get random sets, each element in each set with probability `share` and in one at least."""
    member = rng.random((size, sets)) < share
    member[np.arange(size), rng.integers(sets, size=size)] = True
    return SetCover.of(member)


def _harmonic(n: int) -> float:
    return math.fsum(1 / k for k in range(1, n + 1)) or 1.0


def _without_idle(problem: SetCover, chosen: list[int], wanted: int) -> tuple[int, ...]:
    """The choice without sets it can do without, the last taken going first."""
    kept = list(chosen)
    for j in reversed(chosen):
        rest = [i for i in kept if i != j]
        kept = rest if problem.covered(rest) >= wanted else kept
    return tuple(kept)


def _solve(problem: SetCover, wanted: int, *, whole: bool, seconds: float = math.inf) -> Any:
    """Minimise the sets z under: covered f <= member z, f <= 1, at least `wanted` of f."""
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
