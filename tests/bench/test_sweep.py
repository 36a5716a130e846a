"""Sweeps lose nothing and do nothing twice: on processes, on a cluster, and when somebody is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path

import dask
import pytest
import torch

from _helpers import labour
from _helpers.cluster import cluster, until
from invgnn.bench import sweep as home
from invgnn.bench.sweep import sweep
from invgnn.errors import FileError, ParameterError, TrialError
from invgnn.storage.tables import Results, missing, read_rows

HERE = Path(__file__).parents[1]


@pytest.fixture
def log(tmp_path):
    path = tmp_path / "log"
    path.touch()
    return path


@pytest.fixture
def into(tmp_path):
    return tmp_path / "results" / "squares.csv"


def trials(log, count=8):
    return [{"n": n, "log": str(log)} for n in range(count)]


def notes(log, word):
    """How often each number was begun, or ended."""
    lines = [line.split() for line in Path(log).read_text().splitlines()]
    return Counter(int(number) for said, number, *_ in lines if said == word)


def once(count):
    return Counter(dict.fromkeys(range(count), 1))


@contextmanager
def killer(log, number, ready):
    """Kills the process that first begins a number, once `ready(process)`."""

    def watch():
        begun = until(lambda: [line for line in log.read_text().splitlines() if f"begin {number} " in line])
        process = begun[0].split()[2]
        until(lambda: ready(process))
        os.kill(int(process), signal.SIGKILL)

    thread = threading.Thread(target=watch)
    thread.start()
    yield
    thread.join()


def received(into):
    """The numbers whose rows are kept."""
    return {int(row["n"]) for row in read_rows(into)} if into.exists() else set()


# -- processes --------------------------------------------------------------------------------------


def test_every_trial_is_done_once_and_a_second_sweep_does_none(log, into):
    seen = {t["n"]: rows for t, rows in sweep(labour.square, trials(log, 5), into=into)}
    assert {n: rows[0]["square"] for n, rows in seen.items()} == {n: n * n for n in range(5)}
    assert {row["n"]: row["square"] for row in read_rows(into)} == {str(n): str(n * n) for n in range(5)}
    assert {row["OMP_NUM_THREADS"] for row in read_rows(into)} == {"1"}
    assert {row["MALLOC_TRIM_THRESHOLD_"] for row in read_rows(into)} == {str(2**32)}
    added = [t["n"] for t, _ in sweep(labour.square, trials(log, 7) + trials(log, 7), into=into)]
    assert sorted(added) == [5, 6]
    assert notes(log, "begin") == notes(log, "end") == once(7)


def test_rows_are_kept_before_they_are_handed_on(log, into):
    for done, (trial, _) in enumerate(sweep(labour.square, trials(log, 4), into=into, workers=1), 1):
        assert len(read_rows(into)) == done
        if trial["n"] == 1:
            break
    assert list(sweep(labour.square, trials(log, 2), into=into)) == []


def test_a_killed_process_loses_nothing(log, into):
    with killer(log, 3, lambda _: len(received(into)) == 7):  # the pool goes with its process
        done = [t["n"] for t, _ in sweep(labour.dawdle, trials(log), into=into)]
    assert sorted(done) == list(range(8))
    assert Counter((r["n"], r["part"]) for r in read_rows(into)) == {
        (str(n), p): 1 for n in range(8) for p in "ab"
    }
    assert notes(log, "end") == once(8)
    assert notes(log, "begin") == once(8) + Counter([3])


def test_a_trial_that_raises_does_not_stop_the_others(log, into):
    with pytest.raises(
        TrialError, match=r"1 of 4 trials failed; the first, n=1.*one is no number"
    ) as caught:
        list(sweep(labour.stumble, trials(log, 4), into=into))
    assert "stumble" in caught.value.__notes__[0]
    assert sorted(row["n"] for row in read_rows(into)) == ["0", "2", "3"]
    labour.note(log, "mended", 0)
    assert [t["n"] for t, _ in sweep(labour.stumble, trials(log, 4), into=into)] == [1]
    assert notes(log, "begin") == once(4)


def test_a_trial_that_kills_every_process_is_given_up(log, into, monkeypatch):
    monkeypatch.setattr(home, "DEATHS", 1)
    with pytest.raises(TrialError, match="worker processes died"):
        list(sweep(labour.die, trials(log, 3), into=into, workers=1))
    assert notes(log, "end") == {0: 1}


def test_trials_compute_with_one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        assert home._attempt(lambda: [{"threads": torch.get_num_threads()}], {}) == [{"threads": 1}]
    finally:
        torch.set_num_threads(before)


def test_trials_never_share_a_process_at_a_time():
    inside, most = [], []

    def work(n):
        inside.append(n)
        most.append(len(inside))
        time.sleep(0.01)
        inside.pop()
        return [{"n": n}]

    with ThreadPoolExecutor(4) as pool:  # as a Dask worker with four threads does
        list(pool.map(lambda n: home._attempt(work, {"n": n}), range(8)))
    assert max(most) == 1


def test_bad_questions_are_refused(log, into):
    with pytest.raises(ParameterError, match="workers=0"):
        list(sweep(labour.square, trials(log), into=into, workers=0))
    with pytest.raises(ParameterError, match="differ"):
        list(sweep(labour.square, [{"n": 1}, {"m": 1}], into=into))
    with pytest.raises(ParameterError, match="csv"):
        list(sweep(labour.square, trials(log), into=log))
    assert list(sweep(labour.square, [], into=into)) == []


# -- a real cluster ---------------------------------------------------------------------------------


def test_a_killed_worker_loses_nothing(log, into, tmp_path):
    def delivered(process):  # what it has ended; the other worker goes on meanwhile
        lines = [line.split() for line in log.read_text().splitlines()]
        return {int(n) for said, n, who in lines if (said, who) == ("end", process)} <= received(into)

    with cluster(tmp_path) as address, killer(log, 3, delivered):
        done = [t["n"] for t, _ in sweep(labour.dawdle, trials(log, 16), into=into, cluster=address)]
    assert sorted(done) == list(range(16))
    assert Counter(r["n"] for r in read_rows(into)) == {str(n): 2 for n in range(16)}
    assert notes(log, "end") == once(16)
    assert notes(log, "begin") == once(16) + Counter([3])  # begun again: the one that was under way
    workers = {line.split()[2] for line in log.read_text().splitlines()}
    assert len(workers) == 2


def test_a_killed_driver_goes_on_where_it_was(log, into, tmp_path):
    code = (
        "import sys; from _helpers import labour; from invgnn.bench.sweep import sweep\n"
        "trials = [{'n': n, 'log': sys.argv[1]} for n in range(40)]\n"
        "for _ in sweep(labour.square, trials, into=sys.argv[2], cluster=sys.argv[3]): pass"
    )
    with cluster(tmp_path) as address:
        command = [sys.executable, "-c", code, str(log), str(into), address]
        driver = subprocess.Popen(command, env=os.environ | {"PYTHONPATH": str(HERE)})
        until(lambda: len(received(into)) >= 5)
        driver.kill()
        driver.wait()
        kept = received(into)
        again = [t["n"] for t, _ in sweep(labour.square, trials(log, 40), into=into, cluster=address)]
    assert len(kept) < 40
    assert sorted([*kept, *again]) == list(range(40))
    assert Counter(int(row["n"]) for row in read_rows(into)) == once(40)
    begun = notes(log, "begin")
    assert {begun[n] for n in kept} == {1}  # others the cluster may have begun for nobody


def test_a_trial_that_dask_gives_up_does_not_hang_the_sweep(log, into, tmp_path):
    with cluster(tmp_path, failures=0) as address, pytest.raises(TrialError, match="KilledWorker"):
        list(sweep(labour.die, trials(log, 4), into=into, cluster=address))
    kept = received(into)
    assert 1 not in kept  # and perhaps one that waited at the same worker, which Dask suspects as well
    assert len(kept) >= 2
    again = {t["n"] for t, _ in sweep(labour.square, trials(log, 4), into=into)}
    assert again == set(range(4)) - kept


def test_a_cluster_that_is_not_there_is_named(log, into):
    hurried = dask.config.set({"distributed.comm.timeouts.connect": "1s"})
    with hurried, pytest.raises(ParameterError, match="no Dask scheduler at tcp:"):
        list(sweep(labour.square, trials(log), into=into, cluster="tcp://127.0.0.1:9"))


# -- rows on disk -----------------------------------------------------------------------------------


def rows_of(n, count=2):
    return [{"n": n, "part": part, "word": f'a "{n}", b'} for part in range(count)]


def filled(path, count=3):
    with Results(path, ["n"]) as results:
        for n in range(count):
            results.add({"n": n}, rows_of(n))
    return path.read_bytes()


def test_an_interrupted_block_never_counts(into, monkeypatch):
    """The machine stops at any byte that is being written: a trial's rows are there all or none."""
    whole = filled(into)
    real, budget = os.pwrite, [0]

    def pwrite(file, data, at):
        if budget[0] < len(data):
            real(file, data[: budget[0]], at)
            raise InterruptedError
        budget[0] -= len(data)
        return real(file, data, at)

    monkeypatch.setattr(os, "pwrite", pwrite)
    monkeypatch.setattr(os, "fsync", lambda file: None)
    for stop in range(len(whole) + 1):
        into.unlink(missing_ok=True)
        budget[0] = stop
        with suppress(InterruptedError):
            filled(into)
        held = Counter(row["n"] for row in read_rows(into))
        assert set(held.values()) <= {2}
        assert [t["n"] for t in missing([{"n": n} for n in range(3)], into)] == list(range(len(held), 3))
        budget[0] = len(whole)
        with Results(into, ["n"]) as results:
            for trial in missing([{"n": n} for n in range(3)], into):
                results.add(trial, rows_of(trial["n"]))
        assert into.read_bytes() == whole


