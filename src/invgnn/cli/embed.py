"""invgnn embed: train a marked model."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from invgnn.cli.console import (
    Json,
    Overwrite,
    PassphraseFile,
    check_input,
    check_output,
    fold,
    open_passphrase,
    progress,
    verb,
)
from invgnn.errors import DataError, FileError, ParameterError

if TYPE_CHECKING:
    from invgnn.nn.backbones import Backbone
    from invgnn.training.tasks import Task
    from invgnn.watermark.mark import Watermark

EXAMPLES = """\b
Examples:
  invgnn embed --mark acme.mark --task PROTEINS/GIN -o acme.model
  invgnn embed --mark acme.mark --task PROTEINS/GIN --dry-run
  invgnn embed --mark acme.mark --task PROTEINS/GIN --start trained.model \\
      -o acme.model
"""

_EPOCHS = "Default: 100, or 20 with --start; without it, twice as many more on node tasks for the mark."


@verb
def embed(
    mark: Annotated[Path, typer.Option(metavar="FILE", help="A mark from invgnn carriers.")],
    task: Annotated[
        str,
        typer.Option(
            metavar="TASK/BACKBONE",
            help="The task of the mark, and GCN, GraphSAGE, SGC or GIN; e.g. PROTEINS/GIN.",
        ),
    ],
    output: Annotated[
        Path | None,
        typer.Option(
            "-o", "--output", metavar="FILE", help="Where to write the model; not needed for --dry-run."
        ),
    ] = None,
    start: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Fine-tune this model instead of training from scratch."),
    ] = None,
    epochs: Annotated[int | None, typer.Option(metavar="N", min=1, help=_EPOCHS)] = None,
    lr: Annotated[
        float | None,
        typer.Option(metavar="RATE", help="Learning rate. Default: 0.01, or 0.001 with --start."),
    ] = None,
    beta: Annotated[
        float | None,
        typer.Option(
            metavar="WEIGHT", help="Weight of the mark's loss beside the task's. Default: the mark's."
        ),
    ] = None,
    no_weight_scaling: Annotated[
        bool,
        typer.Option(
            "--no-weight-scaling",
            help="Leave the weights before norms as training left them, for customers who fine-tune; less "
            "of the mark survives fine-tuning.",
        ),
    ] = False,
    seed: Annotated[
        int, typer.Option(metavar="N", min=0, help="Fixes split, first weights and order of batches.")
    ] = 41,
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run",
            help="Say what to expect, from a tenth of the epochs with and without the mark; write nothing.",
        ),
    ] = False,
    passphrase_file: PassphraseFile = None,
    overwrite: Overwrite = False,
    json_: Json = False,
) -> Any:
    """Train a marked model, or mark a trained one.

    The model learns its task and the mark together, or, on node tasks, one after the other; then it is
    read once, so that you see what a verdict on it would say. In your own training loop this is one line:
    loss = task_loss + mark.loss(model). A model with norms is left stiff: the same function with large
    weights, which fine-tuning turns less.

    For a mark with a score channel the model first learns its task alone, and in the end the mark's
    file is written anew: from then on it remembers what the model said before it was marked. Back it
    up again, and publish its new digest.
    """
    if output is not None and not dry_run:
        check_output(output, overwrite)
    elif not dry_run:
        raise ParameterError("there is nowhere to write the model", "give -o FILE, or --dry-run")
    check_input(mark, start)
    rate = lr if lr is not None else 1e-3 if start else 1e-2
    if not 0 < rate < float("inf"):
        raise ParameterError(f"lr is {rate}", "give a rate above 0; 0.01 is usual")
    passphrase = open_passphrase(mark, passphrase_file)

    from dataclasses import replace
    from functools import partial

    from invgnn.audit.verify import verify
    from invgnn.nn.model_file import save_model
    from invgnn.training.tasks import load_task, new_model, parse_setting
    from invgnn.training.trainer import planned, train
    from invgnn.watermark.mark import Watermark

    name, backbone = parse_setting(task)
    held = Watermark.load(mark, passphrase)
    drawn = held.recipe
    if beta is not None:
        held = held.replace(recipe=replace(held.recipe, beta=beta))
    if no_weight_scaling:
        held = held.replace(recipe=replace(held.recipe, weight_scale=None))
    loaded = load_task(name, seed)
    _check_mark(held, loaded, mark)
    model = new_model(loaded, backbone, seed)
    if start:
        model = _load_start(start, model, task)
    epochs = epochs or (20 if start else 100)
    if dry_run:
        return _pilot(model, loaded, held, epochs=epochs, lr=rate, seed=seed, trained=start is not None)
    assert output is not None  # noqa: S101 -- checked above, before anything was loaded
    learn = partial(train, model, loaded, epochs=epochs, lr=rate, seed=seed)
    first = held.score_channel is not None and held.baseline is None
    if first:
        check_output(mark, overwrite=True)
        held.with_baseline(model, loaded.data).channel(loaded.data)  # what cannot be done fails now
        if not start:
            with progress("training without the mark", epochs) as tick:
                learn(progress=lambda done, total: tick(1))
        held = held.with_baseline(model, loaded.data)
    known = {"trained": start is not None}
    with progress("training", planned(loaded, held, epochs, **known)) as tick:
        history = learn(held, progress=lambda done, total: tick(1), **known)
    verdict = verify(model, held, data=loaded.data if held.score_channel else None)
    matches = {level["access"]: level.get("matches") for level in verdict.levels}
    about = {"task": task, "seed": seed, "test_accuracy": history.test_acc}
    if first:
        _rewrite(mark, held.replace(recipe=drawn), passphrase)
    save_model(output, model, overwrite=overwrite, **about)
    record = {
        "model": str(output),
        "mark": held.digest,
        "test_accuracy": history.test_acc,
        "best_epoch": history.best_epoch,
        "matches": matches,
        "verdict": verdict.to_json(),
    }
    read = ", ".join(f"{a} {'not read' if t is None else f'{t}/{held.m}'}" for a, t in matches.items())
    words = f"wrote {output}: test accuracy {history.test_acc:.3f}; bits read right: {read}"
    if first:
        words += f"\nwrote {mark} anew, with what the model said before; its digest is {held.digest}"
    return record, f"{words}\n{fold(str(verdict), 13)}", 0


def _rewrite(path: Path, mark: Watermark, passphrase: str | None) -> None:
    """Put a mark that has learnt to remember in the place of the same one that did not."""
    from invgnn.watermark.mark import Watermark

    if Watermark.load(path, passphrase).baseline is not None:
        raise FileError(
            f"{path} remembers another model by now, which was taught at the same time",
            "draw a mark of its own for this model",
        )
    plain = passphrase is None
    mark.save(path.resolve(), passphrase, insecure_no_passphrase=plain, overwrite=True)


def _pilot(model: Backbone, task: Task, mark: Watermark, **options: Any) -> Any:
    from invgnn.training.preflight import pilot_total, preflight

    total = pilot_total(task, mark, options["epochs"], trained=options["trained"])
    with progress("pilot", total) as tick:
        found = preflight(model, task, mark, progress=lambda done, total: tick(1), **options)
    return found.record(), str(found), 0


def _check_mark(held: Watermark, task: Task, path: Path) -> None:
    width = 0 if held.carriers.x is None else held.carriers.x.shape[1]
    if (held.context["level"], width) != (task.level, task.num_features):
        raise DataError(
            f"{path} was drawn from another task: its graphs have {width} features, those of {task.name} "
            f"{task.num_features}",
            f"draw a mark with invgnn carriers --task {task.name}",
        )


def _load_start(path: Path, fresh: Backbone, task: str) -> Backbone:
    """A trained model, if it has the kind and the widths of a fresh one."""
    from invgnn.nn.model_file import load_model

    model = cast("Backbone", load_model(path))
    differ = [
        f"{part} {model.architecture[part]}, not {fresh.architecture[part]}"
        for part in ("name", "level", "in_channels", "out_channels")
        if model.architecture[part] != fresh.architecture[part]
    ]
    if differ:
        advice = "give a model trained on this task, or the task and backbone it was trained on"
        raise ParameterError(f"{path} does not fit {task}: it has {'; '.join(differ)}", advice)
    return model
