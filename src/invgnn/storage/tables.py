"""Rows of finished trials in a CSV file: a trial's are there all or none, and one process writes."""

from __future__ import annotations

import csv
import fcntl
import io
import os
import warnings
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from invgnn.errors import FileError, ParameterError

Trial = Mapping[str, Any]
"""The arguments of one trial by name: plain values, and the key by which its rows are found again."""
Rows = Sequence[Mapping[str, Any]]


def read_rows(path: str | Path) -> list[dict[str, str]]:
    """All rows of a results file, as text; also while somebody writes to it."""
    text = _committed(Path(path).read_bytes()).decode()
    return list(csv.DictReader(io.StringIO(text, newline="")))


def missing(trials: Iterable[Trial], path: str | Path) -> list[Trial]:
    """The trials, each once, that have no rows in a results file."""
    wanted = list(trials)
    names = list(wanted[0]) if wanted else []
    if any(list(trial) != names for trial in wanted):
        raise ParameterError(
            "trials differ in their arguments", "give all the same names in the same order"
        )
    rows = read_rows(path) if Path(path).exists() else []
    _check(path, names, list(rows[0]) if rows else names)
    done = {_key(row, names) for row in rows}
    return list({_key(t, names): t for t in wanted if _key(t, names) not in done}.values())


def _check(path: str | Path, names: list[str], columns: list[str]) -> None:
    if not set(names) <= set(columns):
        raise FileError(f"{path} lacks columns of {', '.join(names)}", "move it away, or choose another")


def _key(row: Mapping[str, Any], names: Iterable[str]) -> tuple[str, ...]:
    return tuple("" if row[name] is None else str(row[name]) for name in names)


def _committed(data: bytes) -> bytes:
    return data.partition(b"\0")[0]


class Results:
    """A results file that this process alone writes to, for the length of a `with` block.

    A trial's rows are added as one block whose first byte is written last. Until then there is a zero byte
    in its place, which no text has: whatever stops the process or the machine, a block counts or it does
    not. What does not count goes when the file is next opened.

    Args:
        path: The file; its name ends in .csv.
        names: The arguments of a trial, which are columns of its rows.
        private: Whether the file is readable by its owner alone.
        single: Whether every trial has exactly one row.
    """

    def __init__(
        self, path: str | Path, names: Iterable[str], *, private: bool = False, single: bool = False
    ) -> None:
        self.path, self.names, self.private, self.single = Path(path), list(names), private, single
        self.columns: list[str] = []
        if self.path.suffix != ".csv":  # what is no results file must not be mended
            raise ParameterError(f"{path} is not named like a table", "choose a name that ends in .csv")

    def __enter__(self) -> Results:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._file = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600 if self.private else 0o666)
        try:
            if self.private:
                os.fchmod(self._file, 0o600)
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # goes with the process, however it ends
            os.truncate(self._file, len(self._sound(_committed(self.path.read_bytes()))))
        except BaseException as error:
            os.close(self._file)
            if isinstance(error, BlockingIOError):
                raise FileError(f"another sweep writes to {self.path}", "wait, or choose another") from None
            raise
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._file)

    def _sound(self, data: bytes) -> bytes:
        """Data without a last line that somebody cut off, and without the other rows of its trial."""
        lines = data.splitlines(keepends=True)
        self.columns, *rows = csv.reader([line.decode(errors="replace") for line in lines] or [""])
        _check(self.path, self.names, self.columns or self.names)
        if not lines or lines[-1].endswith(b"\n"):
            return data
        warnings.warn(f"{self.path}: the last line is cut off; its trial is not done", stacklevel=3)
        places = [self.columns.index(name) for name in self.names]
        while (
            not self.single
            and rows[1:]
            and all(_may_be(rows[-1], place, rows[-2][place]) for place in places)
        ):
            del rows[-2]
        return b"".join(lines[: len(rows)])

    def add(self, trial: Trial, rows: Rows) -> None:
        """Append the rows of one trial: on disk, all of them, when this returns."""
        block, end = self._block(trial, rows), os.fstat(self._file).st_size
        _write(self._file, block[1:], end + 1)
        _write(self._file, block[:1], end)
        self.columns = self.columns or list(rows[0])

    def _block(self, trial: Trial, rows: Rows) -> bytes:
        """Rows as lines of the file, the first block beginning with the names of the columns."""
        columns = self.columns or [name for row in rows[:1] for name in row]
        if not rows or any(set(row) != set(columns) for row in rows):
            raise ParameterError(
                f"a trial gave {len(rows)} rows; columns are {', '.join(columns) or 'not known'}",
                "return one row or more, all with these columns; for others use another file",
            )
        named = set(self.names) <= set(columns)
        if not named or any(_key(row, self.names) != _key(trial, self.names) for row in rows):
            raise ParameterError("a row lacks its trial's values", "put the arguments into every row")
        text = io.StringIO(newline="")
        writer = csv.DictWriter(text, columns)
        if not self.columns:
            writer.writeheader()
        writer.writerows(rows)
        if "\0" in text.getvalue() or text.getvalue().count("\n") != len(rows) + (not self.columns):
            raise ParameterError("a cell has a line break or a zero byte", "a row is one line of text")
        return text.getvalue().encode()


def _may_be(cut: list[str], place: int, cell: str) -> bool:
    """Whether a line that was cut off may have had this cell in a place."""
    if place < len(cut) - 1:
        return cut[place] == cell
    return place >= len(cut) or cell.startswith(cut[place])


def _write(file: int, data: bytes, at: int) -> None:
    while data:
        written = os.pwrite(file, data, at)
        data, at = data[written:], at + written
    os.fsync(file)
