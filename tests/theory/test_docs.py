"""Recompute the numbers quoted in docs/explanation/theory.md."""

from __future__ import annotations

import csv
import math
import re
from pathlib import Path

import numpy as np

from invgnn.theory.sizes import paper_table, sizes, thresholds

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "explanation/theory.md").read_text(encoding="utf-8")
RESULTS = ROOT / "benchmarks" / "results"


def test_smallest_sizes():
    rows = re.findall(
        r"^\| (exact|hoeffding|binomial|paper)\b[^|]*\| (\d+) \| (\d+) \| (\d+) \|", PAGE, re.M
    )
    quoted = {name: tuple(map(int, ms)) for name, *ms in rows}
    found: dict[str, tuple[int, ...]] = {}
    for row in sizes():
        found[row.threshold.null] = (*found.get(row.threshold.null, ()), row.threshold.m)
    assert quoted == found


def raised(number):
    """Format a small number as on the page."""
    mantissa, exponent = f"{number:.1e}".split("e")
    return f"{mantissa}·10{str(int(exponent)).translate(str.maketrans('-0123456789', '⁻⁰¹²³⁴⁵⁶⁷⁸⁹'))}"


def test_thresholds_and_their_true_levels():
    rows = [*thresholds(), *paper_table()]
    for name in dict.fromkeys(row.null for row in rows):
        cells = [
            f"{row.threshold} ({raised(row.true_alpha)})" + ("" if row.sound else " *unsound*")
            for row in rows
            if row.null == name
        ]
        shown = "printed" if name == "paper's table" else name
        assert f"| {shown} | {' | '.join(cells)} |" in PAGE


def test_where_the_papers_formula_becomes_sound():
    last = int(re.search(r"unsound up to m = (\d+)", PAGE)[1])
    rows = [row for row in thresholds(range(8, 200, 2)) if row.null == "paper"]
    assert max(row.m for row in rows if not row.sound) == last


def test_every_function_named_exists():
    import importlib

    for module, name in re.findall(r"`(\w+)\.(\w+)(?:\([^`]*\))?`", PAGE.split("## Statement")[1]):
        home = f"invgnn.stats.{module}" if module in {"null", "laws"} else f"invgnn.theory.{module}"
        assert hasattr(importlib.import_module(home), name), f"{module}.{name}"


def test_what_is_said_of_other_owners():
    with (RESULTS / "owners.csv").open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["reader"] != row["model"]]
    scores = {
        key: [int(row["t"]) for row in rows if row["key"] == key and row["model"] != "nobody"]
        for key in ("plain", "keyed")
    }
    # Under a keyed mark the others' T is hypergeometric; 21 of them have a mean within 4 standard errors.
    spread = math.sqrt(128**2 / 4 / 127 / len(scores["keyed"]))
    assert abs(np.mean(scores["keyed"]) - 64) < 4 * spread < np.mean(scores["plain"]) - 64
    assert max(scores["keyed"]) < 92
    assert f"{sum(t >= 92 for t in scores['plain'])} of {len(scores['plain'])} other owners reaches" in PAGE
    far = [row for row in rows if row["key_distance"]]
    apart = {key: [int(row["key_distance"]) for row in far if row["key"] == key] for key in scores}
    assert np.mean(apart["plain"]) < 50 < np.mean(apart["keyed"])
