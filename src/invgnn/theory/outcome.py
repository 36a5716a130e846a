"""What a calibration was asked and what it found."""

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
    """How a calibration is made.

    access       what s is: the paper's head with its plain key (`perception`), or our reading at
                 `embedding` or `logits` with a keyed mark, squashed to [0, 1]
    eps          tolerated increase of the task loss, and tolerated drop of validation accuracy
    grid         weights to try
    epochs       of the unmarked model; its last `checkpoints` are recorded
    marked       further epochs with the mark, from the unmarked model, at every weight
    graphs       task graphs over which L_s is taken, besides all carriers
    retries      how often the weight is halved if training leaves the neighbourhood
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
            raise ParameterError("a label has no gradient", "calibrate at logits, embedding or perception")
        if not self.grid or not all(0 < beta < math.inf for beta in self.grid):
            raise ParameterError(f"grid {self.grid}", "give weights above 0, e.g. 0.01, 0.1, 1")
        if not 0 < self.eps < math.inf or not 0 < self.lr < math.inf:
            raise ParameterError(
                f"eps={self.eps}, lr={self.lr}", "both are above 0; the paper's eps is 0.02"
            )
        if not 2 <= self.checkpoints <= self.epochs:
            raise ParameterError(
                f"{self.checkpoints} checkpoints of {self.epochs} epochs", "record 2 at least, all at most"
            )
        if min(self.marked, self.graphs) < 1 or self.retries < 0:
            raise ParameterError("marked and graphs are at least 1, retries at least 0", "use the defaults")


@dataclass(frozen=True)
class Trial:
    """A model trained further at one weight: its accuracy, its mark, and Theorem 1 held against it.

    `bits` is the evidence under the exact null, which a plain key does not have: then T alone counts.
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
        """Whether the mark is found at level alpha."""
        return self.found_at(self.alpha)

    def found_at(self, alpha: float) -> bool:
        """Whether the evidence, or T where there is none, suffices at a level."""
        if self.bits is None:
            return self.matches >= null.NULLS["exact"].threshold(self.m, alpha)
        return self.bits >= -math.log2(alpha)

    def record(self) -> dict[str, Any]:
        """The figures as plain values, one row."""
        theorem = self.theorem
        row: dict[str, Any] = {
            "beta": self.beta,
            "val_acc": self.val_acc,
            "test_acc": self.test_acc,
            "t": self.matches,
        }
        row |= {"m": self.m, "evidence_bits": self.bits, "embedded": self.embedded}
        row |= {name: getattr(theorem, name) for name in ("gap", "gradient", "pull", "distance", "radius")}
        return row | {"inside": theorem.inside, "standing": theorem.standing, "checked": theorem.checked}


@dataclass(frozen=True)
class Calibration(Statement):
    """Everything a calibration found.

    control   the same further training without the mark: what the mark is compared with
    trials    one per weight on the grid
    chosen    at the smaller of the certified and the accurate weight, reduced as often as needed

    Guarantee: `certified` is as good as its assumptions, those of `chosen.theorem` among them; on a trained
    network some are known to fail. What accuracy and evidence cost and give is measured, not promised.
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
        """The corrected bound, from the lower envelope and the buffered L_s."""
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
        """The trial at the least weight on the grid that embeds the mark and keeps validation accuracy."""
        kept = (trial for trial in self._keeping if trial.embedded)
        return min(kept, key=lambda trial: trial.beta, default=None)

    @property
    def _keeping(self) -> list[Trial]:
        least = self.control.val_acc - self.plan.eps
        return [trial for trial in self.trials if trial.val_acc >= least]

    def record(self) -> dict[str, Any]:
        """The figures as plain values."""
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
        """One flat row per trained model, constants included: what a table is written from."""
        flat = {k: v for k, v in self.record().items() if not isinstance(v, dict | list)}
        runs = {"control": (self.control,), "grid": self.trials, "chosen": (self.chosen,)}
        return [flat | {"run": run} | t.record() for run, found in runs.items() for t in found]
