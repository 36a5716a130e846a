"""Trials for sweeps, in a file of their own so that worker processes can import them."""

import os
import time
from pathlib import Path


def note(log, *words):
    with open(log, "a") as file:  # short lines in append mode do not mix
        file.write(" ".join(map(str, words)) + "\n")


def square(n, log):
    """Leave a note before and after, as one row with what the process was given."""
    note(log, "begin", n, os.getpid())
    time.sleep(0.05)
    note(log, "end", n, os.getpid())
    kept = {name: os.environ.get(name) for name in ("OMP_NUM_THREADS", "MALLOC_TRIM_THRESHOLD_")}
    return [{"n": n, "log": log, "square": n * n, **kept}]


def dawdle(n, log):
    """As `square`, but the first to try number 3 waits to be killed."""
    first = f"begin {n} " not in Path(log).read_text()
    note(log, "begin", n, os.getpid())
    time.sleep(60 if n == 3 and first else 0.05)
    note(log, "end", n, os.getpid())
    return [{"n": n, "log": log, "square": n * n, "part": part} for part in "ab"]


def stumble(n, log):
    """As `square`, but number 1 cannot be done until somebody has mended it."""
    if n == 1 and "mended" not in Path(log).read_text():
        raise ValueError("one is no number")
    return square(n, log)


def die(n, log):
    """As `square`, but number 1 takes its process with it, every time."""
    if n == 1:
        os._exit(1)
    return square(n, log)
