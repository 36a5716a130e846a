"""Tables of finished trials in CSV files, with atomic appends and a single writer."""

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
"""The arguments of one trial by name: plain values, which identify its rows in a table."""
Rows = Sequence[Mapping[str, Any]]
"""The rows of one trial: cells by the name of their column."""


def read_rows(path: str | Path) -> list[dict[str, str]]:
    """Return all rows of a results file as text; another process may be writing to the file."""
    text = _committed(Path(path).read_bytes()).decode()
    return list(csv.DictReader(io.StringIO(text, newline="")))


def missing(trials: Iterable[Trial], path: str | Path) -> list[Trial]:
    """Return the trials, each once, that have no rows in a results file.

    Args:
        trials: The arguments of the trials, all with the same names in the same order.
        path: The results file. It need not exist.

    Raises:
        ParameterError: If the trials have different arguments.
        FileError: If the file lacks a column for an argument.
    """
    wanted = list(trials)
    names = list(wanted[0]) if wanted else []
    if any(list(trial) != names for trial in wanted):
        raise ParameterError(
            "trials differ in their arguments", "use the same names in the same order for all"
        )
    rows = read_rows(path) if Path(path).exists() else []
    _check(path, names, list(rows[0]) if rows else names)
    done = {_key(row, names) for row in rows}
    return list({_key(t, names): t for t in wanted if _key(t, names) not in done}.values())


def _check(path: str | Path, names: list[str], columns: list[str]) -> None:
    """Raise `FileError` unless every name is a column."""
    if not set(names) <= set(columns):
        raise FileError(
            f"{path} lacks columns; expected {', '.join(names)}", "move the file, or choose another"
        )


def _key(row: Mapping[str, Any], names: Iterable[str]) -> tuple[str, ...]:
    """Return the values of a row, as text, by which its trial is found."""
    return tuple("" if row[name] is None else str(row[name]) for name in names)


def _committed(data: bytes) -> bytes:
    """Return the data before the first zero byte, which marks an unfinished block."""
    return data.partition(b"\0")[0]


class Results:
    """A results file opened for writing by this process alone; use it in a `with` block.

    The rows of a trial are appended as one block whose first byte is written last. Until then a zero byte,
    which never occurs in text, takes its place. A block is therefore either complete or ignored, even if
    the process or the machine stops. Ignored data is removed when the file is next opened.

    Args:
        path: The file; its name ends in .csv.
        names: The arguments of a trial, which are columns of its rows.
        private: Make the file readable by its owner only (mode 0600).
        single: Whether every trial has exactly one row.

    Raises:
        ParameterError: If the name does not end in .csv.
    """

    def __init__(
        self, path: str | Path, names: Iterable[str], *, private: bool = False, single: bool = False
    ) -> None:
        self.path, self.names, self.private, self.single = Path(path), list(names), private, single
        self.columns: list[str] = []
        if self.path.suffix != ".csv":  # a file that is not a results file must not be truncated
            raise ParameterError(f"{path} is not the name of a CSV file", "choose a name that ends in .csv")

    def __enter__(self) -> Results:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._file = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600 if self.private else 0o666)
        try:
            if self.private:
                os.fchmod(self._file, 0o600)
            fcntl.flock(
                self._file, fcntl.LOCK_EX | fcntl.LOCK_NB
            )  # released when the process ends, for any reason
            os.truncate(self._file, len(self._sound(_committed(self.path.read_bytes()))))
        except BaseException as error:
            os.close(self._file)
            if isinstance(error, BlockingIOError):
                raise FileError(
                    f"another sweep is writing to {self.path}", "wait, or choose another file"
                ) from None
            raise
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._file)

    def _sound(self, data: bytes) -> bytes:
        """Return the data without a truncated last line and without the other rows of that trial."""
        lines = data.splitlines(keepends=True)
        self.columns, *rows = csv.reader([line.decode(errors="replace") for line in lines] or [""])
        _check(self.path, self.names, self.columns or self.names)
        if not lines or lines[-1].endswith(b"\n"):
            return data
        warnings.warn(
            f"{self.path}: the last line is cut off; its trial counts as unfinished", stacklevel=3
        )
        places = [self.columns.index(name) for name in self.names]
        while (
            not self.single
            and rows[1:]
            and all(_may_be(rows[-1], place, rows[-2][place]) for place in places)
        ):
            del rows[-2]
        return b"".join(lines[: len(rows)])

    def add(self, trial: Trial, rows: Rows) -> None:
        """Append the rows of one trial. All of them are on disk when this returns.

        Args:
            trial: The arguments of the trial.
            rows: At least one row, each with the arguments of the trial among its columns.

        Raises:
            ParameterError: If there are no rows, or they do not fit the trial or the columns of the file.
        """
        block, end = self._block(trial, rows), os.fstat(self._file).st_size
        _write(self._file, block[1:], end + 1)
        _write(self._file, block[:1], end)
        self.columns = self.columns or list(rows[0])

    def _block(self, trial: Trial, rows: Rows) -> bytes:
        """Return rows as lines of the file; the first block starts with the names of the columns."""
        columns = self.columns or [name for row in rows[:1] for name in row]
        if not rows or any(set(row) != set(columns) for row in rows):
            raise ParameterError(
                f"a trial returned {len(rows)} rows; the columns are {', '.join(columns) or 'unknown'}",
                "return at least one row, all with these columns; use another file for other columns",
            )
        named = set(self.names) <= set(columns)
        if not named or any(_key(row, self.names) != _key(trial, self.names) for row in rows):
            raise ParameterError("a row lacks its trial's values", "include the arguments in every row")
        text = io.StringIO(newline="")
        writer = csv.DictWriter(text, columns)
        if not self.columns:
            writer.writeheader()
        writer.writerows(rows)
        if "\0" in text.getvalue() or text.getvalue().count("\n") != len(rows) + (not self.columns):
            raise ParameterError("a cell contains a line break or a zero byte", "use text without either")
        return text.getvalue().encode()


def _may_be(cut: list[str], place: int, cell: str) -> bool:
    """Return whether a truncated line may have had this cell at a position."""
    if place < len(cut) - 1:
        return cut[place] == cell
    return place >= len(cut) or cell.startswith(cut[place])


def _write(file: int, data: bytes, at: int) -> None:
    """Write data at an offset of a file and flush it to disk."""
    while data:
        written = os.pwrite(file, data, at)
        data, at = data[written:], at + written
    os.fsync(file)
