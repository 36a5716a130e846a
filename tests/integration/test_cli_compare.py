"""`invgnn compare` on the command line: it continues a file of rows, prints, and writes JSON and a page."""

import csv
import json

import pytest
from typer.testing import CliRunner

from invgnn.bench.comparison import MEASURED
from invgnn.cli import app

WORDS = [
    "compare",
    "--task",
    "Cora/GCN",
    "--schemes",
    "trig,wgle,expl",
    "--seeds",
    "41,42",
    "--controls",
    "3",
]


def run(*arguments, code=0):
    result = CliRunner().invoke(app, [str(a) for a in arguments])
    assert result.exit_code == code, result.output
    assert "Traceback" not in result.output
    return result


@pytest.fixture
def rows(tmp_path):
    """A file that holds every trial of the command above; EXPL refuses."""
    path = tmp_path / "rows.csv"
    with path.open("w", newline="") as file:
        names = ["setting", "seed", "scheme", "epochs", "controls", *MEASURED, "reason"]
        writer = csv.DictWriter(file, names)
        writer.writeheader()
        for seed in (41, 42):
            for scheme in ("SS", "TRIG", "EXPL", "WGLE"):
                row = {"setting": "Cora/GCN", "seed": seed, "scheme": scheme, "epochs": 100, "controls": 3}
                if scheme == "EXPL":
                    writer.writerow(row | dict.fromkeys(MEASURED, "") | {"reason": "too few features"})
                    continue
                figures = {"test_accuracy": 0.8 + seed / 1000, "matches": 120, "asked": 128, "bits": 90.5}
                figures |= {"null": "exact", "innocents": 3, "seconds": 2.0 if scheme == "SS" else 3.0}
                writer.writerow(row | dict.fromkeys(MEASURED, 0) | {"more": ""} | figures | {"reason": ""})
    return path


def test_a_finished_comparison_is_shown_again_and_nothing_is_trained(rows, tmp_path):
    page, before = tmp_path / "page.html", rows.read_bytes()
    shown = run(*WORDS, "--csv", rows, "-o", page).output
    assert "8 of 8 trials are done already" in shown
    lines = {line.split("  ")[0]: line.split() for line in shown.splitlines() if "  " in line}
    assert lines["EXPL"][1:] == ["-"] * 6
    assert lines["TRIG"][1:4] == ["84.2", "±", "0.6"]
    assert lines["TRIG"][-1] == "1.50"
    assert "EXPL: too few features" in shown
    assert rows.read_bytes() == before
    text = page.read_text()
    assert "too few features" in text
    assert "invgnn" in text
    again = json.loads(run(*WORDS, "--csv", rows, "--json").stdout)
    assert [one["scheme"] for one in again["schemes"]] == ["SS", "TRIG", "EXPL", "WGLE"]
    assert again["schemes"][1]["cost"] == 1.5
    assert again["schemes"][1]["accuracy"]["half"] == pytest.approx(0.0064, abs=1e-4)
    assert again["schemes"][2]["accuracy"] is None


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"--schemes": "trigg"}, "no scheme named"),
        ({"--seeds": "a"}, "not a list of seeds"),
        ({"--task": "Cora/NoSuch"}, "NoSuch"),
        ({"--task": "Cora"}, "Cora"),
    ],
)
def test_bad_input_is_explained(changed, says, rows):
    words = [*WORDS, "--csv", str(rows)]
    for name, value in changed.items():
        words[words.index(name) + 1] = value
    assert says in run(*words, code=2).output
