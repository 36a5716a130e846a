"""A Dask cluster of real processes on the loopback."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

HERE = Path(__file__).parents[1]
DASK = Path(sys.executable).with_name("dask")


def until(what, seconds=60):
    end = time.monotonic() + seconds
    while not (found := what()):
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.02)
    return found


@contextmanager
def cluster(folder, workers=2, threads=1, failures=3):
    """A Dask scheduler on the loopback and its workers, all processes of their own; yields its address."""
    file, running = folder / "scheduler.json", []
    told = {"PYTHONPATH": str(HERE), "DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES": str(failures)}

    def start(*command):
        options = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "cwd": folder}
        running.append(subprocess.Popen([DASK, *command], env=os.environ | told, **options))

    try:
        start("scheduler", "--host", "127.0.0.1", "--port", "0", "--no-dashboard", "--scheduler-file", file)
        until(file.exists)
        for _ in range(workers):
            named = ("--scheduler-file", file, "--host", "127.0.0.1", "--nthreads", str(threads))
            start("worker", *named, "--no-nanny", "--no-dashboard")
        yield until(lambda: file.read_text() and json.loads(file.read_text())["address"])
    finally:
        for process in reversed(running):
            process.kill()
            process.wait()
