"""invgnn stress: measure how well a mark survives edits and attacks."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from invgnn.cli.attack import load_for, load_named
from invgnn.cli.console import check_input, check_output, fold, note, open_passphrase, progress, verb
from invgnn.cli.options import (
    Alpha,
    Json,
    Mark,
    Model,
    OptionalTask,
    Overwrite,
    OwnArchitecture,
    OwnData,
    OwnForward,
    PassphraseFile,
    SecondModel,
    SplitSeed,
)
from invgnn.cli.own_models import both_or_neither, load_own_task, load_weights, one_of
from invgnn.errors import ParameterError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from invgnn.attacks.edits import Edit
    from invgnn.stress_test.rows import Row

EXAMPLES = """\b
Examples:
  invgnn stress --mark acme.mark --model acme.model --task PROTEINS --quick
  invgnn stress --mark acme.mark --model acme.model --task PROTEINS \\
      --csv acme.csv -o acme.html
  invgnn stress --mark acme.mark --model acme.model --task PROTEINS \\
      --only prune,kd-kill,fine-tune
  invgnn stress --mark acme.mark --model acme.safetensors --quick \\
      --architecture nets:build --data nets:graphs
"""


@verb
def stress(
    mark: Mark,
    model: Model,
    task: OptionalTask = None,
    architecture: OwnArchitecture = None,
    data: OwnData = None,
    forward: OwnForward = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "-o", "--output", metavar="FILE", help="Also write the results as an HTML page. It is private."
        ),
    ] = None,
    csv: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Append each row to this CSV file as soon as it is done. Run the command again with the "
            "same file to continue an interrupted test.",
        ),
    ] = None,
    only: Annotated[
        str | None,
        typer.Option(
            metavar="LIST",
            help="Only changes whose names start with one of these, comma-separated. invgnn attack --list "
            "shows the names.",
        ),
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Only changes that need no training.")] = False,
    second: SecondModel = None,
    alpha: Alpha = 1e-6,
    passphrase_file: PassphraseFile = None,
    seed: SplitSeed = 41,
    overwrite: Overwrite = False,
    json_: Json = False,
) -> Any:
    """Measure how well a mark survives edits and attacks.

    Every edit and attack is applied to your model separately, and the result is read at every declared
    access level. Prints for each change the task accuracy that remains and, at each level, the evidence in
    bits, the matches T of m and their distance from the threshold tau. Changes that cannot be applied to
    your model are listed with the reason. The HTML page also shows how far the answers moved.

    The full suite trains about twenty models, which takes a while. --quick takes about a minute.
    """
    one_of(task, data)
    both_or_neither(architecture, data)
    if forward is not None and data is None:
        raise ParameterError("--forward is for a model of your own", "give --architecture and --data")
    check_input(mark, model, second)
    if output is not None:
        check_output(output, overwrite)
    if csv is not None:
        check_output(csv, overwrite=True)
    passphrase = open_passphrase(mark, passphrase_file)

    from invgnn.stats.laws import check_alpha
    from invgnn.stress_test.page import outcomes, write_stress
    from invgnn.stress_test.run import stress as run
    from invgnn.stress_test.table import StressTable
    from invgnn.watermark.mark import Watermark

    check_alpha(alpha)
    loaded = load_own_task(data, seed, forward) if data else load_named(str(task), seed)
    held = Watermark.load(mark, passphrase, forward=loaded.forward)

    def opened(path: Path) -> Any:
        return load_weights(path, architecture) if architecture else load_for(loaded, path)

    owned, licensed = opened(model), [] if second is None else [opened(second)]
    changes = _chosen(licensed, only, quick)
    ledger = None if csv is None else StressTable(csv, owned, held, loaded, *licensed, alpha=alpha)
    rows: list[Row] = [] if ledger is None else ledger.read()
    done = {row.change for row in rows}
    if done:
        note(f"{csv}: {len(done)} rows are done already")
    with progress("applying changes", len(changes) + 1) as tick:
        tick(len(done))
        for row in run(owned, held, loaded, changes, alpha=alpha, skip=done):
            if ledger is not None:
                ledger.add(row)
            rows.append(row)
            note(_summary(row))
            tick(1)
    found = outcomes(rows, alpha)
    if output is not None:
        words = ["--mark", mark, "--model", model, "--alpha", f"{alpha:g}", "--seed", seed]
        own = ["--architecture", architecture, "--data", data]
        words += ["--task", task] if task else own
        words += ["--forward", forward] if forward else []
        words += ["--only", only] if only else []
        words += ["--quick"] if quick else []
        words += ["--second", second] if second else []
        command = shlex.join(["invgnn", "stress", *map(str, words)])
        title, key = f"Stress test of {model.name} on {loaded.name}", held.context["key"]
        write_stress(output, rows, alpha=alpha, key=key, title=title, command=command, overwrite=overwrite)
    record = {
        "task": loaded.name if task is None else task,
        "alpha": alpha,
        "page": None if output is None else str(output),
        "csv": None if csv is None else str(csv),
        "rows": [row.record() for row in rows],
        "outcomes": [vars(outcome) for outcome in found],
    }
    return record, "\n".join([_table(rows), "", *(fold(str(each), 2) for each in found)]), 0


def _chosen(licensed: Sequence[Any], only: str | None, quick: bool) -> list[Edit]:
    """Return the changes that `--only`, `--quick` and `--second` select."""
    from invgnn.attacks.registry import pick_all
    from invgnn.stress_test.run import every_change, is_quick

    changes = every_change(*licensed)
    if only is not None:
        changes = pick_all([name.strip() for name in only.split(",")], changes)
    changes = [change for change in changes if is_quick(change) or not quick]
    if not changes:
        raise ParameterError("none of the selected changes is quick", "leave out --quick, or select others")
    return changes


def _summary(row: Row) -> str:
    """Describe the result of one change in one line."""
    if row.accuracy is None:
        return f"{row.change}: not applied: {row.note}"
    read = ", ".join(f"{found.access} {found.evidence:.1f} bits" for found in row.found)
    refused = row.note.rpartition("; ")[2]
    more = f"; {refused}" if read and refused.startswith("refused ") else ""
    return f"{row.change}: accuracy {row.accuracy:.3f}; {read or row.note}{more}"


def _table(rows: Sequence[Row]) -> str:
    """Return all results as a table."""
    from invgnn.audit.verdict import floor_bits

    accesses = [found.access for found in rows[0].found]
    width = max(len(row.change) for row in rows)
    heads = "".join(f"  {access:>10} bits  {'T/m (T-tau)':>13}" for access in accesses)
    channel = any(found.score_channel is not None for found in rows[0].found)
    lines = [f"{'change':<{width}}  accuracy{heads}{'  score channel bits' if channel else ''}"]
    for row in rows:
        if row.accuracy is None:
            lines.append(f"{row.change:<{width}}  not applied: {row.note}")
            continue
        cells = [f"{row.change:<{width}}  {row.accuracy:>8.3f}"]
        for access in accesses:
            at = row.at(access)
            counts = "" if at is None else f"{at.matches}/{at.m} ({at.headroom:+d})"
            cells.append(f"{'-' if at is None else floor_bits(at.evidence):>15}  {counts:>13}")
        shift = next((found.score_channel for found in row.found if found.score_channel is not None), None)
        cells += [] if shift is None else [f"{floor_bits(shift):>18}"]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)
