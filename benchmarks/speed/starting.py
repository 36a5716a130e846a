"""Time `import invgnn` and `invgnn --help`."""

from __future__ import annotations

import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from invgnn.bench.clock import absolute
from invgnn.bench.measurements import Measurement

COMMANDS = {
    "`import invgnn`": [sys.executable, "-c", "import invgnn"],
    "`invgnn --help`": [str(Path(sys.executable).with_name("invgnn")), "--help"],
}


def start() -> Iterator[Measurement]:
    """Time fresh interpreters, including the start of Python itself."""
    for what, command in COMMANDS.items():
        _seconds(command)
        times = np.array([_seconds(command) for _ in range(15)])
        yield absolute("start", what, "<= 0.3", times)


def _seconds(command: list[str]) -> tuple[float, float]:
    """Return processor time and wall-clock time of a process."""
    before, wall = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True)  # noqa: S603 - our own commands
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return used, time.perf_counter() - wall
