"""The owner's refresh: a mark embedded again while the model is distilled (the paper's KD+WM)."""

from __future__ import annotations

import time
from typing import Any

from torch_geometric.loader import DataLoader

from invgnn.bench.marked import unmarked_models
from invgnn.bench.trials.drift import drifted
from invgnn.bench.trials.kept import kept
from invgnn.bench.trials.objects import told
from invgnn.errors import SchemeError
from invgnn.nn.layers import fresh_twin
from invgnn.schemes.keyed import KeyedMark
from invgnn.schemes.published import Perceived
from invgnn.training.batching import accuracy

COLUMNS = (
    *("accuracy_before", "accuracy", "matches_before", "bits_before", "matches", "asked", "bits", "null"),
    *("drift", "margin", "moved", "seconds", "hyperparameters"),
)
BATCH_SIZE = 64
"""Graphs in a batch, as in training."""


def measure_refresh(setting: str, seed: int, scheme: str, epochs: int, controls: int) -> dict[str, Any]:
    """Distil a marked model with its mark into a fresh model of the same kind, and read that.

    Args:
        setting: Task and backbone.
        seed: Seed of split, weights and training.
        scheme: Name of the scheme, ours or the paper's.
        epochs: Number of epochs of the training and of the refresh.
        controls: Number of unmarked models, for schemes without an exact law.

    Returns:
        Test accuracy and evidence before and after.

    Raises:
        SchemeError: If the scheme defines no refresh.
    """
    made = kept(setting, seed, scheme, epochs)
    if not isinstance(made.mark, KeyedMark | Perceived):
        raise SchemeError(f"{scheme} defines no refresh", "choose ours or InvGNN-WM")
    student, data = fresh_twin(made.model), made.task.data
    batches: Any = [data] if made.task.level == "node" else DataLoader(data, BATCH_SIZE, shuffle=True)
    start = time.process_time()
    made.mark.mark.refresh(student, made.model, batches, epochs=epochs, seed=seed)
    seconds = time.process_time() - start
    before, found = made.mark.read(made.model), made.mark.read(student)
    if before.log_p is None:
        known = [made.mark.read(one).score for one in unmarked_models(setting, epochs, controls)]
        before, found = before.against(known), found.against(known)
    return dict.fromkeys(COLUMNS, "") | {
        "accuracy_before": round(accuracy(made.model, made.task, made.task.test), 4),
        "accuracy": round(accuracy(student, made.task, made.task.test), 4),
        "matches_before": before.matches,
        "bits_before": round(before.bits, 2),
        "matches": found.matches,
        "asked": found.asked,
        "bits": round(found.bits, 2),
        "null": found.null,
        **drifted(made, student),
        "seconds": round(seconds, 2),
        "hyperparameters": told(made.scheme),
    }
