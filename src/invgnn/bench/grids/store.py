"""The rows of finished trials in an SQLite file with one writer, and CSV files for the repository."""

from __future__ import annotations

import csv
import fcntl
import io
import json
import os
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from invgnn.bench.grids.identity import Planned, canonical, id_of, slot_of
from invgnn.errors import FileError
from invgnn.storage.atomic import write_text

HEAD = ("id", "code")
TAIL = ("settings", "command")
_TABLE = """
CREATE TABLE IF NOT EXISTS rows (
  number INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, slot TEXT NOT NULL, measure TEXT NOT NULL,
  code TEXT NOT NULL, arguments TEXT NOT NULL, figures TEXT NOT NULL, settings TEXT NOT NULL,
  command TEXT NOT NULL
)
"""
_FIELDS = ("id", "slot", "measure", "code", "arguments", "figures", "settings", "command")


@dataclass(frozen=True)
class Row:
    """A finished trial. All values are text, as in the CSV file.

    Attributes:
        id: Content hash of arguments, settings and code.
        slot: Its place in a grid, whatever code filled it.
        measure: Name of the kind of trial.
        code: Digest of the code that it could run.
        arguments: Its arguments.
        figures: What was measured.
        settings: Settings of scheme, change and forgery, as canonical JSON.
        command: The command that repeats it.
    """

    id: str
    slot: str
    measure: str
    code: str
    arguments: Mapping[str, str]
    figures: Mapping[str, str]
    settings: str
    command: str

    @classmethod
    def of(cls, planned: Planned, figures: Mapping[str, object]) -> Row:
        """Return the row of a trial.

        Args:
            planned: The trial.
            figures: What was measured.
        """
        cells = planned.cells()
        cells.pop("measure")
        shown = {name: "" if value is None else str(value) for name, value in figures.items()}
        settings = canonical(planned.settings)
        return cls(
            planned.id,
            planned.slot,
            planned.measure,
            planned.code,
            cells,
            shown,
            settings,
            planned.command,
        )

    @property
    def cells(self) -> dict[str, str]:
        """The row as it stands in the CSV file."""
        head = {"id": self.id, "code": self.code}
        return {
            **head,
            **self.arguments,
            **self.figures,
            "settings": self.settings,
            "command": self.command,
        }

    def get(self, name: str) -> str:
        """Return an argument or a figure as text; empty if there is none.

        Args:
            name: Its name.
        """
        return self.arguments.get(name, self.figures.get(name, ""))

    @property
    def sound(self) -> bool:
        """Whether the content hash is that of the row."""
        slot = slot_of(self.measure, self.arguments)
        return slot == self.slot and id_of(slot, self.settings, self.code) == self.id


class Store:
    """Rows of finished trials. Every row that `add` has returned for survives a crash of the process.

    Use `writing` for the one process that writes. Any number of others may read at the same time.

    Args:
        path: The SQLite file; created if it does not exist.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with closing(self._open()) as file:
                file.execute("PRAGMA journal_mode=WAL")
                file.execute(_TABLE)
        except sqlite3.DatabaseError as error:
            advice = "move the file away; the CSV files are read again"
            raise FileError(f"{path} is not a store of rows ({error})", advice) from error

    def _open(self) -> sqlite3.Connection:
        file = sqlite3.connect(self.path, timeout=30, isolation_level=None)
        file.execute("PRAGMA synchronous=FULL")
        return file

    @contextmanager
    def writing(self) -> Iterator[Store]:
        """Hold the store for writing inside a `with` block.

        Raises:
            FileError: If another process writes to it.
        """
        lock = os.open(f"{self.path}.lock", os.O_RDWR | os.O_CREAT, 0o666)
        try:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                advice = "wait until it ends, or choose another folder with --results"
                raise FileError(f"another run is writing to {self.path}", advice) from None
            yield self
        finally:
            os.close(lock)

    def add(self, rows: Iterable[Row], *, replace: bool = False) -> None:
        """Add rows, all or none; a row that is there already is kept.

        Args:
            rows: The rows.
            replace: Whether a row with the same content hash is replaced.
        """
        verb = "INSERT OR REPLACE" if replace else "INSERT OR IGNORE"
        values = [
            (
                r.id,
                r.slot,
                r.measure,
                r.code,
                canonical(r.arguments),
                _ordered(r.figures),
                r.settings,
                r.command,
            )
            for r in rows
        ]
        marks = ",".join("?" * len(_FIELDS))
        with closing(self._open()) as file:
            file.execute("BEGIN IMMEDIATE")
            file.executemany(f"{verb} INTO rows ({','.join(_FIELDS)}) VALUES ({marks})", values)
            file.execute("COMMIT")

    def rows(self) -> list[Row]:
        """Return all rows in the order in which they were added."""
        with closing(self._open()) as file:
            found = file.execute(f"SELECT {','.join(_FIELDS)} FROM rows ORDER BY number").fetchall()  # noqa: S608
        return [_row(*one) for one in found]


def _row(
    id_: str, slot: str, measure: str, code: str, arguments: str, figures: str, settings: str, command: str
) -> Row:
    """Return a row from the values of the table."""
    told = json.loads(arguments), dict(json.loads(figures))
    return Row(id_, slot, measure, code, *told, settings, command)


def _ordered(figures: Mapping[str, str]) -> str:
    """Return figures as text that keeps their order."""
    return json.dumps(list(figures.items()), ensure_ascii=False)


def latest(rows: Iterable[Row], planned: Sequence[Planned]) -> list[Row]:
    """Return the row of every trial that has one: that of the present code, else the last of other code.

    Args:
        rows: All rows, the oldest first.
        planned: The trials, in the order of the result.
    """
    by_id, by_slot = dict[str, Row](), dict[str, Row]()
    for row in rows:
        by_id[row.id] = by_slot[row.slot] = row
    found = (by_id.get(one.id) or by_slot.get(one.slot) for one in planned)
    return [row for row in found if row is not None]


def write_csv(path: Path, rows: Sequence[Row], names: Sequence[str], columns: Sequence[str]) -> None:
    """Write rows of one kind as a CSV file, completely or not at all.

    Args:
        path: The file; an existing one is replaced.
        rows: The rows, in the order of the file.
        names: Names of the arguments.
        columns: Names of the figures.
    """
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, [*HEAD, *names, *columns, *TAIL], restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(row.cells for row in rows)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, text.getvalue(), overwrite=True)


def read_csv(path: Path, measure: str, names: Sequence[str]) -> list[Row]:
    """Read the rows of one kind.

    Args:
        path: A file that `write_csv` wrote.
        measure: Name of the kind of trial.
        names: Names of the arguments.

    Raises:
        FileError: If the file lacks a column.
    """
    with path.open(newline="", encoding="utf-8") as file:
        reader = csv.DictReader(file)
        columns = reader.fieldnames or []
        lacking = [name for name in (*HEAD, *names, *TAIL) if name not in columns]
        if lacking:
            advice = "restore the file from version control, or remove it"
            raise FileError(f"{path} lacks the column {lacking[0]}", advice)
        figures = [name for name in columns if name not in {*HEAD, *names, *TAIL}]
        return [
            Row(
                one["id"],
                slot_of(measure, {name: one[name] for name in names}),
                measure,
                one["code"],
                {name: one[name] for name in names},
                {name: one[name] for name in figures},
                one["settings"],
                one["command"],
            )
            for one in reader
        ]
