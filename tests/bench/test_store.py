"""The rows of grids: nothing finished is lost, nothing is done twice, and files are the same every time."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from _helpers import toil
from _helpers.cluster import cluster
from invgnn.bench.grids import run as home
from invgnn.bench.grids.cost import FIRST, UNMARKED, Costs, Estimate, duration
from invgnn.bench.grids.identity import Planned, content_hash
from invgnn.bench.grids.run import Plan, Results, csv_rows, time_left
from invgnn.bench.grids.store import Row, Store, latest, read_csv, write_csv
from invgnn.errors import FileError

TESTS = Path(__file__).parents[1]
PATHS = os.pathsep.join([str(TESTS), *filter(None, [os.environ.get("PYTHONPATH")])])


def planned(seed=1, code="c", measure="mark", **arguments):
    given = {"setting": "a/b", "seed": seed, "scheme": "S", "epochs": 1, "controls": 2} | arguments
    return Planned(measure, given, {"scheme": {"weight": 1.0}}, code, "invgnn bench run")


def row(**arguments):
    return Row.of(planned(**arguments), {"bits": 12.5, "took": 3.0, "reason": None})


def test_a_row_is_identified_by_arguments_settings_and_code():
    one = planned()
    assert one.id == planned().id
    others = [planned(2), planned(code="d"), planned(scheme="T"), planned(measure="change")]
    others.append(Planned("mark", one.arguments, {"scheme": {"weight": 2.0}}, "c", ""))
    assert len({one.id, *(other.id for other in others)}) == 6
    assert one.slot == planned(code="d").slot == others[-1].slot
    assert one.id == Planned("mark", one.arguments, one.settings, "c", "another command").id


@given(st.dictionaries(st.text(max_size=5), st.integers() | st.text(max_size=5), max_size=4))
def test_hashes_do_not_depend_on_the_order_of_names(values):
    backwards = dict(reversed(values.items()))
    assert content_hash(values) == content_hash(backwards)
    assert content_hash(values) != content_hash({**values, "one more name": 1})


def test_rows_are_kept_as_they_are(tmp_path):
    store = Store(tmp_path / "a" / "bench.sqlite")
    found = [row(seed=2), row(seed=1)]
    store.add(found)
    store.add([row(seed=2)])
    assert store.rows() == found == Store(store.path).rows()
    assert list(found[0].figures) == ["bits", "took", "reason"]
    assert all(one.sound for one in found)
    assert found[0].get("bits") == "12.5"
    assert found[0].get("reason") == found[0].get("nothing") == ""


def test_a_row_that_was_edited_does_not_fit_its_hash():
    one = row()
    for field in ({"code": "d"}, {"settings": "{}"}, {"arguments": {**one.arguments, "seed": "9"}}):
        assert not Row(**{**vars(one), **field}).sound


def test_only_one_process_writes_and_others_read(tmp_path):
    store = Store(tmp_path / "bench.sqlite")
    with store.writing():
        store.add([row()])
        assert len(Store(store.path).rows()) == 1
        with pytest.raises(FileError, match="another run is writing"), Store(store.path).writing():
            pass
    with store.writing():
        pass


def test_what_is_no_store_is_left_alone(tmp_path):
    path = tmp_path / "bench.sqlite"
    path.write_text("plain text " * 100)
    with pytest.raises(FileError, match="not a store"):
        Store(path)
    assert path.read_text().startswith("plain text")


NAMES = ("setting", "seed", "scheme", "epochs", "controls")


def test_files_are_the_same_after_a_round_trip(tmp_path):
    found = [row(seed=2), row(seed=1, scheme='with, comma and "quotes"')]
    path = tmp_path / "main" / "mark.csv"
    write_csv(path, found, NAMES, ("bits", "took", "reason"))
    again = read_csv(path, "mark", NAMES)
    assert again == found
    first = path.read_bytes()
    write_csv(path, again, NAMES, ("bits", "took", "reason"))
    assert path.read_bytes() == first
    path.write_bytes(first.replace(b"settings", b"sittings", 1))
    with pytest.raises(FileError, match="lacks the column settings"):
        read_csv(path, "mark", NAMES)


def test_the_row_of_the_present_code_is_shown_else_the_last_one():
    old, older = row(code="old"), row(code="older")
    assert latest([older, old], [planned()]) == [old]
    assert latest([older, row(), old], [planned()]) == [row()]
    assert latest([old], [planned(7)]) == []


def test_costs_come_from_the_rows_most_like_a_trial():
    def cost(took, **arguments):
        return Row.of(planned(**arguments), {"took": took})

    costs = Costs([cost(10), cost(30), cost(5, scheme="T"), Row.of(planned(9), {"took": ""})])
    assert costs.of(planned(7)) == 20
    assert costs.of(planned(7, scheme="T")) == 5
    assert costs.of(planned(7, scheme="U")) == 10  # the median of the setting
    assert costs.of(planned(7, setting="c/d")) is costs.of(planned(7, epochs=2)) is None
    assert costs.of(planned(measure="change", change="x", thief="1%")) is None
    found = costs.estimate([planned(7), planned(measure="change", change="x", thief="1%")])
    assert (found.each, found.unknown, found.total) == ([20, None], 1, 40)
    assert Costs([]).estimate([planned()]).total is None
    assert "unknown" in str(Estimate([None], 1))
    assert [duration(s) for s in (5, 600, 9000)] == ["5 s", "10 min", "2.5 h"]


def test_without_rows_of_a_setting_the_cost_is_guessed_from_its_unmarked_training():
    cora = {"setting": "Cora/GCN", "epochs": 100, "controls": 19}
    photo = {**cora, "setting": "Photo/GCN"}
    blank = Costs([]).estimate([planned(1, **cora), planned(2, **cora)])
    assert blank.each == [UNMARKED["Cora/GCN"] * FIRST["mark"]] * 2
    assert (blank.unknown, blank.shared) == (2, 19 * UNMARKED["Cora/GCN"])
    assert Costs([]).of(planned(setting="Cora/GCN", epochs=50)) == blank.each[0] / 2
    known = Costs([Row.of(planned(**cora), {"took": 3 * UNMARKED["Cora/GCN"]})])
    assert known.of(planned(**photo)) == pytest.approx(3 * UNMARKED["Photo/GCN"])
    assert known.estimate([planned(5, **cora)]).shared == 0  # its unmarked models are there
    assert "1 of 1 guessed" in str(known.estimate([planned(**photo)]))


def test_a_dry_run_says_what_fits():
    found = Estimate([10.0, None, 30.0], 0, 5.0)  # the one without an estimate counts 20
    assert [found.fitting(s) for s in (14, 15, 34, 35, 64, 65)] == [0, 1, 1, 2, 2, 3]
    assert Estimate([None], 1).fitting(100) is None


def test_time_left_is_shared_by_the_workers():
    assert time_left(10, 0, [None], 2) is None
    assert time_left(10, 5, [], 2) == 0
    assert time_left(10, 5, [4.0, 4.0], 2) == 4
    assert time_left(10, 5, [None], 2) == 2


@pytest.fixture
def toiling(monkeypatch, tmp_path):
    """Runs trials whose work is a note in a log."""
    monkeypatch.setattr(home, "perform", toil.perform)
    log = tmp_path / "log"
    log.touch()

    def go(seeds, folder="results", **options):
        results = Results(tmp_path / folder)
        known = {one.id for one in results.store.rows()}
        trials = [planned(seed, scheme=str(log), setting="0.05") for seed in seeds]
        plan = Plan(None, trials, [one for one in trials if one.id not in known], 0, Estimate([], 0))
        return list(results.run(plan, **{"workers": 2} | options)), results

    return go, log


def told(log, word):
    return Counter(int(line.split()[1]) for line in log.read_text().splitlines() if line.startswith(word))


def test_a_run_does_what_is_missing_once(toiling):
    go, log = toiling
    first, _ = go(range(3))
    assert [one.total for one in first] == [3] * 3
    assert first[-1].left == 0
    second, results = go(range(5))
    assert sorted(one.row.arguments["seed"] for one in second) == ["3", "4"]
    assert told(log, "end") == Counter(range(5))
    assert {one.figures["accuracy"] for one in results.store.rows()} == {"0", "1", "4", "9", "16"}


@pytest.mark.story
def test_a_run_stops_in_time_and_goes_on_later(toiling):
    go, _ = toiling
    go([0])  # processes have started once
    begun = time.monotonic()
    some, _ = go(range(400), minutes=0.03)
    assert time.monotonic() - begun < 30
    assert len(some) < 399
    rest, _ = go(range(len(some) + 5))
    assert not {one.row.id for one in some} & {one.row.id for one in rest}


def test_a_trial_that_fails_leaves_no_row(toiling, tmp_path):
    results = Results(tmp_path / "other")
    bad = planned(1, measure="scratch", scheme=str(toiling[1]))
    (only,) = results.run(Plan(None, [bad], [bad], 0, Estimate(0, 0, 0)), workers=1)
    assert only.row is None
    assert "no patience" in only.failure
    assert results.store.rows() == []


@pytest.mark.story
def test_a_run_that_is_killed_loses_the_running_trials_only(tmp_path):
    folder, log, count = tmp_path / "results", tmp_path / "log", 14
    log.touch()
    command = [sys.executable, "-m", "_helpers.toil", str(folder), str(log), str(count), "0.3"]
    options = {"env": os.environ | {"PYTHONPATH": PATHS}, "cwd": TESTS, "start_new_session": True}
    process = subprocess.Popen(command, **options)
    try:
        end = time.monotonic() + 120
        while sum(told(log, "end").values()) < 4:
            assert process.poll() is None
            assert time.monotonic() < end
            time.sleep(0.02)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    ended = told(log, "end")
    kept = {int(one.arguments["seed"]) for one in Store(folder / home.STORE).rows()}
    assert kept <= set(ended)
    assert len(set(ended) - kept) <= 2  # at most one for each worker was not handed over yet
    assert 0 < len(kept) < count
    subprocess.run(command, **options, check=True, timeout=120)
    begun, rows = told(log, "begin"), Store(folder / home.STORE).rows()
    assert Counter(int(one.arguments["seed"]) for one in rows) == Counter(range(count))
    assert {begun[n] for n in kept} == {1}  # none of them was done again
    assert max(begun.values()) <= 2


@pytest.mark.story
def test_workers_end_with_a_driver_that_is_killed(tmp_path):
    log = tmp_path / "log"
    log.touch()
    command = [sys.executable, "-m", "_helpers.toil", str(tmp_path / "results"), str(log), "9", "60"]
    options = {"env": os.environ | {"PYTHONPATH": PATHS}, "cwd": TESTS, "start_new_session": True}
    process = subprocess.Popen(command, **options)
    try:
        wait_for(lambda: len(told(log, "begin")) == 2, 120)
        workers = [int(line.split()[2]) for line in log.read_text().splitlines()]
        process.kill()
        process.wait()
        wait_for(lambda: not any(Path(f"/proc/{pid}").exists() for pid in workers), 20)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    assert told(log, "end") == {}


def wait_for(fulfilled, seconds):
    end = time.monotonic() + seconds
    while not fulfilled():
        assert time.monotonic() < end
        time.sleep(0.05)


def test_files_take_the_place_of_a_store(tmp_path):
    write_csv(tmp_path / "main" / "mark.csv", [row(), row(seed=2)], NAMES, ("bits", "took", "reason"))
    (tmp_path / "main" / "notes.csv").write_text("a,b\n")
    results = Results(tmp_path)
    results.take_in()
    results.take_in()
    assert results.store.rows() == csv_rows(tmp_path) == [row(), row(seed=2)]


@pytest.mark.story
def test_a_cluster_runs_a_grid(tmp_path, monkeypatch):
    monkeypatch.setattr(home, "perform", toil.perform)
    log = tmp_path / "log"
    log.touch()
    trials = [planned(seed, scheme=str(log), setting="0.05") for seed in range(4)]
    results = Results(tmp_path / "results")
    with cluster(tmp_path) as address:
        plan = Plan(None, trials, trials, 0, Estimate(0, 0, 0))
        assert len(list(results.run(plan, cluster=address))) == 4
        more = [planned(seed, scheme=str(log), setting="9") for seed in range(9)]
        begun = time.monotonic()
        late = list(
            results.run(Plan(None, more, more, 0, Estimate(0, 0, 0)), cluster=address, minutes=0.02)
        )
        assert time.monotonic() - begun < 9
    assert late == []
    assert len(results.store.rows()) == 4
