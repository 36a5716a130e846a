"""One setting of a scheme changed: the ablations of the paper."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from invgnn.bench.marked import begin, measured, train
from invgnn.bench.trials.objects import find_scheme
from invgnn.errors import ParameterError
from invgnn.readout.query import Suspect
from invgnn.schemes.keyed import Keyed, KeyedMark
from invgnn.schemes.published import Perceived, Published
from invgnn.schemes.scheme import Scheme
from invgnn.secret import Secret
from invgnn.stats.null import NULLS
from invgnn.training.tasks import Task
from invgnn.watermark.mark import Watermark
from invgnn.watermark.recipe import Recipe
from invgnn.watermark.sampler import Sampler

COLUMNS = (
    *("test_accuracy", "val_accuracy", "matches", "asked", "bits", "null", "other_matches", "other_bits"),
    *("innocents", "at_alpha", "at_5", "seconds", "more", "tau", "tau_paper", "margin"),
)
DRAWN = ("invariant", "swap_cap", "delta")
"""Settings of the carriers, which a scheme does not have as fields."""


@dataclass(frozen=True, repr=False)
class Redrawn(Scheme):
    """A scheme whose carriers are drawn with other settings.

    Attributes:
        base: The scheme.
        drawn: The changed settings of the carriers.
    """

    base: Keyed | Published
    drawn: tuple[tuple[str, Any], ...]
    source = "a variant for the ablations"

    @property
    def name(self) -> str:  # type: ignore[override]
        """The name of the scheme."""
        return self.base.name

    def suited(self, model: Any, task: Task) -> Redrawn:
        """Return the variant with settings that fit an architecture.

        Args:
            model: A model of this architecture.
            task: Its task.
        """
        suited = self.base.suited(model, task)
        return replace(self, base=suited if isinstance(suited, Keyed) else self.base)

    def prepare(self, secret: Secret, task: Task) -> KeyedMark | Perceived:
        """Draw the mark of the scheme, then its carriers again with the changed settings.

        Args:
            secret: The owner's secret.
            task: The task.
        """
        marked = self.base.prepare(secret, task)
        old, changed = marked.mark, dict(self.drawn)
        invariant = changed.pop("invariant", old.context["invariant"])
        new = Watermark.draw(
            secret,
            task.data,
            m=old.m,
            access=[reading.access for reading in old.readings],
            classes=task.num_classes,
            invariant=invariant,
            key=old.context["key"],
            gap=old.context["gap"],
            sampler=Sampler(**(old.context["sampler"] | changed)),
            recipe=old.recipe,
        )
        return replace(marked, mark=new)


def varied(scheme: Scheme, variant: str) -> Scheme:
    """Return a scheme with some settings changed.

    Args:
        scheme: Ours or the paper's.
        variant: Settings such as `m=64` or `swap_cap=5 delta=0.05`, separated by spaces.

    Raises:
        ParameterError: If the scheme does not have such a setting.
    """
    if not isinstance(scheme, Keyed | Published):
        raise ParameterError(f"{scheme.name} has no variants", "choose ours or InvGNN-WM")
    given = {name: _value(value) for name, _, value in (pair.partition("=") for pair in variant.split())}
    drawn = tuple((name, given.pop(name)) for name in DRAWN if name in given)
    if isinstance(scheme, Keyed) and "beta" in given:
        given["recipe"] = Recipe(**(scheme.recipe.record() | {"beta": float(given.pop("beta"))}))
    try:
        changed: Keyed | Published = replace(scheme, **given)
    except TypeError as error:
        advice = f"choose among m, beta and {', '.join(DRAWN)}"
        raise ParameterError(f"{scheme.name} cannot be changed to {variant!r}", advice) from error
    return Redrawn(changed, drawn) if drawn else changed


def _value(text: str) -> Any:
    """Return a whole number, a number, or the text itself."""
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def measure_variant(
    setting: str, seed: int, scheme: str, variant: str, epochs: int, controls: int
) -> dict[str, Any]:
    """Train one model with a variant of a scheme, and read it and unmarked models.

    Args:
        setting: Task and backbone.
        seed: Seed of split, weights and training.
        scheme: Name of the scheme, ours or the paper's.
        variant: The changed settings.
        epochs: Number of epochs.
        controls: Number of unmarked models.

    Returns:
        The figures. `tau` is the exact threshold for 1e-6, `tau_paper` that of the paper's formula, and
        `margin` the paper's unsigned margin, for schemes that perceive.
    """
    made = train(begin(setting, seed, varied(find_scheme(scheme), variant), epochs))
    m = made.mark.mark.m if isinstance(made.mark, KeyedMark | Perceived) else 0
    margin = _margin(made.mark, made.model) if isinstance(made.mark, Perceived) else ""
    return measured(made, controls) | {
        "tau": NULLS["exact"].threshold(m, 1e-6),
        "tau_paper": NULLS["paper"].threshold(m, 1e-6),
        "margin": margin,
    }


def _margin(mark: Perceived, suspect: Suspect) -> float:
    """Return the smallest distance of an answer from one half."""
    answers = mark.mark.read(suspect, "perception").carriers
    return round(float(np.abs(answers - 0.5).min()), 4)
