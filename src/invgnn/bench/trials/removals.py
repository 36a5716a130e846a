"""One edit or attack by a thief with a share of the data, and training from scratch with them."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

from invgnn.bench.marked import options, unmarked_models
from invgnn.bench.recorded import Recorded
from invgnn.bench.trials.drift import drifted
from invgnn.bench.trials.kept import kept
from invgnn.bench.trials.objects import find_change, told
from invgnn.bench.trials.thieves import selects, thief_task
from invgnn.schemes.changed_models import read_changed
from invgnn.training.batching import accuracy
from invgnn.training.fitting import fit_task
from invgnn.training.tasks import load_task, new_model, parse_setting

CHANGE_COLUMNS = (
    *("accuracy_before", "accuracy", "matches_before", "bits_before", "matches", "asked", "bits", "null"),
    *("labels", "note", "drift", "margin", "moved", "seconds", "hyperparameters"),
)
SCRATCH_COLUMNS = ("accuracy", "labels", "seconds")
FIRST_SCRATCH = 2000
"""Added to the seed of a model that a thief trains from scratch, so that its first weights are others."""


def measure_change(
    setting: str, seed: int, scheme: str, change: str, thief: str, epochs: int, controls: int
) -> dict[str, Any]:
    """Change one marked model with a thief's data, and read the result.

    Args:
        setting: Task and backbone.
        seed: Seed of split, weights, training and of the thief's choice.
        scheme: Name of the scheme.
        change: Name of an edit or attack.
        thief: What the thief has, one of `THIEVES`.
        epochs: Number of epochs of the owner's training.
        controls: Number of unmarked models, for schemes without an exact law.

    Returns:
        Accuracy and evidence before and after, on inputs that neither the owner nor the thief trained on.
        `labels` is the number of labels that the thief has. `drift`, `margin` and `moved` are those of
        `drifted`.
    """
    made, recorded = kept(setting, seed, scheme, epochs), Recorded(find_change(change))
    stolen = thief_task(made.task, thief, seed)
    start = time.process_time()
    left = next(read_changed(made.mark, made.model, stolen, [recorded]))
    seconds = time.process_time() - start
    before, found = made.mark.read(made.model), left.found
    if before.log_p is None:
        known = [made.mark.read(one).score for one in unmarked_models(setting, epochs, controls)]
        before, found = before.against(known), None if found is None else found.against(known)
    row = dict.fromkeys(CHANGE_COLUMNS, "") | {
        "accuracy_before": round(accuracy(made.model, stolen, stolen.test), 4),
        "matches_before": before.matches,
        "bits_before": round(before.bits, 2),
        "labels": len(stolen.train),
        "note": " ".join(left.note.split()),
        "seconds": round(seconds, 2),
        "hyperparameters": told(made.scheme),
    }
    if left.accuracy is not None:
        row |= {"accuracy": round(left.accuracy, 4)}
    if found is not None:
        row |= {"matches": found.matches, "asked": found.asked, "bits": round(found.bits, 2)}
        row |= {"null": found.null} | drifted(made, recorded.made)
    return row


def measure_scratch(setting: str, seed: int, thief: str, epochs: int) -> dict[str, Any]:
    """Train a model from scratch with a thief's data: what a removal has to be better than.

    A thief who has held no data out keeps the last epoch, whose learning rate has fallen to zero.

    Args:
        setting: Task and backbone.
        seed: Seed of split, weights, training and of the thief's choice.
        thief: What the thief has, one of `THIEVES`.
        epochs: Number of epochs.
    """
    name, backbone = parse_setting(setting)
    own = thief_task(load_task(name, seed), thief, seed)
    model = new_model(own, backbone, FIRST_SCRATCH + seed)
    start = time.process_time()
    how = replace(options(own, FIRST_SCRATCH + seed, epochs), select=selects(own))
    history = fit_task(model, own, how)
    return {
        "accuracy": round(history.test_acc, 4),
        "labels": len(own.train),
        "seconds": round(time.process_time() - start, 2),
    }
