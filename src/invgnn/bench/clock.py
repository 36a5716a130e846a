"""Time two functions in alternation, and turn their times into measurements."""

from __future__ import annotations

import gc
import resource
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from invgnn.bench.measurements import Measurement

Run = Callable[[], Any]
Times = NDArray[np.float64]
"""Seconds [rounds, 2]: processor time and wall-clock time."""


@dataclass(frozen=True)
class Race:
    """Times of two functions that ran in alternation, one row per round.

    Attributes:
        ours: Times of the first function.
        theirs: Times of the second function.
    """

    ours: Times
    theirs: Times

    def faster(
        self, row: str, what: str, against: str, target: str = "", scale: float = 1.0, note: str = ""
    ) -> Measurement:
        """Return how many times as long the other function takes.

        Args:
            row: Name of the benchmark part.
            what: What was measured.
            against: What it was compared with.
            target: Promise such as `>= 20`; empty for none.
            scale: Factor for a side of which only a part was timed.
            note: Remark for the table.

        Returns:
            The median of the ratios with their quartiles.
        """
        return self._measurement(self.theirs / self.ours * scale, row, what, against, target, note)

    def slower(
        self, row: str, what: str, against: str, target: str = "", scale: float = 1.0, note: str = ""
    ) -> Measurement:
        """Return how many times as long our function takes; arguments as in `faster`."""
        return self._measurement(self.ours / self.theirs * scale, row, what, against, target, note)

    def _measurement(
        self, ratio: Times, row: str, what: str, against: str, target: str, note: str
    ) -> Measurement:
        low, value, high = np.percentile(ratio[:, 0], [25, 50, 75]).tolist()
        wall = float(np.median(ratio[:, 1]))
        ours, theirs = (float(np.median(side[:, 0])) for side in (self.ours, self.theirs))
        return Measurement(
            row, what, against, target, value, low, high, wall, ours, theirs, len(ratio), note
        )


def race(ours: Run, theirs: Run, repeats: int, warm: bool = True) -> Race:
    """Time two functions in alternation; each of them is first in every other round.

    Args:
        ours: First function.
        theirs: Second function.
        repeats: Number of rounds that count.
        warm: Whether one more round runs before them.

    Returns:
        The times of all rounds.
    """
    rounds: list[dict[int, tuple[float, float]]] = []
    for number in range(-warm, repeats):
        order = ((0, ours), (1, theirs)) if number % 2 else ((1, theirs), (0, ours))
        rounds.append({side: seconds(run) for side, run in order})
    kept = np.array([[one[0], one[1]] for one in rounds[warm:]])
    return Race(kept[:, 0], kept[:, 1])


def seconds(run: Run) -> tuple[float, float]:
    """Time one call, with garbage collection switched off.

    Args:
        run: Function to call.

    Returns:
        Processor time and wall-clock time.
    """
    gc.collect()
    gc.disable()
    try:
        cpu, wall = time.process_time(), time.perf_counter()
        run()
        return time.process_time() - cpu, time.perf_counter() - wall
    finally:
        gc.enable()


def repeated(run: Run, repeats: int) -> Times:
    """Time several calls, after one that does not count.

    Args:
        run: Function to call.
        repeats: Number of calls that count.

    Returns:
        Their times [repeats, 2].
    """
    run()
    return np.array([seconds(run) for _ in range(repeats)])


def absolute(row: str, what: str, target: str, times: Times, note: str = "") -> Measurement:
    """Return times as a measurement in seconds.

    Args:
        row: Name of the benchmark part.
        what: What was measured.
        target: Promise such as `<= 0.3`; empty for none.
        times: Times of all rounds [rounds, 2].
        note: Remark for the table.

    Returns:
        The median with its quartiles.
    """
    low, value, high = np.percentile(times[:, 0], [25, 50, 75]).tolist()
    wall = float(np.median(times[:, 1]))
    return Measurement(row, what, "", target, value, low, high, wall, value, repeats=len(times), note=note)


def peak_megabytes() -> float:
    """Return the largest amount of memory that this process has held so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def exponent(sizes: list[int], times: list[float]) -> float:
    """Return the slope of log time against log size: 1 is linear.

    Args:
        sizes: Problem sizes.
        times: Seconds at these sizes.

    Returns:
        The slope of the least-squares line.
    """
    return float(np.polyfit(np.log(sizes), np.log(times), 1)[0])
