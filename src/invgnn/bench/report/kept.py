"""Measurements outside the grids: which scripts and files of rows there are, and why they are kept."""

from __future__ import annotations

import tomllib
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from invgnn.bench import markdown
from invgnn.errors import FileError

FOLDERS = ("benchmarks", "studies")
"""Folders with scripts, seen from the root of the repository."""


@dataclass(frozen=True)
class Kept:
    """A measurement that no grid makes.

    Attributes:
        rows: Its files in the folder of the results.
        script: The script, seen from the root of the repository.
        command: The command that repeats it.
        page: Page with its results, seen from `docs/results`; empty for none.
        why: Why it is kept, or until when.
        superseded: The grid that takes its place once it has rows; empty for none.
    """

    rows: tuple[str, ...]
    script: str
    command: str
    page: str
    why: str
    superseded: str = ""


def read_kept(path: Path) -> list[Kept]:
    """Read the list of measurements outside the grids.

    Args:
        path: TOML file with a list `kept`; none if it does not exist.

    Raises:
        FileError: If it has other keys.
    """
    if not path.exists():
        return []
    try:
        read = tomllib.loads(path.read_text(encoding="utf-8"))["kept"]
        return [Kept(**{**one, "rows": tuple(one["rows"])}) for one in read]
    except (tomllib.TOMLDecodeError, KeyError, TypeError) as error:
        raise FileError(
            f"{path} does not list measurements: {error}", "each [[kept]] has the fields of Kept"
        ) from error


def kept_problems(path: Path, results: Path, grids: Collection[str]) -> list[str]:
    """Return scripts and files of rows that are listed nowhere, and those that are listed and missing.

    Args:
        path: The list, in a folder of the repository; without it nothing is a problem.
        results: Folder of the results.
        grids: Names of all grids, whose folders of rows need no entry.
    """
    if not path.exists():
        return []
    found, root = read_kept(path), path.parents[1]
    listed = [name for one in found for name in one.rows]
    there = {file.name for file in results.glob("*.csv")}
    folders = {file.parent.name for file in results.glob("*/*.csv")}
    scripts = {one.script for one in found}
    problems = [
        f"{results / name} is made by no grid and not listed in {path}" for name in there - {*listed}
    ]
    problems += [f"{path} lists {name}, which is not in {results}" for name in {*listed} - there]
    problems += [f"{results / name} belongs to no grid" for name in folders - {*grids}]
    problems += [f"{name} is not listed in {path}" for name in scripts_in(root) - scripts]
    problems += [
        f"{path} lists {one}, which does not exist" for one in scripts if not (root / one).exists()
    ]
    return sorted(problems)


def scripts_in(root: Path) -> set[str]:
    """Return the scripts of a repository: files, and packages with a `__main__`.

    Args:
        root: The root of the repository.
    """
    files = [file for name in FOLDERS for file in (root / name).glob("*.py")]
    files += [file.parent for name in FOLDERS for file in (root / name).glob("*/__main__.py")]
    return {file.relative_to(root).as_posix() for file in files if file.name != "__init__.py"}


def kept_markdown(kept: Sequence[Kept]) -> str:
    """Return the measurements outside the grids as a table in Markdown.

    Args:
        kept: The measurements.
    """
    if not kept:
        return ""
    rows = [
        [
            f"[`{one.command}`]({one.page})" if one.page else f"`{one.command}`",
            "<br>".join(f"`{name}`" for name in one.rows) or "–",
            one.why,
            f"grid {one.superseded}, once it has rows" if one.superseded else "–",
        ]
        for one in kept
    ]
    head = ("command", "rows in `benchmarks/results/`", "why it is kept", "superseded by")
    return f"## Measurements outside the grids\n\n{markdown.table(head, rows, text=4)}\n"
