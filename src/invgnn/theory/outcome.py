"""The settings and the results of a calibration."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from invgnn.errors import ParameterError
from invgnn.readout.reading import Access
from invgnn.stats import null
from invgnn.theory.curvature import Curvature
from invgnn.theory.imperceptibility import Imperceptibility, beta_max
from invgnn.theory.lipschitz import Lipschitz
from invgnn.theory.statement import Statement


@dataclass(frozen=True)
class Plan:
    """The settings of a calibration.

    Attributes:
        access: Where s is read: `perception` is the paper's head with a plain key; `embedding` and `logits`
            are readings of a keyed mark, mapped to [0, 1].
        eps: Tolerated increase of the task loss, and tolerated decrease of validation accuracy.
        grid: Weights to test.
        epochs: Epochs of the unmarked model.
        checkpoints: How many of its last epochs are recorded.
        marked: Further epochs with the mark, from the unmarked model, at every weight.
        graphs: Number of task graphs, in addition to all carriers, over which L_s is measured.
        m: Number of carriers.
        retries: How often the weight is halved if training leaves the neighbourhood.
        lr: Learning rate.
        alpha: Significance level at which a mark counts as embedded.
        seed: Seed of the split, the model and the training.
    """

    access: Access = "embedding"
    eps: float = 0.02
    grid: tuple[float, ...] = (0.01, 0.1, 1.0, 10.0)
    epochs: int = 100
    checkpoints: int = 20
    marked: int = 30
    graphs: int = 128
    m: int = 128
    retries: int = 3
    lr: float = 0.01
    alpha: float = 1e-6
    seed: int = 41

    def __post_init__(self) -> None:
        if self.access == "labels":
            raise ParameterError(
                "labels have no gradient", "use the access level logits, embedding or perception"
            )
        if not self.grid or not all(0 < beta < math.inf for beta in self.grid):
            raise ParameterError(
                f"the grid of weights is {self.grid}", "pass finite weights above 0, e.g. 0.01, 0.1, 1"
            )
        if not 0 < self.eps < math.inf or not 0 < self.lr < math.inf:
            raise ParameterError(
                f"eps={self.eps}, lr={self.lr}", "use finite numbers above 0; the paper uses eps=0.02"
            )
        if not 2 <= self.checkpoints <= self.epochs:
            raise ParameterError(
                f"{self.checkpoints} checkpoints of {self.epochs} epochs",
                "record at least 2 checkpoints and at most one per epoch",
            )
        if min(self.marked, self.graphs) < 1 or self.retries < 0:
            raise ParameterError(
                f"marked={self.marked}, graphs={self.graphs}, retries={self.retries}",
                "use marked >= 1, graphs >= 1 and retries >= 0",
            )


@dataclass(frozen=True)
class Trial:
    """A model trained further at one weight: its accuracy, its mark, and the check of Theorem 1.

    Attributes:
        val_acc: Validation accuracy.
        test_acc: Test accuracy.
        matches: Number of matches.
        m: Number of carriers.
        bits: Evidence bits under the exact null; None for a plain key, which has no exact null.
        alpha: Significance level at which the mark counts as embedded.
        theorem: The check of Theorem 1.
    """

    val_acc: float
    test_acc: float
    matches: int
    m: int
    bits: float | None
    alpha: float
    theorem: Imperceptibility

    @property
    def beta(self) -> float:
        """Weight of the mark."""
        return self.theorem.beta

    @property
    def embedded(self) -> bool:
        """Whether the mark is detected at level `alpha`."""
        return self.found_at(self.alpha)

    def found_at(self, alpha: float) -> bool:
        """Return whether the mark is detected at a level: by evidence, or by matches for a plain key."""
        if self.bits is None:
            return self.matches >= null.NULLS["exact"].threshold(self.m, alpha)
        return self.bits >= -math.log2(alpha)

    def record(self) -> dict[str, Any]:
        """Return the numbers as plain values, one row."""
        theorem = self.theorem
        row: dict[str, Any] = {
            "beta": self.beta,
            "val_acc": self.val_acc,
            "test_acc": self.test_acc,
            "matches": self.matches,
        }
        row |= {"m": self.m, "evidence_bits": self.bits, "embedded": self.embedded}
        row |= {name: getattr(theorem, name) for name in ("gap", "gradient", "pull", "distance", "radius")}
        return row | {"inside": theorem.inside, "standing": theorem.standing, "checked": theorem.checked}


@dataclass(frozen=True)
class Calibration(Statement):
    """The result of a calibration.

    Guarantee: `certified` holds under its assumptions, which include those of `chosen.theorem`; on a
    trained network some of them are known to fail. The cost in accuracy and the gain in evidence are
    measured.

    Attributes:
        setting: Task and backbone.
        plan: The settings.
        curvature: The estimates of μ.
        lipschitz: L_s.
        radius: Radius of the neighbourhood in which μ was estimated.
        control: The same further training without the mark.
        trials: One trial per weight on the grid.
        chosen: The trial at the smaller of the certified and the accurate weight, halved as often as
            needed.
    """

    setting: str
    plan: Plan
    curvature: Curvature
    lipschitz: Lipschitz
    radius: float
    control: Trial
    trials: tuple[Trial, ...]
    chosen: Trial

    def __post_init__(self) -> None:
        rests = (*self.curvature.assumptions, *self.lipschitz.assumptions, *self.chosen.theorem.assumptions)
        object.__setattr__(self, "assumptions", tuple(dict.fromkeys(rests)))

    @property
    def certified(self) -> float:
        """The corrected bound, from the lower envelope and L_s with its buffer."""
        return self.chosen.theorem.beta_max

    @property
    def paper(self) -> float:
        """The literal bound as the paper computes it, from the slope itself; unsound."""
        return beta_max(max(self.curvature.slope_low, 0.0), self.plan.eps, self.lipschitz.value, "paper")

    @property
    def accurate(self) -> Trial | None:
        """The trial at the largest weight on the grid that keeps validation accuracy, the paper's β_val."""
        return max(self._keeping, key=lambda trial: trial.beta, default=None)

    @property
    def useful(self) -> Trial | None:
        """The trial at the smallest weight on the grid that embeds the mark and keeps the accuracy."""
        kept = (trial for trial in self._keeping if trial.embedded)
        return min(kept, key=lambda trial: trial.beta, default=None)

    @property
    def _keeping(self) -> list[Trial]:
        """The trials that keep validation accuracy."""
        least = self.control.val_acc - self.plan.eps
        return [trial for trial in self.trials if trial.val_acc >= least]

    def record(self) -> dict[str, Any]:
        """Return the numbers as plain values."""
        bend, steep = self.curvature, self.lipschitz
        return {
            "setting": self.setting,
            **{
                name: getattr(self.plan, name)
                for name in ("access", "eps", "m", "seed", "epochs", "marked")
            },
            "points": bend.points,
            "slope": bend.slope,
            "slope_low": bend.slope_low if math.isfinite(bend.slope_low) else None,
            "mu_envelope": bend.envelope,
            "mu_from_zero": bend.from_zero,
            "lipschitz_measured": steep.measured,
            "lipschitz": steep.value,
            "lipschitz_nearby": steep.nearby,
            "radius": self.radius,
            "beta_certified": self.certified,
            "beta_paper": self.paper,
            "beta_val": self.accurate.beta if self.accurate else None,
            "beta_useful": self.useful.beta if self.useful else None,
            "beta_chosen": self.chosen.beta,
            "control": self.control.record(),
            "trials": [trial.record() for trial in self.trials],
            "chosen": self.chosen.record(),
            "assumptions": {a.says: a.holds for a in self.assumptions},
        }

    def rows(self) -> list[dict[str, Any]]:
        """Return one flat row per trained model, including the constants, for a table."""
        flat = {k: v for k, v in self.record().items() if not isinstance(v, dict | list)}
        runs = {"control": (self.control,), "grid": self.trials, "chosen": (self.chosen,)}
        return [flat | {"run": run} | t.record() for run, found in runs.items() for t in found]
