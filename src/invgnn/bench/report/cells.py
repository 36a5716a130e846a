"""Cells that several tables have: means with intervals, differences, and the bits that show a mark."""

from __future__ import annotations

import math
from collections.abc import Sequence

from invgnn.bench.grids.store import Row
from invgnn.bench.intervals import Interval
from invgnn.bench.report.evidence import Cell, Evidence

NEEDED = 20.0
"""Bits that α = 10⁻⁶ requires."""
SEEDS = "Mean over seeds with Student's 95 % interval."


def interval_cell(evidence: Evidence, rows: Sequence[Row], values: Sequence[float]) -> Cell:
    """Return a mean of shares with its interval, in percent.

    Args:
        evidence: The rows of the report.
        rows: The rows of the cell.
        values: One share per seed.
    """
    if not values:
        return Cell("")
    interval = Interval.of(values)
    return evidence.cell(str(interval), rows, interval.mean)


def difference_cell(
    evidence: Evidence, rows: Sequence[Row], apart: Sequence[float], p: float | None
) -> Cell:
    """Return a mean difference of shares with its interval, in points, and a p-value.

    Args:
        evidence: The rows of the report.
        rows: The rows of the cell.
        apart: One difference per seed.
        p: The p-value; None for none.
    """
    if not apart:
        return Cell("")
    interval = Interval.of(apart)
    width = "" if interval.half is None else f" ± {100 * interval.half:.1f}"
    told = "" if p is None else f" ({p:.2f})" if p >= 0.01 else " (< 0.01)"
    return evidence.cell(f"{100 * interval.mean:+.1f}{width}{told}", rows, interval.mean)


def needed_bits(rows: Sequence[Row]) -> float:
    """Return the bits that show a mark: 20, or without an exact law the most that unmarked models allow.

    Args:
        rows: Rows with the number of unmarked models that they are compared with.
    """
    if not any("empirical" in row.get("null") for row in rows):
        return NEEDED
    models = min(int(row.get("controls")) for row in rows)
    return min(NEEDED, math.floor(100 * math.log2(models + 1)) / 100)


def refused(evidence: Evidence, setting: str, scheme: str, columns: int) -> list[Cell]:
    """Return dashes, the first with the reason why a scheme cannot serve a setting.

    Args:
        evidence: The rows of the report.
        setting: Task and backbone.
        scheme: Name of the scheme.
        columns: Number of cells.
    """
    wanted = (setting, scheme)
    rows = [
        row
        for row in evidence.rows
        if row.measure in ("mark", "change") and (row.get("setting"), row.get("scheme")) == wanted
    ]
    reasons = list(dict.fromkeys(row.get("reason") for row in rows if row.get("reason")))
    first = evidence.cell(f"– {reasons[0]}" if reasons else "not run yet", rows)
    return [first, *[Cell("–")] * (columns - 1)]
