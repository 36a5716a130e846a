"""invgnn trace: find out whose copy leaked."""

from __future__ import annotations

import functools
import os
import shlex
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any

import typer

from invgnn.cli.console import check_input, check_outputs, find_passphrase, progress, verb
from invgnn.cli.loading import load_suspect, load_task_data
from invgnn.cli.options import Alpha, Json, OptionalTask, Overwrite, PassphraseFile, SplitSeed
from invgnn.errors import FileError, ParameterError, PassphraseError

if TYPE_CHECKING:
    from invgnn.court.tracing import Trace
    from invgnn.watermark.mark import Watermark

EXIT_CODES = """\b
Exit codes:
    0  at least one mark is named
    1  no mark is named: chance can explain all answers
    2  error, explained on standard error
  130  interrupted
"""
EXAMPLES = """\b
Examples:
  invgnn trace --marks licensees/ --suspects found/
  invgnn trace --marks licensees/ --suspects found/ --csv trace.csv \\
      --report trace.html --workers 2
"""


@verb
def trace(
    marks: Annotated[Path, typer.Option(metavar="DIR", help="Folder with the marks, one per licensee.")],
    suspects: Annotated[
        Path, typer.Option(metavar="DIR", help="Folder with the suspects, or a single one.")
    ],
    architecture: Annotated[
        str | None,
        typer.Option(metavar="MOD:FUNC", help="For weights alone: function that returns the model."),
    ] = None,
    alpha: Alpha = 1e-6,
    csv: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write every mark and suspect as a CSV table.")
    ] = None,
    report: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the matrix as an HTML page.")
    ] = None,
    workers: Annotated[
        int, typer.Option(metavar="N", min=1, help="Number of processes, each for one suspect at a time.")
    ] = 1,
    cluster: Annotated[
        str | None,
        typer.Option(
            metavar="URL", help="Dask scheduler whose workers do it. They need the files at these paths."
        ),
    ] = None,
    task: OptionalTask = None,
    seed: SplitSeed = 41,
    passphrase_file: PassphraseFile = None,
    overwrite: Overwrite = False,
    json_: Json = False,
) -> Any:
    """Name the licensees whose marks a suspect carries.

    Every suspect is asked about all marks in one pass. The evidence is corrected for the number of marks
    and of suspects: over the whole table, an innocent licensee is named with probability at most alpha.
    The marks are encrypted with one passphrase. With --workers or --cluster it is read from
    --passphrase-file or INVGNN_PASSPHRASE, never from the command line.

    A mark that is named shows that the suspect descends from that copy, not who passed it on.
    """
    check_input(marks, suspects)
    check_outputs(csv, report, overwrite=overwrite)
    files = _files(suspects, "suspect")
    held = _files(marks, "mark", ".mark")
    spread = workers > 1 or cluster is not None
    if spread and _unprompted(passphrase_file) and _sealed(held):
        raise ParameterError(
            "worker processes cannot prompt for a passphrase", "use --passphrase-file or INVGNN_PASSPHRASE"
        )
    work = functools.partial(
        _work,
        marks=str(marks),
        architecture=architecture,
        alpha=alpha,
        count=len(files),
        task=task,
        seed=seed,
        passphrase_file=None if passphrase_file is None else str(passphrase_file),
    )
    rows: list[dict[str, Any]] = []
    with progress(f"asking {len(files)} suspects about {len(held)} marks", len(files)) as tick:
        for found in _spread(work, files, workers, cluster) if spread else map(work, map(str, files)):
            _check_marks(found, held)
            rows += found
            tick(1)
    options = {"--architecture": architecture, "--alpha": f"{alpha:g}", "--task": task}
    options |= {"--seed": str(seed)} if task is not None else {}
    words = ["invgnn", "trace", "--marks", str(marks), "--suspects", str(suspects)]
    words += [word for name, value in options.items() if value is not None for word in (name, value)]
    return _shown(rows, alpha, csv, report, overwrite, shlex.join(words))


def _files(path: Path, what: str, suffix: str = "") -> list[Path]:
    """Return the files of a folder, or the one file."""
    found = sorted(one for one in path.iterdir() if one.is_file()) if path.is_dir() else [path]
    found = [one for one in found if one.name.endswith(suffix) and not one.name.startswith(".")]
    if not found:
        raise FileError(f"there is no {what} in {path}", f"give a folder with {what} files")
    return found


