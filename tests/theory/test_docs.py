"""The figures quoted in docs/theory.md, computed anew."""

from __future__ import annotations

import re
from pathlib import Path

from invgnn.theory.sizes import paper_table, sizes, thresholds

PAGE = (Path(__file__).parents[2] / "docs" / "theory.md").read_text(encoding="utf-8")


def test_smallest_sizes():
    rows = re.findall(
        r"^\| (exact|hoeffding|binomial|paper)\b[^|]*\| (\d+) \| (\d+) \| (\d+) \|", PAGE, re.M
    )
    quoted = {name: tuple(map(int, ms)) for name, *ms in rows}
    found: dict[str, tuple[int, ...]] = {}
    for row in sizes():
        found[row.threshold.null] = (*found.get(row.threshold.null, ()), row.threshold.m)
    assert quoted == found


def test_true_levels_of_the_papers_thresholds():
    rows = {row.m: row for row in paper_table()}
    assert f"({', '.join(str(row.tau) for row in rows.values())} for m = 64, 96, 128, 192)" in PAGE
    for text, m in (("1.2·10⁻²", 64), ("4.3·10⁻⁵", 96), ("9.1·10⁻⁸", 128), ("1.8·10⁻¹⁵", 192)):
        mantissa, exponent = f"{rows[m].true_alpha:.1e}".split("e")
        raised = str(int(exponent)).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))
        assert text == f"{mantissa}·10{raised}"
        assert text in PAGE


def test_where_the_papers_formula_becomes_sound():
    last = int(re.search(r"unsound up to m = (\d+)", PAGE)[1])
    rows = [row for row in thresholds(range(8, 200, 2)) if row.null == "paper"]
    assert max(row.m for row in rows if not row.sound) == last


def test_every_function_named_exists():
    import importlib

    for module, name in re.findall(r"`(\w+)\.(\w+)(?:\([^`]*\))?`", PAGE.split("## Statement")[1]):
        home = f"invgnn.{module}" if module == "null" else f"invgnn.theory.{module}"
        assert hasattr(importlib.import_module(home), name), f"{module}.{name}"
