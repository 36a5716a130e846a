"""invgnn demo: run the full watermark lifecycle."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated, Any

import typer

from invgnn.cli.console import check_output, note, progress, verb
from invgnn.cli.options import Json, M, Overwrite, Setting, TrainingSeed

EXAMPLES = """\b
Examples:
  invgnn demo
  invgnn demo --task PROTEINS/GIN -o proteins
"""
PASSPHRASE = "demo"  # noqa: S105 - a demonstration has nothing to protect
FILES = ("demo.mark", "demo.model", "report.html")


@verb
def demo(
    task: Setting = "BA-2motif/GIN",
    output: Annotated[
        Path,
        typer.Option(
            "-o", "--output", metavar="FOLDER", help="Folder for the mark, the model and the page."
        ),
    ] = Path("demo-out"),
    epochs: Annotated[
        int | None,
        typer.Option(
            metavar="N", min=1, help="Epochs of each training. Default: 40 on BA-2motif, otherwise 100."
        ),
    ] = None,
    m: M = 128,
    seed: TrainingSeed = 41,
    overwrite: Overwrite = False,
    json_: Json = False,
) -> Any:
    """Run the full watermark lifecycle on a synthetic task.

    Creates a secret, draws carriers, trains one model with the mark and two without, edits the marked model
    (pruning, quantisation, fine-tuning) and verifies all of them. The default task, BA-2motif, is
    generated: 1,000 random graphs that contain a house or a five-cycle. Other tasks are downloaded once.

    Then serves the marked model on this machine and audits it over HTTP, with all and with few questions.

    Writes a mark, a model and a page report.html to FOLDER and prints a table of all models. Takes a few
    minutes.
    """
    _check_folder(output, overwrite)

    from invgnn.attacks.edits import FineTune, Prune, Quantise
    from invgnn.audit.report import write_report
    from invgnn.audit.verify import verify
    from invgnn.nn.model_file import save_model
    from invgnn.readout.reading import Access
    from invgnn.secret import Secret
    from invgnn.stats.laws import check_m
    from invgnn.training.batching import accuracy
    from invgnn.training.planning import planned
    from invgnn.training.tasks import load_task, new_model, parse_setting
    from invgnn.training.trainer import train
    from invgnn.watermark.mark import Watermark

    name, backbone = parse_setting(task)
    check_m(m)
    epochs = epochs or (40 if name == "BA-2motif" else 100)
    note(f"1 loading {name}, split {seed}")
    loaded = load_task(name, seed)
    secret = Secret.generate()
    note(f"2 creating a secret: {secret!r}")
    with progress("3 drawing carriers", m) as tick:
        kept: list[Access] = ["logits"] if backbone == "SGC" else ["embedding", "logits"]
        mark = Watermark.draw(secret, loaded.data, m=m, access=kept, progress=tick)
    trained: dict[str, Any] = {}
    kinds = {"unmarked A": (None, seed), "unmarked B": (None, seed + 1), "marked": (mark, seed)}
    for step, (label, (what, start)) in enumerate(kinds.items(), 4):
        model = new_model(loaded, backbone, start)
        with progress(f"{step} training {label}", planned(loaded, what, epochs)) as tick:
            train(model, loaded, what, epochs=epochs, seed=start, progress=lambda done, all_: tick(1))
        trained[label] = model
    edits = (Prune(0.5), Quantise(8), Quantise(4), FineTune(20, 1e-3))
    with progress("7 editing the marked model", len(edits)) as tick:
        for edit in edits:
            trained[f"marked, {edit!r}"] = edit(trained["marked"], loaded)
            tick(1)
    controls = [trained["unmarked A"], trained["unmarked B"]]
    rows = []
    with progress("8 verifying all models", len(trained)) as tick:
        for label, model in trained.items():
            others = [c for c in controls if c is not model]
            verdict = verify(model, mark, controls=others, with_answers=label == "marked")
            rows.append((label, verdict, accuracy(model, loaded, loaded.test)))
            tick(1)
    note("9 auditing the marked model over HTTP")
    remote = _over_http(trained["marked"], mark)
    verdicts = {label: verdict for label, verdict, _ in rows}
    output.mkdir(exist_ok=True)
    marked, saved, page = (output / file for file in FILES)
    mark.save(marked, PASSPHRASE, overwrite=overwrite)
    save_model(saved, trained["marked"], overwrite=overwrite, task=task, seed=seed)
    again = shlex.join(["invgnn", "verify", "--mark", str(marked), "--model", str(saved)])
    command = f"INVGNN_PASSPHRASE={PASSPHRASE} {again}"
    write_report(
        page,
        verdicts["marked"],
        mark=mark,
        rows=rows,
        title=f"Demonstration on {task}",
        command=command,
        overwrite=overwrite,
    )
    shown = [{"model": n, "test_accuracy": a, **v.to_json(private=False)} for n, v, a in rows]
    record = {"task": task, "output": str(output), "files": list(FILES), "rows": shown, "http": remote}
    table = f"{_table(rows, task)}\n\n{_http_words(remote)}"
    words = f"{table}\n\nwrote {marked}, {saved} and {page}\nto verify again: {command}"
    return record, words, 0


def _over_http(model: Any, mark: Any) -> dict[str, Any] | None:
    """Serve the model on this machine and audit it; None if the server is not installed."""
    from invgnn.audit.remote import Endpoint
    from invgnn.audit.sequential import Sequential
    from invgnn.audit.verify import verify

    try:
        from invgnn.serve.app import make_app
        from invgnn.serve.run import serving
    except ImportError:
        return None
    with serving(make_app(model)) as base:
        url = f"{base}/v2/models/model"
        whole = verify(Endpoint(url), mark, access="logits")
        few = verify(Endpoint(url), mark, access="logits", sequential=Sequential(bits=20))
    return {"all": whole.to_json(private=False), "few": few.to_json(private=False)}


def _http_words(found: dict[str, Any] | None) -> str:
    """Describe the audit over HTTP."""
    if found is None:
        return "no audit over HTTP: pip install 'invgnn[serve]'"
    from invgnn.audit.verdict import ceil_p, floor_bits

    whole, few = found["all"], found["few"]
    return (
        f"over HTTP, from probabilities: {whole['status']}, {floor_bits(whole['evidence_bits'])} bits, "
        f"with {whole['queries']} questions;\n"
        f"sequential audit: p = {ceil_p(few['log10_p'])} with {few['queries']} questions about "
        f"{few['audit']['carriers']} carriers and ordinary inputs"
    )


def _check_folder(output: Path, overwrite: bool) -> None:
    """Check that all files can be written, before the work starts."""
    if not output.is_dir():
        check_output(output, overwrite=False)
        return
    for file in FILES:
        check_output(output / file, overwrite)


def _table(rows: list[Any], task: str) -> str:
    """Return the verdicts as a table."""
    from invgnn.audit.verdict import floor_bits

    first = rows[0][1]
    width = max(len(label) for label, _, _ in rows)
    levels = ", ".join(level["access"] for level in first.levels)
    lines = [
        f"{task}: read at {levels}; statistic {first.statistic}, null {first.null}, alpha {first.alpha:g}",
        "",
        f"{'model':<{width}}  accuracy  best read at  matches    evidence  verdict",
    ]
    for label, verdict, score in rows:
        matches = f"{verdict.matches}/{verdict.m}"
        bits = f"{floor_bits(verdict.evidence_bits)} bits"
        read = f"{score:>8.3f}  {verdict.access:<12}  {matches:>7}  {bits:>10}  {verdict.status}"
        lines.append(f"{label:<{width}}  {read}")
    meaning = "evidence = -log2 p, exact for a model unrelated to the secret, corrected for all levels"
    return "\n".join([*lines, "", meaning])
