"""Models with the mark of a scheme, trained once and kept on disk for all trials that need them."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import cast

from invgnn.bench.marked import Made, begin, train
from invgnn.bench.released import cache_folder, locked
from invgnn.bench.trials.objects import code_of, find_scheme, settings_of
from invgnn.errors import FileError, ParameterError
from invgnn.nn.backbones import Backbone
from invgnn.nn.model_file import load_model, save_model
from invgnn.storage import container

FIGURES = ("test_accuracy", "val_accuracy", "seconds")
"""What is kept beside the weights."""


@lru_cache(maxsize=2)
def kept(setting: str, seed: int, scheme: str, epochs: int) -> Made:
    """Return the marked model of a scheme; train it if it is not on disk yet.

    The file is named by the code and the settings that made the model, so that it is never taken for that
    of another version.

    Args:
        setting: Task and backbone, such as `Cora/GCN`.
        seed: Seed of split, weights and training.
        scheme: Name of the scheme.
        epochs: Number of epochs.

    Raises:
        SchemeError: If the scheme cannot serve the task.
    """
    chosen = find_scheme(scheme)
    begun = begin(setting, seed, chosen, epochs)
    name = [setting, seed, epochs, settings_of(chosen), code_of(["invgnn.bench.marked"], [chosen])]
    place = cache_folder() / hashlib.sha256(json.dumps(name).encode()).hexdigest()[:24]
    with locked(place.with_suffix(".lock")):
        return _loaded(begun, place.with_suffix(".model")) or _saved(begun, place.with_suffix(".model"))


def _loaded(begun: Made, path: Path) -> Made | None:
    """Return the kept model; None if there is none, or if its architecture cannot be rebuilt."""
    if not path.exists():
        return None
    try:
        test, val, seconds = _about(path)
        return replace(begun, model=load_model(path), test_accuracy=test, val_accuracy=val, seconds=seconds)
    except FileError:
        return None


def _about(path: Path) -> tuple[float, ...]:
    """Return the figures of the training."""
    body = container.read(path, "model", framework="torch").body
    return tuple(float(body["about"][name]) for name in FIGURES)


def _saved(begun: Made, path: Path) -> Made:
    """Train a model, and keep it if its architecture can be saved."""
    made = train(begun)
    about = {name: getattr(made, name) for name in FIGURES}
    try:
        save_model(path, cast(Backbone, made.model), overwrite=True, **about)
    except ParameterError:  # a scheme may train a model of its own kind
        path.unlink(missing_ok=True)
    return made
