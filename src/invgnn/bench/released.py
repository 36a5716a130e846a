"""Marked models as an owner releases them, trained once and kept on disk for all trials of a benchmark."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import cast

import torch
from torch import nn

from invgnn.bench.source import SourceTree
from invgnn.nn.backbones import Backbone
from invgnn.nn.model_file import load_model, save_model
from invgnn.readout.reading import Access
from invgnn.secret import Secret, public_stream
from invgnn.training.tasks import Task, load_task, new_model, parse_setting
from invgnn.training.trainer import train
from invgnn.watermark.mark import Watermark
from invgnn.watermark.recipe import Recipe
from invgnn.watermark.sampler import Sampler


@dataclass(frozen=True)
class Marked:
    """A task, the mark of an owner, and a model of that task.

    Attributes:
        task: The task with its split.
        mark: The owner's mark.
        model: The model, marked or still to be trained.
    """

    task: Task
    mark: Watermark
    model: nn.Module


def access_levels(setting: str) -> tuple[Access, ...]:
    """Return the levels at which the models of a setting are read.

    Args:
        setting: Task and backbone, such as `Cora/GCN`.

    Returns:
        `embedding` and `logits`; SGC has no hidden layer and is read at `logits` alone.
    """
    return ("logits",) if setting.endswith("/SGC") else ("embedding", "logits")


def prepare(
    setting: str,
    seed: int,
    owner: str = "owner",
    *,
    access: tuple[Access, ...] | None = None,
    sampler: Sampler | None = None,
    recipe: Recipe | None = None,
) -> Marked:
    """Load a task, draw the mark of an owner and create a model with fresh weights.

    Args:
        setting: Task and backbone, such as `Cora/GCN`.
        seed: Seed of the split and of the weights.
        owner: Name from which the owner's secret is derived. The secret is public: for benchmarks only.
        access: Levels to declare; None takes those of `access_levels`.
        sampler: Settings of the carriers; None takes the defaults.
        recipe: Settings of the embedding; None takes the defaults.

    Returns:
        The three, nothing trained yet.
    """
    name, backbone = parse_setting(setting)
    task = load_task(name, seed)
    mark = Watermark.draw(
        Secret(public_stream(owner, setting, seed).bytes(32)),
        task.data,
        access=access or access_levels(setting),
        classes=task.num_classes,
        sampler=sampler,
        recipe=recipe,
    )
    return Marked(task, mark, new_model(task, backbone, seed))


@lru_cache(maxsize=4)
def released(setting: str, seed: int, owner: str = "owner") -> Marked:
    """Return the marked model that an owner releases; train it if it is not on disk yet.

    Two owners of one setting and seed start from the same weights and see the same batches, like two
    licensees of one model.

    Args:
        setting: Task and backbone, such as `Cora/GCN`.
        seed: Seed of the split, the weights and the training.
        owner: Name from which the owner's secret is derived.

    Returns:
        The task, the mark and the trained model.
    """
    place = cache_folder() / f"{setting}-{seed}-{owner}".replace("/", "-").replace(" ", "-")
    model_file, mark_file = place.with_suffix(".model"), place.with_suffix(".mark")
    with locked(place.with_suffix(".lock")):
        if not model_file.exists():
            made = prepare(setting, seed, owner)
            train(made.model, made.task, made.mark, seed=seed)
            made.mark.save(mark_file, insecure_no_passphrase=True, overwrite=True)
            save_model(model_file, cast(Backbone, made.model))
    task = load_task(parse_setting(setting)[0], seed)
    return Marked(task, Watermark.load(mark_file), load_model(model_file))


def cache_folder() -> Path:
    """Return the folder for trained models, and create it.

    Returns:
        A folder inside `INVGNN_CACHE`, by default inside the temporary folder of the machine. Other code
        that trains, and other versions of torch, have other folders.
    """
    base = Path(os.environ.get("INVGNN_CACHE") or Path(tempfile.gettempdir()) / "invgnn-models")
    made_by = json.dumps([_code(), torch.__version__])
    place = base / hashlib.sha256(made_by.encode()).hexdigest()[:12]
    place.mkdir(parents=True, exist_ok=True)
    return place


@lru_cache(maxsize=1)
def _code() -> str:
    """Return the digest of the code that trains the models."""
    return SourceTree().digest([__name__])


def unmarked(setting: str, seed: int, epochs: int = 100) -> nn.Module:
    """Return a model that is trained on its task alone; train it if it is not on disk yet.

    Args:
        setting: Task and backbone, such as `Cora/GCN`.
        seed: Seed of the split, the weights and the training.
        epochs: Number of epochs.

    Returns:
        The trained model.
    """
    place = cache_folder() / f"{setting}-{seed}-unmarked-{epochs}".replace("/", "-")
    with locked(place.with_suffix(".lock")):
        if not place.with_suffix(".model").exists():
            name, backbone = parse_setting(setting)
            task = load_task(name, seed)
            model = new_model(task, backbone, seed)
            train(model, task, epochs=epochs, seed=seed)
            save_model(place.with_suffix(".model"), model)
    return load_model(place.with_suffix(".model"))


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Let one process at a time into a `with` block.

    Args:
        path: Lock file.
    """
    import fcntl

    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
