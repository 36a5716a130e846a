"""invgnn demo: the whole way of a mark on one task."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from invgnn.cli.console import Json, Overwrite, err, out, progress, verb

PASSPHRASE = "demo"  # noqa: S105 - a demonstration protects nothing


@verb
def demo(
    task: Annotated[
        str, typer.Option(help="TASK/BACKBONE; the default is generated and needs no download.")
    ] = "BA-2motif/GIN",
    output: Annotated[Path, typer.Option("-o", "--output", help="Folder for what is made.")] = Path(
        "demo-out"
    ),
    epochs: Annotated[int | None, typer.Option(help="40 for the generated task, else 100.")] = None,
    m: Annotated[int, typer.Option(help="How many bits.")] = 128,
    seed: Annotated[int, typer.Option(help="Split, weights and order of batches.")] = 41,
    overwrite: Overwrite = False,
    json_: Json = False,
) -> Any:
    """Make a secret, draw carriers, train with and without the mark, edit, and verify everything.

    The default task is generated: Barabási-Albert graphs carrying a house or a five-cycle, 1,000 of them,
    nodes coloured at random. `--task PROTEINS/GIN` does the same on real data.
    """
    from invgnn.edits import FineTune, Prune, Quantise
    from invgnn.models import save_model
    from invgnn.reading import Access
    from invgnn.report import write_report
    from invgnn.secret import Secret
    from invgnn.tasks import load_task, new_model, parse_setting
    from invgnn.training import accuracy, train
    from invgnn.verdict import verify
    from invgnn.watermark import Watermark

    name, backbone = parse_setting(task)
    epochs = epochs or (40 if name == "BA-2motif" else 100)
    _prepare(output, overwrite)
    err.print(f"[bold]1[/] load {name}, split {seed}")
    loaded = load_task(name, seed)
    secret = Secret.generate()
    err.print(f"[bold]2[/] make a secret: {secret!r}")
    with progress("[bold]3[/] draw carriers", m) as tick:
        access: Access = "logits" if backbone == "SGC" else "embedding"  # SGC has no hidden layer
        mark = Watermark.draw(secret, loaded.data, m=m, access=access, progress=tick)
    trained: dict[str, Any] = {}
    kinds = {"unmarked A": (None, seed), "unmarked B": (None, seed + 1), "marked": (mark, seed)}
    for step, (label, (what, start)) in enumerate(kinds.items(), 4):
        model = new_model(loaded, backbone, start)
        with progress(f"[bold]{step}[/] train {label}", epochs) as tick:
            train(model, loaded, what, epochs=epochs, seed=start, progress=lambda done, all_: tick(1))
        trained[label] = model
    edits = (Prune(0.5), Quantise(8), Quantise(4), FineTune(20, 1e-3))
    with progress("[bold]7[/] edit the marked model", len(edits)) as tick:
        for edit in edits:
            trained[f"marked, {edit!r}"] = edit(trained["marked"], loaded)
            tick(1)
    controls = [trained["unmarked A"], trained["unmarked B"]]
    rows = []
    with progress("[bold]8[/] verify all", len(trained)) as tick:
        for label, model in trained.items():
            others = [c for c in controls if c is not model]
            verdict = verify(model, mark, controls=others, with_answers=label == "marked")
            rows.append((label, verdict, accuracy(model, loaded, loaded.test)))
            tick(1)
    verdicts = {label: verdict for label, verdict, _ in rows}
    mark.save(output / "demo.mark", PASSPHRASE, overwrite=overwrite)
    save_model(output / "demo.model", trained["marked"], overwrite=overwrite, task=task, seed=seed)
    command = f"invgnn verify --mark {output}/demo.mark --model {output}/demo.model"
    command = f"INVGNN_PASSPHRASE={PASSPHRASE} {command}"
    write_report(
        output / "report.html",
        verdicts["marked"],
        mark=mark,
        rows=rows,
        title=f"Demonstration on {task}",
        command=command,
        overwrite=overwrite,
    )
    record = {
        "task": task,
        "output": str(output),
        "rows": [{"model": n, "test_accuracy": a, **v.to_json()} for n, v, a in rows],
    }
    if not json_:
        out.print(_table(rows, task))
    words = (
        f"wrote {output}/demo.mark, {output}/demo.model and {output}/report.html\ncheck again: {command}"
    )
    return record, words, 0


def _prepare(output: Path, overwrite: bool) -> None:
    from invgnn import disk

    output.mkdir(parents=True, exist_ok=True)
    for name in ("demo.mark", "demo.model", "report.html"):
        if (output / name).exists() and not overwrite:
            raise disk.existing(output / name)


def _table(rows: list[Any], task: str) -> Any:
    from rich.table import Table

    first = rows[0][1]
    table = Table(
        title=f"{task}: read at {first.access}, statistic {first.statistic}, null {first.null}, "
        f"alpha {first.alpha:g}",
        caption="evidence bits = -log2 p, exact for any model unrelated to the secret",
    )
    for column in ("model", "accuracy", "matches", "p", "evidence", "verdict"):
        table.add_column(column, justify="left" if column in {"model", "verdict"} else "right")
    for label, verdict, score in rows:
        p = f"1e{verdict.log10_p:.0f}" if verdict.log10_p < -3 else f"{verdict.p:.2g}"
        bits = f"{verdict.evidence_bits:.1f} bits"
        table.add_row(label, f"{score:.3f}", f"{verdict.t}/{verdict.m}", p, bits, verdict.status)
    return table