def test_a_line_cut_off_by_others_goes_with_its_trial(into):
    whole = filled(into)
    lines = whole.splitlines(keepends=True)
    header, ends = len(lines[0]), [sum(map(len, lines[: i + 1])) for i in range(len(lines))]
    for cut in range(header + 1, len(whole)):
        if cut in ends:  # as if it had been meant to end there
            continue
        into.write_bytes(whole[:cut])
        with pytest.warns(UserWarning, match="cut off"), Results(into, ["n"]):
            pass
        held = Counter(int(row["n"]) for row in read_rows(into))
        assert set(held.values()) <= {2}
        sure = sum(ends[2 * n + 2] <= cut for n in range(3))  # trials that were whole
        assert len(held) in {sure, sure - 1}
        assert len(held) == sure or cut - ends[2 * sure] <= 1  # the number itself was cut


def test_what_is_no_results_file_is_left_alone(into):
    into.parent.mkdir()
    for content in (b"just one line", b"other,columns\n1,2\n", b"binary\0data"):
        into.write_bytes(content)
        with pytest.raises(FileError, match="lacks columns"), Results(into, ["n"]):
            pass
        assert into.read_bytes() == content


def test_one_process_writes(into):
    with Results(into, ["n"]), pytest.raises(FileError, match="another sweep"), Results(into, ["n"]):
        pass
    with Results(into, ["n"]):
        pass


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([], "0 rows"),
        ([{"n": 5, "other": 1}], "columns are n, part, word"),
        ([{"n": 6, "part": 0, "word": ""}], "its trial's values"),
        ([{"n": 5, "part": 0, "word": "two\nlines"}], "line break"),
        ([{"n": 5, "part": 0, "word": "\0"}], "zero byte"),
    ],
)
def test_rows_that_could_not_be_found_again_are_refused(into, rows, message):
    whole = filled(into)
    with Results(into, ["n"]) as results, pytest.raises(ParameterError, match=message):
        results.add({"n": 5}, rows)
    assert into.read_bytes() == whole


def test_values_are_found_as_they_are_written(into):
    odd = [{"a": None, "b": 0.1, "c": True, "d": 'x,"y"'}, {"a": "", "b": 1e-9, "c": False, "d": " é"}]
    with Results(into, list(odd[0])) as results:
        for trial in odd:
            results.add(trial, [dict(trial) | {"value": 1}])
    assert missing(odd, into) == []


# -- what is kept -----------------------------------------------------------------------------------


def test_results_from_before_are_known(script):
    study = script("studies/evidence")
    assert missing(study.grid(), study.PATH) == []
