"""The figures on disk: one row of a CSV file each, and the machine they were measured on."""

from __future__ import annotations

import csv
import os
import platform
from dataclasses import asdict, fields
from pathlib import Path

from speed.clock import Figure

RESULTS = Path(__file__).parents[1] / "results" / "speed.csv"
_NAMES = [field.name for field in fields(Figure)]


def read(path: Path = RESULTS) -> list[Figure]:
    """All figures of a file; none where there is no file."""
    if not path.exists():
        return []
    with path.open(newline="") as file:
        return [_figure(row) for row in csv.DictReader(file)]


def _figure(row: dict[str, str]) -> Figure:
    numbers = {n: float(row[n]) for n in ("value", "low", "high", "wall", "ours", "theirs")}
    return Figure(**{**row, **numbers, "repeats": int(row["repeats"])})  # type: ignore[arg-type]


def write(figures: list[Figure], path: Path = RESULTS) -> None:
    """The figures as a file, to four digits."""
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, _NAMES, lineterminator="\n")
        writer.writeheader()
        for figure in figures:
            record = asdict(figure)
            writer.writerow({k: f"{v:.4g}" if isinstance(v, float) else v for k, v in record.items()})


def machine() -> Figure:
    """The machine and the versions, kept as a row like any other."""
    import networkx
    import numpy
    import scipy
    import torch
    import torch_geometric

    parts = (numpy, scipy, torch, torch_geometric, networkx)
    versions = ", ".join(f"{part.__name__} {part.__version__}" for part in parts)
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    busy = os.getloadavg()[0]
    note = f"{_processor()}, {os.cpu_count()} cores, {memory:.0f} GB, {platform.system()}; one thread; "
    note += f"Python {platform.python_version()}, {versions}; load {busy:.1f} when it began"
    return Figure("machine", "", "", "", 0.0, 0.0, 0.0, note=note)


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(named, platform.machine())
