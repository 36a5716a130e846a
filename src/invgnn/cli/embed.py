"""invgnn embed: train a marked model."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from invgnn.cli.console import Json, Overwrite, PassphraseFile, open_passphrase, progress, verb


@verb
def embed(
    mark: Annotated[Path, typer.Option(help="A mark from `invgnn carriers`.")],
    task: Annotated[str, typer.Option(help="TASK/BACKBONE, e.g. PROTEINS/GIN or Cora/GCN.")],
    output: Annotated[Path, typer.Option("-o", "--output", help="Where to write the model.")],
    start: Annotated[
        Path | None, typer.Option(help="Mark this trained model by a short fine-tune.")
    ] = None,
    epochs: Annotated[int | None, typer.Option(help="100 from scratch, 20 from --start.")] = None,
    lr: Annotated[float | None, typer.Option(help="0.01 from scratch, 0.001 from --start.")] = None,
    beta: Annotated[float | None, typer.Option(help="Weight of the mark beside the task.")] = None,
    seed: Annotated[int, typer.Option(help="Split, initial weights and order of batches.")] = 41,
    passphrase_file: PassphraseFile = None,
    overwrite: Overwrite = False,
    json_: Json = False,
) -> Any:
    """Train a model on a task with the mark in it, or teach the mark to a trained model.

    In your own code it is one line instead: `loss = task_loss + mark.loss(model)`.

    Example: `invgnn embed --mark acme.mark --task PROTEINS/GIN -o acme.model`
    """
    from dataclasses import replace

    from invgnn import disk
    from invgnn.models import Backbone, load_model, save_model
    from invgnn.tasks import load_task, new_model, parse_setting
    from invgnn.training import train
    from invgnn.verdict import verify
    from invgnn.watermark import Watermark

    if output.exists() and not overwrite:  # before an hour of training, not after
        raise disk.existing(output)
    name, backbone = parse_setting(task)
    held = Watermark.load(mark, open_passphrase(mark, passphrase_file))
    if beta is not None:
        held = held.replace(recipe=replace(held.recipe, beta=beta))
    loaded = load_task(name, seed)
    model = load_model(start) if start else new_model(loaded, backbone, seed)
    epochs = epochs or (20 if start else 100)
    with progress("epochs", epochs) as tick:
        history = train(
            model,
            loaded,
            held,
            epochs=epochs,
            lr=lr or (1e-3 if start else 1e-2),
            seed=seed,
            progress=lambda done, total: tick(1),
        )
    verdict = verify(model, held)
    if isinstance(model, Backbone):
        about = {"task": task, "seed": seed, "test_accuracy": history.test_acc}
        save_model(output, model, overwrite=overwrite, **about)
    record = {
        "model": str(output),
        "test_accuracy": history.test_acc,
        "best_epoch": history.best_epoch,
        "verdict": verdict.to_json(),
    }
    return record, f"wrote {output}: test accuracy {history.test_acc:.3f}\n{verdict}", 0
