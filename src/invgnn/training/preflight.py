"""An estimate of the cost of embedding a mark, from a short pilot run."""

from __future__ import annotations

import copy
import time
from dataclasses import dataclass
from typing import Any

from torch import nn

from invgnn.stats.evidence import evidence_of
from invgnn.training.fitting import Progress
from invgnn.training.tasks import Task
from invgnn.training.trainer import planned, train
from invgnn.watermark.mark import Watermark


@dataclass(frozen=True)
class Preflight:
    """The result of a short pilot run with the mark and one without it.

    Attributes:
        pilot: Epochs of the pilot with the mark, including those for the task if the mark is embedded after
            it.
        epochs: The same for the whole training with the mark.
        plain: Estimated seconds of the whole training without the mark.
        marked: Estimated seconds of the whole training with the mark.
        bits: Evidence bits after the pilot, by access level; longer training usually increases them.
        most: Evidence bits if every bit is read right, the limit set by m and the statistic.
    """

    pilot: int
    epochs: int
    plain: float
    marked: float
    bits: dict[str, float]
    most: float

    @property
    def ratio(self) -> float:
        """Training time with the mark, relative to training without it."""
        return self.marked / self.plain

    def record(self) -> dict[str, Any]:
        """Return the numbers as plain values."""
        return {**self.__dict__, "ratio": self.ratio}

    def __str__(self) -> str:
        found = ", ".join(f"{access} {bits:.0f}" for access, bits in self.bits.items())
        return (
            f"training takes about {self.marked:.0f} s for {self.epochs} epochs, "
            f"{self.ratio:.1f} times as long as without the mark\n"
            f"evidence after {self.pilot} epochs: {found} bits; longer training usually increases it, "
            f"up to at most {self.most:.0f} bits for these carriers"
        )


def pilot_epochs(epochs: int) -> int:
    """Return a tenth of the epochs, at least one."""
    return max(1, round(epochs / 10))


def pilot_total(task: Task, mark: Watermark, epochs: int, *, trained: bool = False) -> int:
    """Return how many epochs a preflight takes in total, with the mark and without.

    Args:
        task: The task.
        mark: The mark.
        epochs: Epochs of the whole training.
        trained: Whether the model has been trained on its task already.
    """
    pilot = pilot_epochs(epochs)
    return pilot + planned(task, mark, pilot, trained=trained)


def preflight(
    model: nn.Module,
    task: Task,
    mark: Watermark,
    *,
    epochs: int = 100,
    lr: float = 0.01,
    seed: int = 41,
    trained: bool = False,
    progress: Progress | None = None,
) -> Preflight:
    """Train copies of the model for a tenth of the epochs, with and without the mark.

    Args:
        model: The model; left unchanged.
        task: The task.
        mark: The mark.
        epochs: Epochs of the whole training.
        lr: Learning rate of Adam.
        seed: Fixes the order of batches and dropout.
        trained: Whether the model has been trained on its task already.
        progress: Called after every epoch.

    Returns:
        The estimated times, and the evidence after the pilot.
    """
    pilot = pilot_epochs(epochs)
    done, total = 0, pilot_total(task, mark, epochs, trained=trained)

    def tick(*_: int) -> None:
        nonlocal done
        done += 1
        if progress:
            progress(done, total)

    def run(held: Watermark | None) -> tuple[float, nn.Module]:
        twin = copy.deepcopy(model)
        start = time.perf_counter()
        train(twin, task, held, epochs=pilot, trained=trained, progress=tick, **options)
        return (time.perf_counter() - start) * epochs / pilot, twin

    options: dict[str, Any] = {"lr": lr, "seed": seed, "select": False}
    train(copy.deepcopy(model), task, epochs=1, **options)  # warm-up: the first pass is always slow
    plain, unmarked = run(None)
    first = mark.score_channel is not None and mark.baseline is None and not trained  # task training
    if mark.score_channel and mark.baseline is None:
        mark = mark.with_baseline(unmarked, task.data)
    marked, twin = run(mark)
    marked += plain if first else 0.0
    rounds = planned(task, mark, 1, trained=trained) + first
    bits = {str(r.access): mark.evidence(mark.read(twin, r.access)).bits() for r in mark.readings}
    perfect = evidence_of(mark.bits, mark.bits, mark.context["statistic"]).bits()
    most = perfect if mark.context["key"] == "keyed" else 0.0  # a plain key has no exact null
    return Preflight(rounds * pilot, rounds * epochs, plain, marked, bits, most)
