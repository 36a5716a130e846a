"""Timings of alternating functions, and their rows on disk."""

from __future__ import annotations

import gc

import numpy as np
import pytest

from invgnn.bench import clock
from invgnn.bench.measurements import describe_machine, read_measurements, write_measurements


def test_measurements_survive_the_file(tmp_path):
    race = clock.Race(np.array([[1.0, 2.0], [2.0, 2.0]]), np.array([[4.0, 8.0], [4.0, 4.0]]))
    made = [race.faster("a", "b", "c", ">= 3", note="d, e"), race.slower("a", "b", "c", "<= 0.3")]
    write_measurements(made, tmp_path / "speed.csv")
    assert read_measurements(tmp_path / "speed.csv") == made
    assert read_measurements(tmp_path / "none.csv") == []
    assert [one.value for one in made] == [3.0, 0.375]
    assert [one.held for one in made] == [True, False]
    assert race.faster("a", "b", "c", scale=10.0).value == 30.0
    assert race.faster("a", "b", "c").held is None


def test_both_run_in_alternation_and_each_is_first_in_every_other_round():
    order = []
    found = clock.race(lambda: order.append("a"), lambda: order.append("b"), repeats=3)
    assert "".join(order) == "abbaabba"
    assert found.ours.shape == found.theirs.shape == (3, 2)


def test_the_garbage_collector_is_switched_on_again():
    def fail():
        assert not gc.isenabled()
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        clock.seconds(fail)
    assert gc.isenabled()


def test_the_first_of_repeated_runs_does_not_count():
    calls = []
    assert clock.repeated(lambda: calls.append(1), 4).shape == (4, 2)
    assert len(calls) == 5


def test_the_exponent_of_linear_growth_is_one():
    assert clock.exponent([1, 10, 100], [2.0, 20.0, 200.0]) == pytest.approx(1)


def test_the_machine_names_versions():
    assert "torch " in describe_machine().note
