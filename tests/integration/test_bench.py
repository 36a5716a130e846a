"""The benchmark from the command line: a grid that is run, reported and checked."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from invgnn.cli import app

ROOT = Path(__file__).parents[2]
SMOKE, MAIN = (ROOT / "benchmarks" / "grids" / f"{name}.toml" for name in ("smoke", "main"))
PAPER = ("--paper", str(ROOT / "benchmarks" / "paper.csv"))


def run(*arguments, code=0):
    result = CliRunner().invoke(app, ["bench", *map(str, arguments)])
    assert result.exit_code == code, result.output
    return result


def ask(*arguments, code=0):
    return json.loads(run(*arguments, "--json", code=code).stdout)


def test_a_dry_run_runs_nothing_and_says_what_it_would_cost(tmp_path):
    found = ask("run", SMOKE, "--results", tmp_path, "--dry-run", "--only", "measure=mark; scheme=COS")
    assert set(found) == {"grid", "trials", "missing", "stale", "seconds", "guessed", "workers", "fits"}
    assert (found["trials"], found["missing"], found["seconds"]) == (2, 2, None)
    assert not list(tmp_path.glob("*/*.csv"))
    said = run("run", SMOKE, "--results", tmp_path, "--dry-run", "--limit", 3).stdout
    assert "cost: unknown" in said
    assert re.search(r"mark +3 of +10 trials to run", said)
    main = ask("run", MAIN, "--results", tmp_path, "--dry-run", "--minutes", 75)
    assert main["guessed"] == main["missing"] == main["trials"]
    assert 0 < main["fits"] < main["missing"]


def test_what_cannot_be_done_is_said_before_anything_runs(tmp_path):
    for arguments, error in (
        (("run", tmp_path / "none.toml"), "FileError"),
        (("run", SMOKE, "--results", tmp_path, "--only", "scheme=nobody"), "ParameterError"),
        (("check", SMOKE, "--paper", tmp_path / "none.csv"), "FileError"),
    ):
        found = ask(*arguments, code=2)
        assert found["error"] == error
        assert found["advice"]


@pytest.mark.story
def test_the_smoke_grid_runs_and_its_report_is_sound(tmp_path):
    """Every kind of trial, in two pieces; then the report, the check, and a table that was edited."""
    results, out = ("--results", tmp_path / "results"), ("-o", tmp_path / "report")
    first = ask("run", SMOKE, *results, "--limit", 4)
    assert first["left"] == first["trials"] - 4
    second = ask("run", SMOKE, *results)
    assert second["missing"] == first["left"]
    assert second["left"] == 0
    assert second["seconds"] > 0  # estimated from the first piece
    assert ask("run", SMOKE, *results)["missing"] == 0
    (tmp_path / "results" / "bench.sqlite").unlink()  # as after a fresh checkout: the files are enough
    assert ask("run", SMOKE, *results)["missing"] == 0
    assert len(ask("report", SMOKE, *results, *out, *PAPER)["files"]) >= 15
    sound = ask("check", SMOKE, *results, *out, *PAPER, "--strict")
    assert sound["problems"] == []
    assert (sound["missing"], sound["stale"]) == (0, 0)
    (tmp_path / "report" / "main.md").write_text("edited")
    assert "not sound: 1 problems" in run("check", SMOKE, *results, *out, *PAPER, code=1).stdout


@pytest.mark.story
def test_the_committed_report_follows_from_the_committed_rows(monkeypatch):
    monkeypatch.chdir(ROOT)
    grids = [f"benchmarks/grids/{name}.toml" for name in ("main", "robustness", "ablations", "forgers")]
    found = ask("check", *grids, "--page", "docs/results/reproduction.md")
    assert found["problems"] == [], "run make bench-report"
