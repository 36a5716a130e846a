"""Check that a report follows from its rows, and that the comparison is fair."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from invgnn.bench.grids.grid import Difference
from invgnn.bench.grids.store import Row
from invgnn.bench.report.beside import all_beside
from invgnn.bench.report.claims import claim_problems
from invgnn.bench.report.evidence import Evidence
from invgnn.bench.report.kept import kept_problems
from invgnn.bench.report.publish import page_part, rendered
from invgnn.bench.script import published


@dataclass(frozen=True)
class Checked:
    """The outcome of a check.

    Attributes:
        problems: What is wrong, one line each.
        rows: Number of rows.
        missing: Number of trials without a row.
        stale: Number of rows that were made by other code.
    """

    problems: list[str]
    rows: int
    missing: int
    stale: int

    def __str__(self) -> str:
        counted = f"{self.rows} rows, {self.missing} trials without one, {self.stale} rows of other code"
        if self.problems:
            return "\n".join([f"not sound: {len(self.problems)} problems", *self.problems, counted])
        return f"sound: {counted}"


def check_report(
    grids: Sequence[Path],
    results: Path,
    paper: Path,
    folder: Path,
    page: Path | None = None,
    *,
    strict: bool = False,
) -> Checked:
    """Check rows, tables, figures and page of some grids.

    Args:
        grids: The grids.
        results: Folder of the CSV files.
        paper: File of the published numbers.
        folder: Folder of the report.
        page: A documentation page with the tables.
        strict: Whether missing rows, rows of other code, and published numbers that do not come out and
            have no sentence are problems.
    """
    evidence = Evidence.load(grids, results)
    problems = [*row_problems(evidence.rows), *setting_problems(evidence)]
    problems += file_problems(evidence, paper, folder, page)
    problems += claim_problems(paper.parent / "claims.toml")
    names = {path.stem for path in (paper.parent / "grids").glob("*.toml")} | {path.stem for path in grids}
    if results.resolve() == (paper.parent / "results").resolve():  # those of the repository
        problems += kept_problems(paper.parent / "kept.toml", results, names)
    unexplained = [one for one in all_beside(evidence, paper) if one.comes_out is False and not one.why]
    if strict and unexplained:
        problems.append(f"{len(unexplained)} published numbers do not come out and have no sentence")
    if strict and evidence.missing:
        problems.append(f"{evidence.missing} trials have no row")
    if strict and evidence.stale:
        problems.append(f"{len(evidence.stale)} rows were made by other code")
    return Checked(problems, len(evidence.rows), evidence.missing, len(evidence.stale))


def row_problems(rows: Sequence[Row]) -> list[str]:
    """Return the rows without a command, and those whose content hash is not that of their content.

    Args:
        rows: The rows.
    """
    problems = []
    for row in rows:
        where = f"{row.measure} {row.id} ({', '.join(row.arguments.values())})"
        if not row.command.strip():
            problems.append(f"{where}: there is no command")
        if not row.sound:
            problems.append(f"{where}: its arguments, settings or code are not those of its id")
    return problems


def setting_problems(evidence: Evidence) -> list[str]:
    """Return hyperparameters that differ between settings and are not written down in a grid.

    Args:
        evidence: The rows and the grids.
    """
    allowed = [one for grid in evidence.grids for one in grid.differences]
    problems = []
    for scheme, by_setting in hyperparameters(evidence.rows).items():
        names = dict.fromkeys(name for flat in by_setting.values() for name in flat)
        for name in names:
            values = {setting: flat.get(name, "") for setting, flat in by_setting.items()}
            if len(set(values.values())) > 1 and not _written_down(allowed, scheme, name):
                shown = ", ".join(f"{value} on {setting}" for setting, value in values.items())
                problems.append(f"{scheme}: {name} differs without a reason in the grid: {shown}")
    return problems


def _written_down(allowed: Sequence[Difference], scheme: str, name: str) -> bool:
    """Return whether a grid gives a reason why a hyperparameter differs."""
    return any((one.scheme, one.field) == (scheme, name) and one.why.strip() for one in allowed)


def hyperparameters(rows: Sequence[Row]) -> dict[str, dict[str, dict[str, str]]]:
    """Return the hyperparameters of every scheme as they were used, by setting.

    Variants are left out: what differs in them stands in their arguments.

    Args:
        rows: The rows.

    Returns:
        For every scheme and setting: dotted names, and values as JSON. If rows of one setting differ, a
            name has all of their values.
    """
    found: dict[str, dict[str, dict[str, str]]] = {}
    for row in rows:
        if not row.get("hyperparameters") or row.measure == "variant":
            continue
        flat = found.setdefault(row.arguments["scheme"], {}).setdefault(row.arguments["setting"], {})
        for name, value in flattened(json.loads(row.get("hyperparameters"))):
            known = flat.get(name, value)
            flat[name] = known if value in known.split(" or ") else f"{known} or {value}"
    return found


def flattened(value: object, name: str = "") -> list[tuple[str, str]]:
    """Return nested settings as pairs of a dotted name and JSON.

    Args:
        value: The settings.
        name: Name of what they are part of.
    """
    if isinstance(value, dict):
        return [
            pair for key, part in value.items() for pair in flattened(part, f"{name}.{key}".lstrip("."))
        ]
    return [(name, json.dumps(value))]


def file_problems(evidence: Evidence, paper: Path, folder: Path, page: Path | None) -> list[str]:
    """Return the files of a report that differ from what the rows give.

    Args:
        evidence: The rows.
        paper: File of the published numbers.
        folder: Folder of the report.
        page: A documentation page with the tables.
    """
    again = "run invgnn bench report with the same grids"
    problems = []
    for name, text in rendered(evidence, paper).items():
        path = folder / name
        if not path.exists():
            problems.append(f"{path} does not exist: {again}")
        elif path.read_text(encoding="utf-8") != text:
            problems.append(f"{path} differs from the rows: {again}")
    if page is not None and published(page) != page_part(evidence, paper):
        problems.append(f"{page} differs from the rows: {again}")
    return problems
