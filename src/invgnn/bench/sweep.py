"""sweep(work, trials): many trials on processes or machines, each done once, every result kept."""

from __future__ import annotations

import importlib
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, Future, wait
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from invgnn.errors import ParameterError, TrialError
from invgnn.storage.tables import Results, Rows, Trial, missing

Work = Callable[..., Rows]

ONE_THREAD = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
"""Workers share the cores: two processes of two threads each on two cores are slower than of one each."""
KEEP_FREED = dict.fromkeys(("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_"), str(2**32))
"""Freed tensors stay with the process: up to twice as fast on large graphs."""
DEATHS = 3
"""How many dying workers are made up for on one machine; Dask's own limit is three for each trial."""


def sweep(
    work: Work,
    trials: Iterable[Trial],
    *,
    into: str | Path,
    workers: int = 2,
    cluster: str | None = None,
) -> Iterator[tuple[Trial, Rows]]:
    """Every trial that has no rows in the file yet, with the rows `work(**trial)` gives, as they come.

    into     a CSV file to which rows are appended before they are handed on; the columns named like the
             arguments of a trial are its key, so a sweep that ended early goes on when called again
    workers  processes on this machine, with one thread each
    cluster  address of a Dask scheduler, such as tcp://127.0.0.1:8786, whose workers do it instead

    Guarantee: a trial whose rows are in the file is never begun again. One that a worker had not handed
    over when it died is, and its rows are there once. A trial that raises does not stop the others: when
    they are done, `TrialError` names it.
    """
    listed = list(trials)
    if workers < 1:
        raise ParameterError(f"workers={workers}", "at least one process has to do the work")
    if not listed:
        return
    failed: list[tuple[Trial, Failure]] = []
    with Results(into, listed[0]) as results:
        todo = missing(listed, into)
        for index, outcome in outcomes(work, todo, workers, cluster):
            if isinstance(outcome, Failure):
                failed.append((todo[index], outcome))
                continue
            results.add(todo[index], outcome)
            yield todo[index], outcome
    if failed:
        raise _reported(failed, len(todo), into)


@dataclass(frozen=True)
class Failure:
    """A trial that raised.

    Attributes:
        message: The exception, in one line.
        trace: Its traceback.
    """

    message: str
    trace: str = ""


Outcomes = Iterator[tuple[int, Rows | Failure]]


def outcomes(
    work: Work,
    trials: list[Trial],
    workers: int = 2,
    cluster: str | None = None,
    seconds: float | None = None,
) -> Outcomes:
    """Yield the index of every trial with its rows or its failure, as they come.

    Args:
        work: Function that runs one trial and returns its rows.
        trials: The arguments of the trials.
        workers: Number of processes on this machine.
        cluster: Address of a Dask scheduler whose workers run the trials instead.
        seconds: When to stop waiting. Trials that are running then are given up. None waits for all.
    """
    if cluster is None or not trials:
        return _on_processes(work, trials, min(workers, len(trials)), seconds)
    return _on_cluster(work, trials, cluster, seconds)


def _reported(failed: Sequence[tuple[Trial, Failure]], total: int, path: str | Path) -> TrialError:
    trial, failure = failed[0]
    named = ", ".join(f"{name}={value}" for name, value in trial.items())
    error = TrialError(
        f"{len(failed)} of {total} trials failed; the first, {named}: {failure.message}",
        f"the rows of the others are in {path}: mend the cause and call the same sweep again",
    )
    error.add_note(failure.trace)
    return error


_ALONE = threading.Lock()
WATCH = 1.0
"""Seconds between two looks of a worker at its driver."""


def _attempt(work: Work, trial: Trial) -> Rows | Failure:
    """One trial in a worker: one thread, and none beside it that would draw from the same random states."""
    with _ALONE:
        os.environ.update(ONE_THREAD)  # for a torch to be imported; the next lines for one that is there
        if "torch" in sys.modules:
            sys.modules["torch"].set_num_threads(1)
        try:
            return work(**trial)
        except Exception as error:
            return Failure(f"{type(error).__name__}: {error}", traceback.format_exc())


