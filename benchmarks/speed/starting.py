"""How long it takes until `import invgnn` is done, and until the command shows its help."""

from __future__ import annotations

import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from speed.clock import Figure, absolute

COMMANDS = {
    "`import invgnn`": [sys.executable, "-c", "import invgnn"],
    "`invgnn --help`": [str(Path(sys.executable).with_name("invgnn")), "--help"],
}


def start() -> Iterator[Figure]:
    """Fresh interpreters, Python's own start included."""
    for what, command in COMMANDS.items():
        _seconds(command)
        times = np.array([_seconds(command) for _ in range(15)])
        yield absolute("start", what, "<= 0.3", times)


def _seconds(command: list[str]) -> tuple[float, float]:
    """Processor time and wall time of a process."""
    before, wall = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True)  # noqa: S603 - our own commands
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return used, time.perf_counter() - wall
