"""invgnn compare: train every watermarking scheme on one task, and compare what each achieves."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated, Any

import typer

from invgnn.cli.console import check_output, note, progress, verb
from invgnn.cli.options import Json, Overwrite
from invgnn.errors import ParameterError

EXAMPLES = """\b
Examples:
  invgnn compare --task Cora/GCN --schemes all --seeds 41,42,43
  invgnn compare --task PROTEINS/GIN --schemes ss,trig,nat,ours \\
      --seeds 41,42,43 -o proteins.html
  invgnn compare --task BA-2motif/GIN --schemes ss,ours --seeds 41 \\
      --epochs 20 --controls 4 --json
"""


@verb
def compare(
    task: Annotated[
        str, typer.Option(metavar="TASK/BACKBONE", help="Task and backbone, e.g. Cora/GCN or PROTEINS/GIN.")
    ],
    schemes: Annotated[
        str,
        typer.Option(
            metavar="LIST",
            help="Schemes, comma-separated, or all. SS, to which accuracy and cost are compared, is always "
            "included.",
        ),
    ] = "all",
    seeds: Annotated[
        str,
        typer.Option(
            metavar="LIST", help="Seeds of splits, initial weights, training and secrets, comma-separated."
        ),
    ] = "41,42,43",
    epochs: Annotated[int, typer.Option(metavar="N", min=1, help="Epochs of every training.")] = 100,
    controls: Annotated[
        int,
        typer.Option(
            metavar="N",
            min=1,
            help="Number of unmarked models that every mark is read in. With n of them, a scheme without "
            "an exact law can show no p-value below 1/(n+1).",
        ),
    ] = 19,
    csv: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="File to which the row of every trial is appended. Trials that it holds are not run "
            "again. Default: compare-TASK-BACKBONE.csv.",
        ),
    ] = None,
    workers: Annotated[int, typer.Option(metavar="N", min=1, help="Number of processes.")] = 1,
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", metavar="FILE", help="Also write the comparison as an HTML page."),
    ] = None,
    overwrite: Overwrite = False,
    json_: Json = False,
) -> Any:
    """Train and compare watermarking schemes on one task.

    All schemes have the same backbone, split, optimiser, selection of epochs and 128 answers. Prints for
    each scheme the task accuracy and the share of right answers (WM-ACC) with 95 % confidence intervals,
    the evidence in bits under a null that is valid for it, false positives on unmarked models at 1e-6, what
    the key of a second owner finds in the model, and the cost of training relative to SS. A scheme that
    cannot serve the task gets dashes and a reason.

    Run the same command again to continue an interrupted comparison.
    """
    numbers = _numbers(seeds)
    path = Path(f"compare-{task.replace('/', '-')}.csv") if csv is None else csv
    check_output(path, overwrite=True)
    if output is not None:
        check_output(output, overwrite)

    from invgnn.bench.comparison import BASE, grid, lines, text_table, trial
    from invgnn.bench.comparison_page import write_comparison
    from invgnn.bench.sweep import sweep
    from invgnn.schemes.registry import find_schemes, pick_schemes
    from invgnn.storage.tables import missing, read_rows
    from invgnn.training.tasks import parse_setting

    parse_setting(task)
    chosen = [scheme.name for scheme in pick_schemes(schemes)]
    names = [scheme.name for scheme in find_schemes() if scheme.name in {BASE, *chosen}]
    trials = list(grid(task, names, numbers, epochs, controls))
    done = len(trials) - len(missing(trials, path))
    if done:
        note(f"{path}: {done} of {len(trials)} trials are done already")
    with progress("training and reading", len(trials)) as tick:
        tick(done)
        for _, rows in sweep(trial, trials, into=path, workers=workers):
            note(_summary(rows[0]))
            tick(1)
    held = {tuple(row[name] for name in trials[0]): row for row in read_rows(path)}
    found = lines([held[tuple(map(str, one.values()))] for one in trials])
    if output is not None:
        words = ["invgnn", "compare", "--task", task, "--schemes", schemes, "--seeds", seeds]
        words += ["--epochs", str(epochs), "--controls", str(controls)]
        write_comparison(output, found, setting=task, command=shlex.join(words), overwrite=overwrite)
    record = {
        "task": task,
        "seeds": numbers,
        "csv": str(path),
        "page": None if output is None else str(output),
        "schemes": [line.record() for line in found],
    }
    return record, text_table(found), 0


def _numbers(seeds: str) -> list[int]:
    """Return the seeds of a list."""
    words = [word.strip() for word in seeds.split(",") if word.strip()]
    if not words or not all(word.isdecimal() for word in words):
        raise ParameterError(f"{seeds!r} is not a list of seeds", "write numbers and commas: 41,42,43")
    return [int(word) for word in dict.fromkeys(words)]


def _summary(row: Any) -> str:
    """Describe the result of one trial in one line."""
    name = f"{row['scheme']}, seed {row['seed']}"
    if row["reason"]:
        return f"{name}: not possible: {row['reason']}"
    right = f"{row['matches']} of {row['asked']} answers right, {row['bits']:.1f} bits"
    return f"{name}: accuracy {row['test_accuracy']:.3f}; {right}; {row['seconds']:.1f} s"
