"""Two things run in turn, and what their times say; one figure is one row of the results file."""

from __future__ import annotations

import gc
import resource
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

Run = Callable[[], Any]


@dataclass(frozen=True)
class Figure:
    """One measured figure: its median and quartiles, what was promised, and the times behind it.

    `value`, `low` and `high` are in processor time, which neighbours on a shared machine disturb least;
    `wall` is the same median by the clock on the wall. `ours` and `theirs` are median seconds.
    """

    row: str
    what: str
    against: str
    target: str
    value: float
    low: float
    high: float
    wall: float = float("nan")
    ours: float = float("nan")
    theirs: float = float("nan")
    repeats: int = 1
    note: str = ""

    @property
    def held(self) -> bool | None:
        """Whether the target was reached; None where there is none."""
        if not self.target:
            return None
        sign, bound = self.target.split()
        return {">=": self.value >= float(bound), "<=": self.value <= float(bound)}[sign]


@dataclass(frozen=True)
class Race:
    """Seconds of two runners, a row per round: processor time and wall time."""

    ours: np.ndarray
    theirs: np.ndarray

    def faster(self, row: str, what: str, against: str, target: str = "", **more: Any) -> Figure:
        """How many times as long the other takes."""
        return self._figure(self.theirs / self.ours, row, what, against, target, **more)

    def dearer(self, row: str, what: str, against: str, target: str = "", **more: Any) -> Figure:
        """How many times as long we take."""
        return self._figure(self.ours / self.theirs, row, what, against, target, **more)

    def _figure(
        self,
        ratio: np.ndarray,
        row: str,
        what: str,
        against: str,
        target: str,
        scale: float = 1.0,
        note: str = "",
    ) -> Figure:
        low, value, high = np.percentile(ratio[:, 0], [25, 50, 75]) * scale
        wall = float(np.median(ratio[:, 1])) * scale
        ours, theirs = (float(np.median(side[:, 0])) for side in (self.ours, self.theirs))
        return Figure(row, what, against, target, value, low, high, wall, ours, theirs, len(ratio), note)


def race(ours: Run, theirs: Run, repeats: int, warm: bool = True) -> Race:
    """Run two things in turn, each first in every other round; one round before counts for nothing."""
    rounds: list[dict[int, tuple[float, float]]] = []
    for number in range(-warm, repeats):
        order = ((0, ours), (1, theirs)) if number % 2 else ((1, theirs), (0, ours))
        rounds.append({side: seconds(run) for side, run in order})
    kept = np.array([[one[0], one[1]] for one in rounds[warm:]])
    return Race(kept[:, 0], kept[:, 1])


def seconds(run: Run) -> tuple[float, float]:
    """Processor time and wall time of one run, without the collector of garbage in between."""
    gc.collect()
    gc.disable()
    try:
        cpu, wall = time.process_time(), time.perf_counter()
        run()
        return time.process_time() - cpu, time.perf_counter() - wall
    finally:
        gc.enable()


def repeated(run: Run, repeats: int) -> np.ndarray:
    """Seconds of several runs [repeats, 2], after one that counts for nothing."""
    run()
    return np.array([seconds(run) for _ in range(repeats)])


def absolute(row: str, what: str, target: str, times: np.ndarray, note: str = "") -> Figure:
    """Seconds as a figure of their own."""
    low, value, high = np.percentile(times[:, 0], [25, 50, 75])
    wall = float(np.median(times[:, 1]))
    return Figure(row, what, "", target, value, low, high, wall, value, repeats=len(times), note=note)


def peak_megabytes() -> float:
    """The most memory this process has held so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def exponent(sizes: list[int], times: list[float]) -> float:
    """The slope of the best line through log time against log size: 1 is linear."""
    return float(np.polyfit(np.log(sizes), np.log(times), 1)[0])
