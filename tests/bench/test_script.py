"""The command line of a benchmark, and the tables it writes into pages."""

from __future__ import annotations

import pytest

from _helpers import labour
from invgnn.bench.markdown import table
from invgnn.bench.script import publish, published, run_benchmark
from invgnn.errors import FileError
from invgnn.storage.tables import read_rows

PAGE = "# Title\n\nbefore\n\n<!-- table -->\nold\n<!-- end -->\n\nafter\n"


@pytest.fixture
def page(tmp_path):
    path = tmp_path / "page.md"
    path.write_text(PAGE)
    return path


def test_only_the_table_of_a_page_is_replaced(page, capsys):
    publish("| a |\n|---|", page)
    assert page.read_text() == PAGE.replace("old", "| a |\n|---|")
    assert published(page) == "| a |\n|---|"
    assert capsys.readouterr().out == "| a |\n|---|\n"
    publish("new", page)
    assert page.read_text() == PAGE.replace("old", "new")


@pytest.mark.parametrize("text", ["nothing", "<!-- table -->\nno end", "<!-- end -->"])
def test_a_page_without_a_place_for_the_table_is_left_alone(page, text):
    page.write_text(text)
    with pytest.raises(FileError, match="no place for a table"):
        publish("| a |", page)
    assert page.read_text() == text


def test_missing_trials_run_and_the_table_is_written(page, tmp_path, capsys):
    rows, log = tmp_path / "rows.csv", tmp_path / "log"
    log.touch()
    grid = [{"n": n, "log": str(log)} for n in range(3)]
    shown = ["--workers", "1", "--into", str(page)]
    run_benchmark("about", rows, labour.square, grid, lambda: f"{len(read_rows(rows))} rows", shown)
    assert published(page) == "3 rows"
    assert "0 of 3 trials done" in capsys.readouterr().out
    run_benchmark("about", rows, labour.square, grid[:2], lambda: "again", ["--workers", "1"])
    assert "2 of 2 trials done" in capsys.readouterr().out


def test_a_summary_runs_nothing(tmp_path, capsys):
    run_benchmark("about", tmp_path / "rows.csv", labour.die, [{"n": 1}], lambda: "table", ["--summary"])
    assert capsys.readouterr().out == "table\n"
    assert not (tmp_path / "rows.csv").exists()


def test_columns_of_text_are_on_the_left():
    assert (
        table(["a", "b", "c"], [["x", "y", "1"]], text=2) == "| a | b | c |\n|---|---|--:|\n| x | y | 1 |"
    )