def _end_with(driver: int) -> None:
    """Let this worker end once its driver is gone, which may be killed without a word to anybody.

    Otherwise a worker would finish its trial for nobody, and then wait for ever for the next.
    """

    def watch() -> None:
        while os.getppid() == driver:
            time.sleep(WATCH)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _on_processes(work: Work, trials: list[Trial], workers: int, seconds: float | None) -> Outcomes:
    """Outcomes from joblib's process pool, made anew when one of its processes dies.

    What was finished by then is still handed over: futures keep it, where `joblib.Parallel` would not.
    """
    loky = _needed("joblib.externals.loky")
    waiting, end = dict(enumerate(trials)), None if seconds is None else time.monotonic() + seconds
    for _ in range(1 + DEATHS):
        if not waiting:
            return
        pool = loky.ProcessPoolExecutor(
            workers, env=ONE_THREAD | KEEP_FREED, initializer=_end_with, initargs=(os.getpid(),)
        )
        jobs: dict[Future[Any], int] = {}
        try:
            for job, i in _fed(pool, work, waiting, jobs, 2 * workers, end):
                error = job.exception()
                if not isinstance(error, BrokenExecutor):
                    del waiting[i]
                    yield i, job.result() if error is None else Failure(repr(error))
        except TimeoutError:
            return
        except BrokenExecutor:  # a process died while trials were handed out
            continue
        finally:
            _settle(jobs)
            pool.shutdown(kill_workers=True)
    if waiting:
        raise TrialError(
            f"{1 + DEATHS} worker processes died; {len(waiting)} trials are not done",
            "there may be too little memory: fewer workers, or smaller trials",
        )


def _fed(
    pool: Any,
    work: Work,
    trials: dict[int, Trial],
    jobs: dict[Future[Any], int],
    most: int,
    end: float | None,
) -> Iterator[tuple[Future[Any], int]]:
    """Yield the futures of trials as they are done, with the number of the trial.

    The pool is given few trials at a time, no more than its queue has room for (see `_settle`).

    Raises:
        TimeoutError: If the end has come.
    """
    left = iter(list(trials.items()))
    while True:
        for i, trial in islice(left, most - len(jobs)):
            jobs[pool.submit(_attempt, work, trial)] = i
        if not jobs:
            return
        room = None if end is None else max(0.0, end - time.monotonic())
        done, _ = wait(jobs, room, FIRST_COMPLETED)
        if not done:
            raise TimeoutError
        for job in done:
            yield job, jobs.pop(job)


def _settle(jobs: Iterable[Future[Any]]) -> None:
    """Wait until loky has put all trials into its queue, which it does at once, unless it is broken.

    Shut down before, it would look up a trial that it has forgotten, and raise an error in its own thread.
    """
    for _ in range(500):
        if all(job.running() or job.done() for job in jobs):
            return
        time.sleep(0.01)


def _on_cluster(work: Work, trials: list[Trial], address: str, seconds: float | None) -> Outcomes:
    """Outcomes from a Dask cluster, whose scheduler begins again what a lost worker had under way.

    Asked directly: joblib's Dask backend waits for ever for a trial that Dask has given up.
    """
    distributed = _needed("distributed")
    with _connected(distributed, address) as client:
        jobs = {client.submit(_attempt, work, trial, pure=False): i for i, trial in enumerate(trials)}
        arriving = distributed.as_completed(
            list(jobs), loop=client.loop, with_results=True, raise_errors=False, timeout=seconds
        )  # results are fetched at once: one still with its worker would be lost with it, and done again
        try:
            for job, result in arriving:
                yield jobs[job], result if job.status == "finished" else Failure(f"{job.status}: {result}")
                job.release()
        except TimeoutError:
            client.cancel(list(jobs), force=True)


@contextmanager
def _connected(distributed: Any, address: str) -> Iterator[Any]:
    try:
        client = distributed.Client(address, set_as_default=False)
    except (OSError, ValueError) as error:
        raise ParameterError(f"there is no Dask scheduler at {address}", "start: dask scheduler") from error
    with client:
        try:
            client.wait_for_workers(1, timeout=30)
        except TimeoutError as error:
            advice = f"start: dask worker {address} --nthreads 1"
            raise ParameterError(f"the Dask scheduler at {address} has no workers", advice) from error
        yield client


def _needed(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        advice = "pip install 'invgnn[bench]'"
        raise ParameterError(f"sweeps need {name.partition('.')[0]}", advice) from error
