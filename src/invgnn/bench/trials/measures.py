"""The kinds of trials of a grid: their arguments, and the code and settings that identify their rows."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from invgnn.bench.trials import (
    forged,
    marks,
    refreshed,
    removals,
    searches,
    sensitivity,
    uniqueness,
    variants,
)
from invgnn.bench.trials.objects import code_of, find_change, find_forgery, find_scheme, settings_of
from invgnn.errors import ParameterError, SchemeError, SuspectError


@dataclass(frozen=True)
class Measure:
    """A kind of trial.

    Attributes:
        name: Its name in a grid.
        arguments: Names of the arguments of a trial, in the order of the columns.
        columns: Names of the measured figures.
        work: Runs one trial and returns its figures.
        about: What is measured, in a few words.
    """

    name: str
    arguments: tuple[str, ...]
    columns: tuple[str, ...]
    work: Callable[..., Mapping[str, Any]]
    about: str

    @property
    def all_columns(self) -> tuple[str, ...]:
        """The columns of a row after those that identify it."""
        return (*self.columns, "took", "reason")


_MODEL = ("setting", "seed", "scheme")
_TRAINED = ("epochs", "controls")
MEASURES = {
    one.name: one
    for one in (
        Measure(
            "mark",
            (*_MODEL, *_TRAINED),
            marks.COLUMNS,
            marks.measure_mark,
            "a marked model: accuracy, evidence, cost",
        ),
        Measure(
            "change",
            (*_MODEL, "change", "thief", *_TRAINED),
            removals.CHANGE_COLUMNS,
            removals.measure_change,
            "an edit or attack with a share of the data",
        ),
        Measure(
            "scratch",
            ("setting", "seed", "thief", "epochs"),
            removals.SCRATCH_COLUMNS,
            removals.measure_scratch,
            "training from scratch with a share of the data",
        ),
        Measure(
            "refresh",
            (*_MODEL, *_TRAINED),
            refreshed.COLUMNS,
            refreshed.measure_refresh,
            "the owner's refresh: distilled together with the mark",
        ),
        Measure(
            "uniqueness",
            (*_MODEL, *_TRAINED),
            uniqueness.COLUMNS,
            uniqueness.measure_uniqueness,
            "other owners' marks, and keys of strangers",
        ),
        Measure(
            "sensitivity",
            (*_MODEL, "level", "epochs"),
            sensitivity.COLUMNS,
            sensitivity.measure_sensitivity,
            "carriers whose invariant was changed",
        ),
        Measure(
            "variant",
            (*_MODEL, "variant", *_TRAINED),
            variants.COLUMNS,
            variants.measure_variant,
            "one setting of a scheme changed",
        ),
        Measure(
            "forgery",
            (*_MODEL, "forgery", *_TRAINED),
            forged.COLUMNS,
            forged.measure_forgery,
            "a forged claim on an innocent model",
        ),
        Measure(
            "search",
            ("setting", "seed", "search", "epochs", "audits"),
            searches.COLUMNS,
            searches.measure_search,
            "a forger who searches for carriers",
        ),
    )
}


def find_measure(name: str) -> Measure:
    """Return the kind of trial with a name.

    Args:
        name: Its name.

    Raises:
        ParameterError: If there is none.
    """
    if name not in MEASURES:
        raise ParameterError(f"unknown measure {name!r}", f"choose one of {', '.join(MEASURES)}")
    return MEASURES[name]


def identified(measure: str, arguments: Mapping[str, Any]) -> tuple[Any, str]:
    """Return the settings of what a trial uses, and a digest of the code that it can run.

    Args:
        measure: Name of the kind of trial.
        arguments: The arguments of the trial.
    """
    things: Sequence[object] = [
        find(str(arguments[name]))
        for name, find in (("scheme", find_scheme), ("change", find_change), ("forgery", find_forgery))
        if name in arguments
    ]
    settings = {name: settings_of(thing) for name, thing in zip(_used(arguments), things, strict=True)}
    return settings, code_of([find_measure(measure).work.__module__], things)


def _used(arguments: Mapping[str, Any]) -> list[str]:
    """Return the arguments that name an object."""
    return [name for name in ("scheme", "change", "forgery") if name in arguments]


def perform(measure: str, arguments: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Run one trial in a worker.

    A scheme that cannot serve the task gives a row with the reason and no figures.

    Args:
        measure: Name of the kind of trial.
        arguments: The arguments of the trial.

    Returns:
        One row: the figures, the processor time `took`, and the reason why there are none.
    """
    kind, start = find_measure(measure), time.process_time()
    try:
        row = {**kind.work(**arguments), "reason": ""}
    except (SchemeError, SuspectError) as error:
        row = dict.fromkeys(kind.columns, "") | {"reason": " ".join(error.message.split())}
    return [row | {"took": round(time.process_time() - start, 2)}]
