"""Rows of a stress test in a private CSV file, appended as they are computed."""

from __future__ import annotations

import csv
import io
import os
from dataclasses import fields
from pathlib import Path

from torch import nn

from invgnn.audit.provenance import digest_model
from invgnn.errors import FileError
from invgnn.storage.tables import Results
from invgnn.stress_test.rows import NUMBERS, Found, Row
from invgnn.training.tasks import Task
from invgnn.watermark.mark import Watermark


class StressTable:
    """Rows of one stress test in a CSV file of mode 0600, so that the test can be resumed.

    Every line contains the digests of the mark and the models, the task and the level alpha; a file of
    another test is refused. An incomplete line is computed again.

    Args:
        path: The CSV file.
        model: The released model.
        mark: Its mark.
        task: Its task.
        licensed: Other licensed copies of the model, if collusion is tested.
        alpha: Significance level.
    """

    def __init__(
        self,
        path: str | Path,
        model: nn.Module,
        mark: Watermark,
        task: Task,
        *licensed: nn.Module,
        alpha: float = 1e-6,
    ) -> None:
        self.path = Path(path)
        seed = "" if task.seed is None else f"/{task.seed}"
        models = "/".join(digest_model(each)[:12] for each in (model, *licensed))
        self.run = f"{mark.digest[:12]}/{models}/{task.name}{seed}/{alpha:g}"
        self.accesses = [reading.access for reading in mark.readings]
        plain = [f.name for f in fields(Row) if f.name != "found"]
        numbers = NUMBERS if mark.score_channel is None else (*NUMBERS, "score_channel")
        self.header = ["run", *plain, *(f"{a}.{n}" for a in self.accesses for n in numbers)]

    def read(self) -> list[Row]:
        """Return the rows that are computed already.

        Raises:
            FileError: If the file holds rows of another stress test.
        """
        if not self.path.exists():
            return []
        kept = self.path.read_bytes().partition(b"\0")[0]  # what follows was never finished
        whole = kept[: kept.rfind(b"\n") + 1]
        lines = list(csv.DictReader(io.StringIO(whole.decode(errors="replace"), newline="")))
        header = (whole or kept).decode(errors="replace").splitlines()[:1]
        expected = ",".join(self.header)
        fits = header == [expected] if whole else expected.startswith("".join(header))
        if not fits or any(line["run"] != self.run for line in lines):
            raise FileError(
                f"{self.path} holds rows of another stress test", "choose another file, or move this one"
            )
        os.truncate(self.path, len(whole))
        return [self._row(line) for line in lines]

    def add(self, row: Row) -> None:
        """Append a row; it is on disk when this returns."""
        record = {"run": self.run} | row.record()
        line = {name: record.get(name) for name in self.header}
        with self._open() as table:
            table.add({name: line[name] for name in table.names}, [line])

    def _open(self) -> Results:
        """Open the file for appending."""
        return Results(self.path, ("run", "change"), private=True, single=True)

    def _row(self, line: dict[str, str]) -> Row:
        """Return the row of a line."""
        found = [self._found(line, access) for access in self.accesses if line[f"{access}.matches"]]
        return Row(
            change=line["change"],
            kind=line["kind"],  # type: ignore[arg-type]  # as it was written
            knows=line["knows"],
            accuracy=float(line["accuracy"]) if line["accuracy"] else None,
            seconds=float(line["seconds"]),
            found=tuple(found),
            note=line["note"],
        )

    def _found(self, line: dict[str, str], access: str) -> Found:
        """Return the result of one reading in a line."""
        matches, m, threshold, certain = (
            int(line[f"{access}.{name}"]) for name in ("matches", "m", "threshold", "certain")
        )
        evidence, gamma, margin = (float(line[f"{access}.{n}"]) for n in ("evidence", "gamma", "margin"))
        channel = line.get(f"{access}.score_channel")
        return Found(
            access,
            matches,
            m,
            threshold,
            evidence,
            gamma,
            margin,
            certain,
            float(channel) if channel else None,
        )
