"""invgnn embed: embed a mark in a model."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from invgnn.cli.console import check_input, check_output, fold, open_passphrase, progress, verb
from invgnn.cli.options import (
    Json,
    Mark,
    OptionalSetting,
    Overwrite,
    OwnArchitecture,
    OwnData,
    OwnForward,
    PassphraseFile,
    TrainingSeed,
)
from invgnn.cli.own_models import embed_own, load_data, load_forward
from invgnn.errors import DataError, FileError, ParameterError, WeakMarkWarning

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
  invgnn embed --mark acme.mark --architecture nets:build --data nets:graphs \\
      --start trained.pt -o acme.safetensors
"""


@verb
def embed(
    mark: Mark,
    task: OptionalSetting = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "-o", "--output", metavar="FILE", help="Where to write the model. Not needed with --dry-run."
        ),
    ] = None,
    start: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Fine-tune this trained model instead of training a new one."),
    ] = None,
    epochs: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=1,
            help="With --task: number of epochs. Default: 100, or 20 with --start. On node tasks, the mark "
            "is embedded in at most 70 additional epochs, and with --start in these alone.",
        ),
    ] = None,
    lr: Annotated[
        float | None,
        typer.Option(
            metavar="RATE",
            help="Learning rate. Default: 0.01, or 0.001 with --start on the graph tasks of --task.",
        ),
    ] = None,
    beta: Annotated[
        float | None,
        typer.Option(
            metavar="WEIGHT",
            help="Weight of the mark's loss relative to the task's. Default: the weight in the mark.",
        ),
    ] = None,
    no_weight_scaling: Annotated[
        bool,
        typer.Option(
            "--no-weight-scaling",
            help="Do not scale up the weights before normalisation layers, e.g. for customers who "
            "fine-tune the model. Less of the mark then survives fine-tuning.",
        ),
    ] = False,
    architecture: OwnArchitecture = None,
    data: OwnData = None,
    forward: OwnForward = None,
    metric: Annotated[
        str | None,
        typer.Option(
            metavar="MOD:FUNC",
            help="With --architecture: MODULE:FUNCTION, a function of the model that returns a number, "
            "measured before and after.",
        ),
    ] = None,
    steps: Annotated[
        int | None,
        typer.Option(metavar="N", min=1, help="With --architecture: most optimiser steps. Default: 800."),
    ] = None,
    seed: TrainingSeed = 41,
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run",
            help="Show how many carriers are used in how many steps, and estimate training time and "
            "evidence from a tenth of the training. Nothing is written.",
        ),
    ] = False,
    passphrase_file: PassphraseFile = None,
    overwrite: Overwrite = False,
    json_: Json = False,
) -> Any:
    """Train a marked model, or embed the mark in a trained one.

    The model learns its task and the mark together or, on node tasks, the task first and the mark
    afterwards. TASK is the task that the mark was drawn from. In your own training loop, embedding is one
    line: loss = mark.joint_loss(model, task_loss).

    Writes the model to FILE and prints its accuracy and the verdict on it.

    To mark a trained model of your own, give --architecture, --data and --start. No labels are needed, and
    the weights are written as safetensors.

    If the model has normalisation layers, the weights before them are scaled up. The model computes the
    same function, and the mark survives more fine-tuning.

    If the mark has a score channel, the model is first trained on the task alone. Its scores become the
    baseline scores of the mark, and the file of the mark is rewritten with them: back it up again, and
    publish its new digest.
    """
    if output is not None and not dry_run:
        check_output(output, overwrite)
    elif not dry_run:
        raise ParameterError("no output file was given", "give -o FILE, or use --dry-run")
    check_input(mark, start)
    if lr is not None and not 0 < lr < float("inf"):
        raise ParameterError(
            f"the learning rate must be a positive number, not {lr}", "give e.g. --lr 0.01"
        )
    own = _check_own(architecture, data, start, task, dry_run)
    _check_budget(own, epochs=epochs, steps=steps, metric=metric, forward=forward)
    passphrase = open_passphrase(mark, passphrase_file)
    if own:
        from invgnn.watermark.mark import Watermark

        options = {"steps": steps, "seed": seed} | ({} if lr is None else {"lr": lr})
        inputs = load_data(str(data))
        loaded_mark = Watermark.load(mark, passphrase, forward=load_forward(forward, inputs))
        given = _changed(loaded_mark, beta, no_weight_scaling)
        files = Path(str(start)), Path(str(output))
        return embed_own(
            given, str(architecture), inputs, *files, metric=metric, options=options, overwrite=overwrite
        )
    task = str(task)

    from dataclasses import replace
    from functools import partial

    from invgnn.audit.verify import verify
    from invgnn.nn.model_file import save_model
    from invgnn.training.planning import planned
    from invgnn.training.tasks import load_task, new_model, parse_setting
    from invgnn.training.trainer import train
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
    rate = lr or (1e-3 if start and loaded.level == "graph" else 1e-2)
    if dry_run:
        return _pilot(model, loaded, held, epochs=epochs, lr=rate, seed=seed, trained=start is not None)
    assert output is not None  # noqa: S101 -- checked above, before anything was loaded
    learn = partial(train, model, loaded, epochs=epochs, lr=rate, seed=seed)
    first = held.score_channel is not None and held.baseline is None
    if first:
        check_output(mark, overwrite=True)
        held.with_baseline(model, loaded.data).channel(
            loaded.data
        )  # fail now rather than after the training
        if not start:
            with progress("training without the mark", epochs) as tick:
                learn(progress=lambda done, total: tick(1))
        held = held.with_baseline(model, loaded.data)
    known = {"trained": start is not None}
    with progress("training", planned(loaded, held, epochs, **known)) as tick, warnings.catch_warnings():
        warnings.simplefilter("ignore", WeakMarkWarning)  # the verdict says it
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
    words = f"wrote {output}: test accuracy {history.test_acc:.3f}; matching bits: {read}"
    if first:
        words += f"\nrewrote {mark} with the baseline scores of the model; its digest is {held.digest}"
    return record, f"{words}\n{fold(str(verdict), 13)}", 0


