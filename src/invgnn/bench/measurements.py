"""Measured figures of the cost benchmark as rows of a CSV file, and the machine they come from."""

from __future__ import annotations

import csv
import os
import platform
from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields
from pathlib import Path


@dataclass(frozen=True)
class Measurement:
    """A measured figure with its quartiles, and the promise it is compared with.

    Attributes:
        row: Name of the benchmark part that measured it.
        what: What was measured.
        against: What it was compared with; empty for a time in seconds.
        target: Promise such as `>= 20` or `<= 1.3`; empty if there is none.
        value: Median in processor time, which other processes on the machine disturb least.
        low: Lower quartile.
        high: Upper quartile.
        wall: Median in wall-clock time.
        ours: Median seconds of our side.
        theirs: Median seconds of the other side.
        repeats: Number of rounds.
        note: Remark for the table.
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
        """Return whether the target was reached; None if there is none."""
        if not self.target:
            return None
        sign, bound = self.target.split()
        return {">=": self.value >= float(bound), "<=": self.value <= float(bound)}[sign]


_NUMBERS = ("value", "low", "high", "wall", "ours", "theirs")


def read_measurements(path: Path) -> list[Measurement]:
    """Read all measurements of a file.

    Args:
        path: CSV file.

    Returns:
        The measurements in the order of the file; none if there is no file.
    """
    if not path.exists():
        return []
    with path.open(newline="") as file:
        return [_measurement(row) for row in csv.DictReader(file)]


def _measurement(row: dict[str, str]) -> Measurement:
    numbers = {name: float(row[name]) for name in _NUMBERS}
    return Measurement(**{**row, **numbers, "repeats": int(row["repeats"])})  # type: ignore[arg-type]


def write_measurements(measurements: Iterable[Measurement], path: Path) -> None:
    """Write measurements to a file, numbers to four digits.

    Args:
        measurements: What to write.
        path: CSV file, replaced if it exists.
    """
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, [field.name for field in fields(Measurement)], lineterminator="\n")
        writer.writeheader()
        for measurement in measurements:
            record = asdict(measurement)
            writer.writerow({k: f"{v:.4g}" if isinstance(v, float) else v for k, v in record.items()})


def describe_machine() -> Measurement:
    """Return the machine, the versions and the load as the note of a measurement named `machine`."""
    import networkx
    import numpy
    import scipy
    import torch
    import torch_geometric

    parts = (numpy, scipy, torch, torch_geometric, networkx)
    versions = ", ".join(f"{part.__name__} {part.__version__}" for part in parts)
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    note = f"{_processor()}, {os.cpu_count()} cores, {memory:.0f} GB, {platform.system()}; one thread; "
    note += f"Python {platform.python_version()}, {versions}; load {os.getloadavg()[0]:.1f} when it began"
    return Measurement("machine", "", "", "", 0.0, 0.0, 0.0, note=note)


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(named, platform.machine())
