"""An estimate of the cost of embedding a mark, from a short pilot run."""

from __future__ import annotations

import copy
import time
import warnings
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from statistics import median
from typing import Any

from torch import nn

from invgnn.errors import WeakMarkWarning
from invgnn.stats.evidence import evidence_of
from invgnn.training.fitting import Progress
from invgnn.training.planning import plan_of, planned
from invgnn.training.tasks import Task
from invgnn.training.trainer import train
from invgnn.watermark.mark import Watermark
from invgnn.watermark.plan import Plan


@dataclass(frozen=True)
class Preflight:
    """The cost of a mark, from its plan and a short pilot run.

    Attributes:
        plan: How the mark is embedded: carriers, steps and presentations.
        epochs: Epochs of the whole training with the mark.
        plain: Estimated seconds of the whole training without the mark.
        marked: Estimated seconds of the whole training with the mark.
        pilot: Share of the training that the pilot made.
        bits: Evidence bits after the pilot, by access level; the whole training usually increases them.
        most: Evidence bits if every bit is read right, the limit set by m and the statistic.
    """

    plan: Plan
    epochs: int
    plain: float
    marked: float
    pilot: float
    bits: dict[str, float]
    most: float

    @property
    def ratio(self) -> float:
        """Training time with the mark, relative to training without it."""
        return self.marked / self.plain

    def record(self) -> dict[str, Any]:
        """Return the numbers as plain values."""
        return {**self.__dict__, "plan": asdict(self.plan), "ratio": self.ratio}

    def __str__(self) -> str:
        found = ", ".join(f"{access} {bits:.0f}" for access, bits in self.bits.items())
        few = f", fewer than half of {self.plan.wanted}: train for more epochs if the evidence is low"
        return (
            f"the mark uses {self.plan}{few if self.plan.scarce else ''}\n"
            f"training takes about {self.marked:.0f} s for at most {self.epochs} epochs, "
            f"{self.ratio:.2f} times as long as without the mark\n"
            f"evidence after {self.pilot:.0%} of it: {found} bits; the rest usually increases it, "
            f"up to at most {self.most:.0f} bits for these carriers"
        )


def pilot_epochs(epochs: int) -> int:
    """Return a tenth of the epochs, at least one."""
    return max(1, round(epochs / 10))


def pilot_total(
    model: nn.Module, task: Task, mark: Watermark, epochs: int, *, trained: bool = False
) -> int:
    """Return how many epochs a preflight takes at most, with the mark and without.

    Args:
        model: The model.
        task: The task.
        mark: The mark.
        epochs: Epochs of the whole training.
        trained: Whether the model has been trained on its task already.
    """
    pilot = pilot_epochs(epochs)
    return pilot + planned(task, _shortened(task, mark, epochs), pilot, trained=trained)


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
    """Train copies of the model for a tenth of the epochs, with a tenth of the mark and without it.

    The mark gets a tenth of its presentations and of its steps after the task.

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
    pilot, short = pilot_epochs(epochs), _shortened(task, mark, epochs)
    done, total = 0, pilot_total(model, task, mark, epochs, trained=trained)
    options: dict[str, Any] = {"lr": lr, "seed": seed, "select": False, "epochs": pilot}

    def run(held: Watermark | None) -> tuple[list[float], nn.Module]:
        twin, stamps = copy.deepcopy(model), [time.perf_counter()]

        def tick(*_: int) -> None:
            nonlocal done
            done += 1
            stamps.append(time.perf_counter())
            if progress:
                progress(done, total)

        with warnings.catch_warnings():
            warnings.simplefilter("ignore", WeakMarkWarning)
            train(twin, task, held, trained=trained, progress=tick, **options)
        return [*stamps, time.perf_counter()], twin

    train(copy.deepcopy(model), task, **options | {"epochs": 1})  # warm-up: the first pass is always slow
    stamps, unmarked = run(None)
    plain = _extrapolated(stamps, [(pilot, epochs)])
    first = mark.score_channel is not None and mark.baseline is None and not trained  # task training
    if mark.score_channel and mark.baseline is None:
        mark, short = (held.with_baseline(unmarked, task.data) for held in (mark, short))
    whole, tried = (planned(task, held, 0, trained=True) for held in (mark, short))
    stamps, twin = run(short)
    phases = [] if trained and tried else [(pilot, epochs)]
    marked = _extrapolated(stamps, [*phases, (tried, whole)]) + (plain if first else 0.0)
    bits = {str(r.access): mark.evidence(mark.read(twin, r.access)).bits() for r in mark.readings}
    perfect = evidence_of(mark.bits, mark.bits, mark.context["statistic"]).bits()
    most = perfect if mark.context["key"] == "keyed" else 0.0  # a plain key has no exact null
    return Preflight(
        plan_of(task, mark, epochs),
        planned(task, mark, epochs, trained=trained) + first * epochs,
        plain,
        marked,
        pilot / epochs,
        bits,
        most,
    )


def _extrapolated(stamps: list[float], phases: list[tuple[int, int]]) -> float:
    """Return the seconds of a whole run: those of the pilot, and the typical time of each missing epoch.

    Args:
        stamps: Times at the start, after every epoch, and at the end.
        phases: Epochs that the pilot planned and those of the whole run, for each phase of the training.
    """
    times, found = [b - a for a, b in pairwise(stamps[:-1])], stamps[-1] - stamps[0]
    for tried, whole in phases:
        here, times = times[:tried], times[tried:]
        found += median(here) * (whole - len(here)) if here else 0.0
    return found


def _shortened(task: Task, mark: Watermark, epochs: int) -> Watermark:
    """Return a mark whose recipe costs a tenth: as many carriers in a step, in a tenth of the steps."""
    share, plan = pilot_epochs(epochs) / epochs, plan_of(task, mark, epochs)
    recipe = replace(
        mark.recipe,
        presentations=max(1, round(share * plan.wanted)),
        carriers=plan.count,
        after_task=max(min(1, mark.recipe.after_task), round(share * mark.recipe.after_task)),
    )
    return mark.replace(recipe=recipe)
