"""One setting of a scheme changed: the ablations of the paper."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from invgnn.bench.marked import begin, measured, train
from invgnn.bench.trials.drift import margin
from invgnn.bench.trials.ensembles import known_invariant
from invgnn.bench.trials.objects import find_scheme, told
from invgnn.errors import ParameterError
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
    "hyperparameters",
)
DRAWN = ("invariant", "swap_cap", "delta")
"""Settings of the carriers, which a scheme does not have as fields."""
Setting = tuple[str, int | float | str]


@dataclass(frozen=True, repr=False)
class Varied(Scheme):
    """A scheme with some settings changed; all others stay as they suit the task.

    Attributes:
        base: The scheme.
        changes: The changed settings.
    """

    base: Keyed | Published
    changes: tuple[Setting, ...]
    source = "a variant for the ablations"

    @property
    def name(self) -> str:  # type: ignore[override]
        """The name of the scheme."""
        return self.base.name

    @property
    def changed(self) -> Keyed | Published:
        """The scheme with the settings changed that it has as fields."""
        given: dict[str, Any] = {name: value for name, value in self.changes if name not in DRAWN}
        if isinstance(self.base, Keyed) and "beta" in given:
            given["recipe"] = Recipe(**(self.base.recipe.record() | {"beta": float(given.pop("beta"))}))
        return replace(self.base, **given)

    def suited(self, model: Any, task: Task) -> Varied:
        """Return the variant of the scheme as it suits an architecture and a task.

        Args:
            model: A model of this architecture.
            task: Its task.
        """
        return replace(self, base=self.base.suited(model, task))

    def prepare(self, secret: Secret, task: Task) -> KeyedMark | Perceived:
        """Draw the mark of the scheme; its carriers again if their settings are changed.

        Args:
            secret: The owner's secret.
            task: The task.
        """
        marked = self.changed.prepare(secret, task)
        drawn: dict[str, Any] = {name: value for name, value in self.changes if name in DRAWN}
        if not drawn:
            return marked
        old = marked.mark
        new = Watermark.draw(
            secret,
            task.data,
            m=old.m,
            access=[reading.access for reading in old.readings],
            classes=task.num_classes,
            invariant=known_invariant(drawn.pop("invariant", old.context["invariant"]), task),
            key=old.context["key"],
            gap=old.context["gap"],
            sampler=Sampler(**(old.context["sampler"] | drawn)),
            recipe=old.recipe,
        )
        return replace(marked, mark=new)


def varied(scheme: Scheme, variant: str) -> Varied:
    """Return a scheme with some settings changed.

    Args:
        scheme: Ours or the paper's.
        variant: Settings such as `m=64`, `swap_cap=5 delta=0.05` or `invariant=lambda2+triangle_count`,
            separated by spaces.

    Raises:
        ParameterError: If the scheme does not have such a setting.
    """
    if not isinstance(scheme, Keyed | Published):
        raise ParameterError(f"{scheme.name} has no variants", "choose ours or InvGNN-WM")
    pairs = (pair.partition("=") for pair in variant.split())
    made = Varied(scheme, tuple((name, _value(value)) for name, _, value in pairs))
    try:
        _ = made.changed
    except TypeError as error:
        advice = f"choose among m, beta and {', '.join(DRAWN)}"
        raise ParameterError(f"{scheme.name} cannot be changed to {variant!r}", advice) from error
    return made


def _value(text: str) -> int | float | str:
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
    least: float | str = ""
    if isinstance(made.mark, Perceived):
        least = margin(made.mark.mark.read(made.model, "perception").carriers)
    return measured(made, controls) | {
        "tau": NULLS["exact"].threshold(m, 1e-6),
        "tau_paper": NULLS["paper"].threshold(m, 1e-6),
        "margin": least,
        "hyperparameters": told(made.scheme),
    }
