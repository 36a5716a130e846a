"""The tuned settings that differ between tasks, in one place.

Elsewhere the defaults of the scheme hold, which were tuned on Cora. `studies/tuning_schemes.py` has the
budget and the rule, `benchmarks/results/tuning_schemes.csv` the trials.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from invgnn.training.tasks import Task
from invgnn.watermark.recipe import Recipe

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    Settings = TypeVar("Settings", bound=DataclassInstance)

TUNED: Mapping[str, Mapping[str, Mapping[str, Any]]] = {
    "COS": {"graph": {"weight": 3.0, "per_step": 32}},
    "Published": {"graph": {"beta": 10.0, "recipe": Recipe(presentations=700)}},
}
"""Settings by the class of a scheme, then by the name of a task or its level."""


def tuned(scheme: Settings, default: Settings, task: Task) -> Settings:
    """Return a scheme with the tuned settings for a task; one with settings of its own stays as it is.

    Args:
        scheme: The scheme.
        default: The same scheme with default settings.
        task: The task. Settings for its name come before those for its level.
    """
    if scheme != default:
        return scheme
    known = TUNED.get(type(scheme).__name__, {})
    return replace(scheme, **{**known.get(task.level, {}), **known.get(task.name, {})})
