"""Train a model with the mark of any scheme, and read it and unmarked models with it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from torch import nn

from invgnn.bench.released import unmarked
from invgnn.schemes.scheme import Found, Mark, Scheme
from invgnn.secret import Secret, public_stream
from invgnn.training.fitting import FitOptions
from invgnn.training.tasks import Task, load_task, new_model, parse_setting

ALPHA = 1e-6
"""Significance level at which false positives are counted."""
FIRST_CONTROL = 1001
"""Seed of the first unmarked model that marks are read in; these seeds are used for nothing else."""


def options(task: Task, seed: int, epochs: int = 100) -> FitOptions:
    """Return the settings of training, the same for every scheme and those of `train`.

    Args:
        task: The task.
        seed: Seed of the run.
        epochs: Number of epochs.
    """
    return FitOptions(epochs, seed=seed, decay=True, decoupled=task.level == "graph")


def owner_secret(setting: str, seed: int, owner: str) -> Secret:
    """Return the secret of an owner. It is public: for benchmarks only.

    Args:
        setting: Task and backbone, such as `Cora/GCN`.
        seed: Seed of the run.
        owner: Name of the owner.
    """
    return Secret(public_stream("comparison", owner, setting, seed).bytes(32))


@dataclass(frozen=True)
class Made:
    """A model that was trained with the mark of a scheme.

    Attributes:
        setting: Task and backbone.
        seed: Seed of split, weights and training.
        epochs: Number of epochs.
        task: The task.
        scheme: The scheme, with settings that fit the architecture.
        mark: The owner's mark.
        model: The trained model.
        test_accuracy: Its test accuracy.
        val_accuracy: Its validation accuracy.
        seconds: Processor time of the training.
    """

    setting: str
    seed: int
    epochs: int
    task: Task
    scheme: Scheme
    mark: Mark
    model: nn.Module
    test_accuracy: float
    val_accuracy: float
    seconds: float


def begin(setting: str, seed: int, scheme: Scheme, epochs: int) -> Made:
    """Return an untrained model and the mark of its owner.

    Args:
        setting: Task and backbone, such as `Cora/GCN`.
        seed: Seed of split, weights and training.
        scheme: The scheme.
        epochs: Number of epochs.

    Raises:
        SchemeError: If the scheme cannot serve the task.
    """
    name, backbone = parse_setting(setting)
    task = load_task(name, seed)
    model = new_model(task, backbone, seed)
    suited = scheme.suited(model, task)
    mark = suited.prepare(owner_secret(setting, seed, "owner"), task)
    nan = float("nan")
    return Made(setting, seed, epochs, task, suited, mark, model, nan, nan, 0.0)


def train(begun: Made) -> Made:
    """Train the model with its mark, in place.

    Args:
        begun: What `begin` returned.
    """
    start = time.process_time()
    history = begun.mark.train(begun.model, begun.task, options(begun.task, begun.seed, begun.epochs))
    seconds = time.process_time() - start
    return replace(
        begun, test_accuracy=history.test_acc, val_accuracy=history.best_val_acc, seconds=seconds
    )


def unmarked_models(setting: str, epochs: int, controls: int) -> list[nn.Module]:
    """Return the unmarked models that marks are read in.

    Args:
        setting: Task and backbone.
        epochs: Number of epochs.
        controls: Number of models.
    """
    return [unmarked(setting, FIRST_CONTROL + i, epochs) for i in range(controls)]


def measured(made: Made, controls: int) -> dict[str, Any]:
    """Return what the owner's mark finds in the model, in unmarked models, and what another owner's finds.

    Args:
        made: The trained model.
        controls: Number of unmarked models.
    """
    mark, other = made.mark, made.scheme.prepare(owner_secret(made.setting, made.seed, "other"), made.task)
    innocent = unmarked_models(made.setting, made.epochs, controls)
    known, others = ([one.read(each) for each in innocent] for one in (mark, other))
    found = mark.read(made.model).against([one.score for one in known])
    second = other.read(made.model).against([one.score for one in others])
    return {
        "test_accuracy": round(made.test_accuracy, 4),
        "val_accuracy": round(made.val_accuracy, 4),
        "matches": found.matches,
        "asked": found.asked,
        "bits": round(found.bits, 2),
        "null": found.null,
        "other_matches": second.matches,
        "other_bits": round(second.bits, 2),
        "innocents": len(known),
        "at_alpha": sum(one.shows(ALPHA) for one in left_out(known)),
        "at_5": sum(one.shows(0.05) for one in left_out(known)),
        "seconds": round(made.seconds, 2),
        "more": "; ".join(f"{what} {value:.4g}" for what, value in found.more.items()),
    }


def left_out(found: Sequence[Found]) -> list[Found]:
    """Return what a mark finds in unmarked models, each compared with the others if it has no exact law.

    Args:
        found: The findings.
    """
    scores = [one.score for one in found]
    return [one.against(scores[:i] + scores[i + 1 :]) for i, one in enumerate(found)]