def _unprompted(passphrase_file: Any) -> bool:
    """Return whether a passphrase could only be typed."""
    return passphrase_file is None and "INVGNN_PASSPHRASE" not in os.environ


def _sealed(paths: list[Path]) -> bool:
    """Return whether a file needs a passphrase."""
    from invgnn.storage import container

    return any(container.peek(path)["sealed"] for path in paths)


def _marks(folder: str, passphrase_file: str | None) -> dict[str, Watermark]:
    """Load the marks of a folder, once per process unless a file changes."""
    paths = _files(Path(folder), "mark", ".mark")
    seen = tuple((path, (found := path.stat()).st_mtime_ns, found.st_size, found.st_ino) for path in paths)
    return _loaded(seen, folder, passphrase_file)


@functools.lru_cache(maxsize=1)
def _loaded(seen: tuple[Any, ...], folder: str, passphrase_file: str | None) -> dict[str, Watermark]:
    """Load marks; what was seen of their files is the key under which they are kept."""
    from invgnn.watermark.mark import Watermark

    paths = [path for path, *_ in seen]
    given = None if passphrase_file is None else Path(passphrase_file)
    passphrase = find_passphrase(Path(folder), given) if _sealed(paths) else None
    return {path.name.removesuffix(".mark"): Watermark.load(path, passphrase) for path in paths}


def _work(
    suspect: str,
    *,
    marks: str,
    architecture: str | None,
    alpha: float,
    count: int,
    task: str | None,
    seed: int,
    passphrase_file: str | None,
) -> list[dict[str, Any]]:
    """Trace one suspect; also the job of a worker process."""
    from invgnn.audit.verify import open_suspect
    from invgnn.court.tracing import trace_suspect

    path = Path(suspect)
    model = open_suspect(load_suspect(path, architecture), None)
    held, data = _marks(marks, passphrase_file), load_task_data(task, seed)
    rows = trace_suspect(path.name, model, held, alpha=alpha, suspects=count, data=data)
    return [row.record() for row in rows]


def _job(path: str, work: functools.partial[Any]) -> list[dict[str, Any]]:
    """Trace one suspect in a worker, and name its file in every row, as a sweep requires.

    Raises:
        PassphraseError: If the worker would have to prompt for a passphrase.
    """
    marks = _files(Path(work.keywords["marks"]), "mark", ".mark")
    if _unprompted(work.keywords["passphrase_file"]) and _sealed(marks):
        raise PassphraseError(
            "a worker has no passphrase for the marks",
            "use --passphrase-file, or set INVGNN_PASSPHRASE where the worker is started",
        )
    return [{"path": path, **row} for row in work(path)]


def _spread(work: Any, files: list[Path], workers: int, cluster: str | None) -> Any:
    """Yield the rows of every suspect from processes or from a cluster."""
    from invgnn.bench.sweep import sweep

    with TemporaryDirectory() as folder:
        trials = [{"path": str(file)} for file in files]
        job = functools.partial(_job, work=work)
        into = Path(folder) / "rows.csv"
        for _, rows in sweep(job, trials, into=into, workers=workers, cluster=cluster):
            yield [{name: value for name, value in row.items() if name != "path"} for row in rows]


def _check_marks(rows: list[dict[str, Any]], marks: list[Path]) -> None:
    """Refuse rows of a worker that sees other marks: its tests were counted wrongly."""
    if sorted(row["mark"] for row in rows) != sorted(path.name.removesuffix(".mark") for path in marks):
        raise FileError(
            "a worker read other marks than are in the folder", "give all workers the same files, unchanged"
        )


def _shown(
    records: list[dict[str, Any]],
    alpha: float,
    csv: Path | None,
    report: Path | None,
    overwrite: bool,
    command: str,
) -> Any:
    """Write the tables, and return what is printed."""
    from invgnn.court.trace_page import as_csv, as_text, render_traces
    from invgnn.court.tracing import Trace, named
    from invgnn.storage.atomic import write_text

    rows: list[Trace] = sorted((Trace(**one) for one in records), key=lambda row: row.suspect)
    if csv is not None:
        write_text(csv, as_csv(rows), overwrite=overwrite, private=True)
    if report is not None:
        write_text(report, render_traces(rows, alpha, command), overwrite=overwrite, private=True)
    found = named(rows)
    record = {
        "named": found,
        "marks": len({row.mark for row in rows}),
        "suspects": len(found),
        "alpha": alpha,
        "rows": [row.record() for row in rows if row.named],
    }
    return record, as_text(rows, alpha), 0 if any(found.values()) else 1
