"""What trials will cost, estimated from rows of earlier ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from invgnn.bench.grids.identity import Planned
from invgnn.bench.grids.store import Row

ALIKE: tuple[tuple[str, ...], ...] = (
    ("measure", "epochs", "setting", "scheme", "change", "variant", "forgery", "thief"),
    ("measure", "epochs", "setting", "change", "thief"),
    ("measure", "epochs", "setting", "scheme"),
    ("measure", "epochs", "setting"),
)
"""What trials have in common with those they are estimated from; the first that some row fits.

Other settings, and other numbers of epochs, say nothing about the cost of a trial.
"""


@dataclass(frozen=True)
class Estimate:
    """The estimated cost of some trials.

    Attributes:
        seconds: Processor time of those that can be estimated.
        unknown: How many of them no earlier row resembles.
        trials: How many there are.
    """

    seconds: float
    unknown: int
    trials: int

    @property
    def total(self) -> float | None:
        """Seconds of all trials; those without an estimate cost what the others do. None without any."""
        known = self.trials - self.unknown
        if not self.trials:
            return 0.0
        return self.seconds * self.trials / known if known else None

    def __str__(self) -> str:
        total = self.total
        if total is None:
            return "unknown: no earlier row resembles these trials"
        more = f", {self.unknown} of {self.trials} guessed" if self.unknown else ""
        return f"{duration(total)} of processor time{more}"


class Costs:
    """Estimates the cost of trials from rows.

    Args:
        rows: Rows of earlier trials with the processor time `took`.
    """

    def __init__(self, rows: Sequence[Row]) -> None:
        self._known: dict[tuple[str | None, ...], list[float]] = {}
        for row in rows:
            try:
                took = float(row.figures.get("took", ""))
            except ValueError:
                continue
            for names in ALIKE:
                key = (*names, *_values({"measure": row.measure, **row.arguments}, names))
                self._known.setdefault(key, []).append(took)

    def of(self, planned: Planned) -> float | None:
        """Return the median processor time of the rows most like a trial; None if there are none.

        Args:
            planned: The trial.
        """
        cells = planned.cells()
        for names in ALIKE:
            found = self._known.get((*names, *_values(cells, names)))
            if found:
                return median(found)
        return None

    def estimate(self, planned: Sequence[Planned]) -> Estimate:
        """Return the cost of trials.

        Args:
            planned: The trials.
        """
        found = [self.of(one) for one in planned]
        known = [seconds for seconds in found if seconds is not None]
        return Estimate(sum(known), len(found) - len(known), len(found))


def _values(cells: Mapping[str, str], names: Sequence[str]) -> list[str | None]:
    return [cells.get(name) for name in names]


def duration(seconds: float) -> str:
    """Return a time as people say it.

    Args:
        seconds: The time.
    """
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 90 * 60:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"
