"""The smallest number of parameters whose change removes a mark, by integer programming."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp

from invgnn.errors import ParameterError
from invgnn.graphs.disjoint_union import Floats
from invgnn.theory.cover import EXACT, TOLERANCE
from invgnn.theory.removal import Removal, removes
from invgnn.theory.statement import Assumption, Statement

SLACK = 1e-6  # how far past its threshold a flipped bit must lie, in units of its row
INFEASIBLE = 2  # scipy's status
MONOTONE = Assumption("the decoder is monotone: all weights are non-negative", True)


@dataclass(frozen=True, eq=False)
class Fewest(Statement):
    """A change of few parameters that leaves T below the threshold, and a lower bound on their number.

    Attributes:
        delta: The change, one number per parameter.
        matches: Number of matches after the change.
        threshold: The threshold; `matches` is below it.
        least: The proved lower bound.
    """

    delta: Floats
    matches: int
    threshold: int
    least: int

    @property
    def changed(self) -> int:
        """Number of changed parameters."""
        return int(np.count_nonzero(self.delta))

    @property
    def gap(self) -> int:
        """The largest possible distance from the optimum, in parameters; 0 if proved optimal."""
        return self.changed - self.least


def fewest_changes(instance: Removal, tau: int = 1, seconds: float = math.inf) -> Fewest | None:
    """Find the smallest number of parameters to change so that fewer than tau bits match.

    Guarantee: optimal if `gap` is 0, among changes within the instance's reach that pass each flipped
    threshold by a millionth of its row. The change is checked by `removes`. Without a finite reach, all
    bits of the key must be equal: then one direction is enough and larger steps gain nothing.

    Args:
        instance: The instance of WM-Remove.
        tau: The threshold; 1 requires that all bits flip.
        seconds: Time limit of the solver.

    Returns:
        The change, or None if no change removes the mark.

    Raises:
        ParameterError: If tau is out of range, the solver needs more time, or its solution fails the check.
    """
    if not 1 <= tau <= instance.m + 1:
        raise ParameterError(
            f"tau is {tau} for {instance.m} bits", f"choose tau from 1 (flip all bits) to {instance.m + 1}"
        )
    program = _program(instance, tau)
    found = program.solve(seconds=seconds)
    if found.status == INFEASIBLE:
        return None
    if found.x is None:
        raise ParameterError(f"the solver found no change in {seconds} s", "raise the time limit `seconds`")
    # The solver's integers are exact to one part in a million only, and a large reach magnifies the error:
    # solve again with rounded integers fixed.
    steps = program.change(program.solve(fixed=found.x.round()))
    delta = np.clip(instance.amplitude * steps, -instance.reach, instance.reach)
    if not removes(instance, delta, delta.size, tau):
        advice = "lower the reach: the numbers of the instance differ too much in size for the solver"
        raise ParameterError("the solver's solution does not remove the mark when checked", advice)
    least = min(math.ceil(found.mip_dual_bound - TOLERANCE), int(np.count_nonzero(delta)))
    rests = (MONOTONE, EXACT, Assumption(f"no parameter changes by more than {instance.reach:g}"))
    return Fewest(delta, int(instance.matches(delta)), tau, least, assumptions=rests)


@dataclass(frozen=True, eq=False)
class _Program:
    """An integer program. Variables: raised, lowered (0 or 1), amounts up and down, wrong bits (0 or 1)."""

    d: int
    m: int
    reach: float
    rows: list[LinearConstraint]

    def solve(self, seconds: float = math.inf, fixed: Floats | None = None) -> Any:
        """Minimise the number of changed parameters, or find amounts for `fixed` integers."""
        whole = np.concatenate([np.ones(2 * self.d), np.zeros(2 * self.d), np.ones(self.m)])
        lower, upper = np.zeros(whole.size), np.where(whole == 1, 1.0, self.reach)
        if fixed is not None:
            lower, upper = np.where(whole == 1, fixed, lower), np.where(whole == 1, fixed, upper)
        return milp(
            np.append(np.ones(2 * self.d), np.zeros(2 * self.d + self.m)),
            integrality=whole if fixed is None else None,
            bounds=Bounds(lower, upper),
            constraints=self.rows,
            options={"time_limit": seconds} if math.isfinite(seconds) else {},
        )

    def change(self, solved: Any) -> Floats:
        """Return the change in a solution: 0 or at least 1 per parameter; all 0 without a solution."""
        if solved.x is None:
            return np.zeros(self.d)
        raised, lowered, up, down = solved.x[: 4 * self.d].reshape(4, self.d)
        up = np.where(raised > 0.5, np.clip(up, 1.0, self.reach), 0.0)
        return np.asarray(up - np.where(lowered > 0.5, np.clip(down, 1.0, self.reach), 0.0))


def _program(instance: Removal, tau: int) -> _Program:
    """Build the program in units of the amplitude, with every row scaled to weights of at most 1."""
    m, d = instance.weights.shape
    scale = instance.weights.max(axis=1) * instance.amplitude
    scale[scale == 0] = 1.0  # a bit that no parameter influences
    weights = instance.weights * instance.amplitude / scale[:, None]
    side = np.where(instance.expected, -1.0, 1.0)  # to flip a bit: up for an expected 0, down for a 1
    needs = side * (instance.thresholds - instance.weights @ instance.theta) / scale + SLACK
    reach = _reach(instance, weights, needs)
    push = side[:, None] * weights
    free = np.maximum(needs + reach * weights.sum(axis=1), 0.0)  # no constraint on a bit that stays right
    wrong = np.hstack([np.zeros((m, 2 * d)), push, -push, -np.diag(free)])
    count = np.append(np.zeros(4 * d), np.ones(m))
    rows = [LinearConstraint(wrong, lb=needs - free), LinearConstraint(count, lb=m - tau + 1)]
    return _Program(d, m, reach, [*rows, *_links(d, m, reach)])


def _links(d: int, m: int, reach: float) -> list[LinearConstraint]:
    """Constrain a parameter to move in one direction at most, by 1 to `reach` if it moves, else by 0."""
    one, none, bits = np.eye(d), np.zeros((d, d)), np.zeros((d, m))
    ways = np.hstack([one, one, none, none, bits])
    least = np.block([[-one, none, one, none, bits], [none, -one, none, one, bits]])
    most = np.block([[-reach * one, none, one, none, bits], [none, -reach * one, none, one, bits]])
    return [LinearConstraint(ways, ub=1), LinearConstraint(least, lb=0), LinearConstraint(most, ub=0)]


def _reach(instance: Removal, weights: Floats, needs: Floats) -> float:
    """Return the largest change of a parameter in units of the amplitude."""
    if math.isfinite(instance.reach):
        return instance.reach / instance.amplitude
    if np.ptp(instance.expected.astype(int)):
        raise ParameterError(
            "the key has ones and zeros, and the change of a parameter is not limited",
            "set a finite `reach` of the instance",
        )
    # In one direction, a single parameter can be moved far enough for every bit that it influences.
    steps = np.divide(needs[:, None], weights, out=np.ones_like(weights), where=weights > 0)
    return max(1.0, float(steps.max()))