def _check_own(
    architecture: str | None, data: str | None, start: Path | None, task: str | None, dry_run: bool
) -> bool:
    """Return whether a model of the user's own is to be marked; raise an error if something is missing."""
    if architecture is None and data is None and task is not None:
        return False
    if None in (architecture, data, start) or task is not None or dry_run:
        raise ParameterError(
            "give either --task, or --architecture, --data and --start for a trained model of your own",
            "your own model is not trained here: train it first, or put mark.joint_loss into your loop",
        )
    return True


def _check_budget(own: bool, *, epochs: int | None, **only_own: Any) -> None:
    """Refuse options that the chosen way of embedding does not use."""
    given = [f"--{name}" for name, value in only_own.items() if value is not None]
    if own and epochs is not None:
        raise ParameterError(
            "--epochs is for --task: a model of your own is marked in a number of steps", "give --steps N"
        )
    if not own and given:
        raise ParameterError(
            f"{', '.join(given)}: only for a model of your own, with --architecture and --data",
            "leave it out; --epochs N sets the length of a training on --task",
        )


def _changed(mark: Watermark, beta: float | None, no_weight_scaling: bool) -> Watermark:
    """Return the mark with the settings of this run."""
    from dataclasses import replace

    changes: dict[str, Any] = {} if beta is None else {"beta": beta}
    changes |= {"weight_scale": None} if no_weight_scaling else {}
    return mark.replace(recipe=replace(mark.recipe, **changes))


def _rewrite(path: Path, mark: Watermark, passphrase: str | None) -> None:
    """Replace the file of a mark by the same mark with baseline scores."""
    from invgnn.watermark.mark import Watermark

    if Watermark.load(path, passphrase).baseline is not None:
        raise FileError(
            f"{path} has received the baseline scores of another model in the meantime",
            "draw a separate mark for this model",
        )
    plain = passphrase is None
    mark.save(path.resolve(), passphrase, insecure_no_passphrase=plain, overwrite=True)


def _pilot(model: Backbone, task: Task, mark: Watermark, **options: Any) -> Any:
    """Run the preflight of a dry run."""
    from invgnn.training.preflight import pilot_total, preflight

    total = pilot_total(model, task, mark, options["epochs"], trained=options["trained"])
    with progress("training a pilot with and without the mark", total) as tick:
        found = preflight(model, task, mark, progress=lambda done, total: tick(1), **options)
    return found.record(), str(found), 0


def _check_mark(held: Watermark, task: Task, path: Path) -> None:
    """Raise an error if the mark was drawn from a task of another kind."""
    width = 0 if held.carriers.x is None else held.carriers.x.shape[1]
    if (held.context["level"], width) != (task.level, task.num_features):
        raise DataError(
            f"{path} was drawn from another task: a {held.context['level']} task with {width} features; "
            f"{task.name} is a {task.level} task with {task.num_features} features",
            f"give the task of the mark, or draw a mark with invgnn carriers --task {task.name}",
        )


def _load_start(path: Path, fresh: Backbone, task: str) -> Backbone:
    """Load a trained model and check that its kind and widths are those of a new one."""
    from invgnn.nn.model_file import load_model

    model = cast("Backbone", load_model(path))
    differ = [
        f"{part} {model.architecture[part]}, not {fresh.architecture[part]}"
        for part in ("name", "level", "in_channels", "out_channels")
        if model.architecture[part] != fresh.architecture[part]
    ]
    if differ:
        advice = "give a model trained on this task, or the task and backbone that it was trained on"
        raise ParameterError(f"{path} does not fit {task}: it has {'; '.join(differ)}", advice)
    return model
