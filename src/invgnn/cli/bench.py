"""invgnn bench: run a grid of trials, report what it shows, and check the report."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from invgnn.cli.console import check_input, note, progress, verb
from invgnn.cli.options import Json
from invgnn.errors import InvgnnError

if TYPE_CHECKING:
    from invgnn.bench.grids.run import Plan, Progress

EXIT_CODES = """\b
Exit codes:
  0  success     1  check: the report is not sound
  2  error, explained on standard error     130  interrupted
"""
EXAMPLES = """\b
Examples:
  invgnn bench run benchmarks/grids/main.toml --dry-run
  invgnn bench run benchmarks/grids/main.toml --minutes 75
  invgnn bench run benchmarks/grids/main.toml \\
      --only "setting=Cora/GCN; scheme=COS"
  invgnn bench report benchmarks/grids/main.toml
  invgnn bench check benchmarks/grids/main.toml
"""
RESULTS, REPORT = Path("benchmarks/results"), Path("benchmarks/report")

Grids = Annotated[
    list[Path], typer.Argument(metavar="GRID.toml...", help="Grids, e.g. benchmarks/grids/main.toml.")
]
Folder = Annotated[
    Path,
    typer.Option("--results", metavar="FOLDER", help="Folder of the store and of the CSV files."),
]
Into = Annotated[
    Path, typer.Option("-o", "--output", metavar="FOLDER", help="Folder of the tables, figures and page.")
]
Paper = Annotated[
    Path, typer.Option("--paper", metavar="FILE", help="Published numbers to stand beside ours.")
]

app = typer.Typer(
    name="bench",
    add_completion=False,
    rich_markup_mode=None,
    no_args_is_help=True,
    help="""Benchmark watermarking schemes, and check the report.

    A grid is a TOML file that names settings, schemes, attacks and seeds. run computes the trials that have
    no row yet. report writes tables, figures and one page to look at. check tests that the report follows
    from the rows.

    A scheme of your own, registered under the entry point invgnn.schemes, takes part like the others.
    """,
)


@app.command("run", epilog=f"{EXIT_CODES}\n{EXAMPLES}")
@verb
def run(
    grid: Annotated[Path, typer.Argument(metavar="GRID.toml", help="The grid.")],
    results: Folder = RESULTS,
    only: Annotated[
        list[str] | None,
        typer.Option(
            metavar="CONDITIONS",
            help="Only trials that fulfil all of these conditions NAME=VALUE, separated by semicolons. "
            "Can be given several times.",
        ),
    ] = None,
    limit: Annotated[int | None, typer.Option(metavar="N", min=1, help="Run N trials at most.")] = None,
    minutes: Annotated[
        float | None,
        typer.Option(
            metavar="N",
            min=0,
            help="Stop after N minutes. Trials that are running then are run again next time. With "
            "--dry-run: say how many trials fit.",
        ),
    ] = None,
    workers: Annotated[
        int, typer.Option(metavar="N", min=1, help="Number of processes, with one thread each.")
    ] = 2,
    dask: Annotated[
        str | None,
        typer.Option(
            metavar="ADDRESS", help="Dask scheduler whose workers run the trials, tcp://127.0.0.1:8786."
        ),
    ] = None,
    again: Annotated[
        bool, typer.Option("--again", help="Run the selected trials even if they have rows.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what is missing and what it will cost, and run nothing.")
    ] = False,
    json_: Json = False,
) -> Any:
    """Run the trials of a grid that have no row yet.

    A row is identified by the trial's arguments, the settings of its scheme, and a digest of the code that
    it can run. If a scheme changes, only its rows are computed again. Every finished row is kept at once.
    A run that was stopped or killed loses the running trials only: run the same command again.

    The rows are in FOLDER/bench.sqlite, and after every run in FOLDER/GRID/*.csv, which belong in version
    control.
    """
    check_input(grid)

    from invgnn.bench.grids.grid import chosen, load_grid
    from invgnn.bench.grids.run import Results

    loaded, held = load_grid(grid), Results(results)
    every = loaded.planned()
    held.take_in()
    plan = held.plan(loaded, chosen(every, only or []), limit, again)
    record = _plan_record(plan, workers, minutes)
    if dry_run:
        return record, _plan_text(plan, workers, minutes), 0
    note(_plan_text(plan, workers, minutes))
    failures = []
    with progress("running trials", len(plan.missing)) as tick:
        for step in held.run(plan, workers=workers, cluster=dask, minutes=minutes):
            note(_step(step))
            tick(1)
            if step.failure:
                failures.append(step)
    files = held.export(loaded, every)
    left = held.plan(loaded, every, None)
    record |= {"left": len(left.missing), "files": [str(path) for path in files]}
    if failures:
        raise InvgnnError(
            f"{len(failures)} trials failed; the first, {_named(failures[0])}: {failures[0].failure}",
            "the rows of the others are kept: mend the cause and run the same command again",
        )
    done = len(every) - len(left.missing)
    lines = [f"{done} of {len(every)} trials of {loaded.name} have a row of the present code"]
    if left.missing:
        lines.append(f"{len(left.missing)} are left: {left.cost}. Run the same command again.")
    return record, "\n".join([*lines, *map(str, files)]), 0


def _fits(plan: Plan, workers: int, minutes: float | None) -> int | None:
    """Return how many of the missing trials fit into the time; None without a limit or an estimate."""
    return None if minutes is None else plan.cost.fitting(60 * minutes * workers)


def _plan_record(plan: Plan, workers: int, minutes: float | None) -> dict[str, Any]:
    """Return a plan for JSON."""
    return {
        "grid": plan.grid.name,
        "trials": len(plan.planned),
        "missing": len(plan.missing),
        "stale": plan.stale,
        "seconds": plan.cost.total,
        "guessed": plan.cost.unknown,
        "workers": workers,
        "fits": _fits(plan, workers, minutes),
    }


def _plan_text(plan: Plan, workers: int, minutes: float | None) -> str:
    """Return a plan as text, with one line for each kind of trial."""
    from invgnn.bench.grids.cost import duration
    from invgnn.bench.trials.measures import MEASURES

    lines = [f"{plan.grid.name}: {plan.grid.about}"] if plan.grid.about else [plan.grid.name]
    for measure in dict.fromkeys(one.measure for one in plan.planned):
        every, lacking = (
            sum(one.measure == measure for one in part) for part in (plan.planned, plan.missing)
        )
        lines.append(f"  {measure:<11} {lacking:>5} of {every:>5} trials to run: {MEASURES[measure].about}")
    if plan.stale:
        lines.append(f"  {plan.stale} of them have a row of other code")
    lines.append(f"  cost: {plan.cost}")
    if plan.cost.total:
        lines.append(f"  with {workers} workers about {duration(plan.cost.total / workers)}")
    fits = _fits(plan, workers, minutes)
    if fits is not None:
        lines.append(f"  about {fits} of them fit into {minutes:g} minutes")
    return "\n".join(lines)


def _step(step: Progress) -> str:
    """Describe one finished trial in one line, with the time that is left."""
    from invgnn.bench.grids.cost import duration

    left = "" if step.left is None else f", {duration(step.left)} left"
    where = f"{step.done} of {step.total}{left}: {_named(step)}"
    if step.failure or step.row is None:
        return f"{where}: failed: {step.failure}"
    if step.row.get("reason"):
        return f"{where}: not possible: {step.row.get('reason')}"
    told = [
        f"{name.replace('_', ' ')} {value}"
        for name in ("test_accuracy", "accuracy", "bits", "took")
        if (value := step.row.get(name))
    ]
    return f"{where}: {', '.join(told)} s"


def _named(step: Progress) -> str:
    """Return the arguments of a trial that tell it from others."""
    hidden = ("epochs", "controls")
    return ", ".join(str(value) for name, value in step.trial.cells().items() if name not in hidden)


@app.command("report", epilog=f"{EXIT_CODES}\n{EXAMPLES}")
@verb
def report(
    grids: Grids,
    results: Folder = RESULTS,
    output: Into = REPORT,
    paper: Paper = Path("benchmarks/paper.csv"),
    page: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Also replace the tables of this documentation page, between the comments <!-- table --> "
            "and <!-- end -->.",
        ),
    ] = None,
    json_: Json = False,
) -> Any:
    """Write tables, figures and a page from the rows.

    Writes every table as Markdown and LaTeX, every figure as SVG, and index.html: a page with a table to
    sort, a heat map of the evidence, curves, and links from every cell to its rows. The page needs no
    network. Published numbers stand beside ours, with the difference. Nothing is computed that is not in a
    row: what has not been run says so.
    """
    check_input(*grids, paper)

    from invgnn.bench.report.publish import publish_report

    written = publish_report(grids, results, paper, output, page)
    return {"files": [str(path) for path in written]}, "\n".join(map(str, written)), 0


@app.command("check", epilog=f"{EXIT_CODES}\n{EXAMPLES}")
@verb
def check(
    grids: Grids,
    results: Folder = RESULTS,
    output: Into = REPORT,
    paper: Paper = Path("benchmarks/paper.csv"),
    page: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Also check the tables of this documentation page.")
    ] = None,
    strict: Annotated[
        bool,
        typer.Option(
            "--strict", help="Fail for missing rows, rows of other code and unexplained numbers as well."
        ),
    ] = False,
    json_: Json = False,
) -> Any:
    """Check that the report follows from the rows.

    Fails if the hyperparameters of a scheme differ between settings without being written down in a grid,
    if a row has no command, if the content hash of a row is not that of its arguments, settings and code,
    if a table, a figure or the page differs from the rows, or if a script or a file of rows belongs to no
    grid and is not listed as kept. Reports how many trials have no row,
    or a row of other code.
    """
    check_input(*grids, paper)

    from invgnn.bench.report.check import check_report

    found = check_report(grids, results, paper, output, page, strict=strict)
    return vars(found), str(found), int(bool(found.problems))
