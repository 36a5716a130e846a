"""Recipe: the settings of the embedding. None of them changes how a suspect is read."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Literal, get_args

from invgnn.checks import check_choice, check_flag, check_number, check_whole
from invgnn.errors import ParameterError

Loss = Literal["logistic", "mse"]
USES_PER_EPOCH = 12
"""How often an epoch uses every carrier: on NCI1-GIN as good as in every step, for a third of the work."""
_RENAMED = {
    "guard": "gradient_projection",
    "lean": "score_shift",
    "wait": "warmup_steps",
    "after": "after_task",
    "stiff": "weight_scale",
}
"""Names of settings in files of earlier versions."""
_REMOVED = {"margin", "noise", "simulate", "penalty", "extra"}
"""Settings of earlier versions that are ignored: they say how a mark was embedded, not how it is read."""


@dataclass(frozen=True)
class Recipe:
    """Settings of the embedding.

    Attributes:
        loss: `logistic` on the signed answers, or the paper's `mse` to the targets.
        beta: Weight of the mark's loss beside a mean task loss, on average over the steps. Answers are
            standardised, so it means the same for every model and task.
        joint: Whether carriers are mixed into the task batch (one forward pass). Otherwise they get a
            forward pass of their own.
        ratio: Share of carriers in a mixed batch; on node tasks, share of the carriers used per step. None
            uses all carriers in every step, in `train` at most a dozen times an epoch.
        every: Use carriers in every so-many-th step only, with that many times the weight and, given a
            ratio, that many times the share. Cheaper than a few in every step, and often embeds less.
        gradient_projection: Whether the component of the mark's gradient that conflicts with the task's is
            projected out.
        cap: With gradient projection, how many times as long as the task's gradient the mark's may be at
            most. None sets no limit.
        score_shift: Strength of the score channel: by how many nats the log-odds between the two halves of
            the classes shift for an input one standard deviation along the secret direction.
        warmup_steps: Steps on the task alone before the mark is embedded, at most a fifth of all steps.
        after_task: Whether `train` embeds the mark after the task where an epoch is a single step.
        weight_scale: How large `train` leaves the weights before norms, relative to fresh ones, for the
            same function (`scale_weights`). None leaves them as they are.
    """

    loss: Loss = "logistic"
    beta: float = 1.0
    joint: bool = True
    ratio: float | None = None
    every: int = 1
    gradient_projection: bool = True
    cap: float | None = None
    score_shift: float = 1.0
    warmup_steps: int = 20
    after_task: bool = True
    weight_scale: float | None = 64.0

    def __post_init__(self) -> None:
        check_choice("loss", self.loss, get_args(Loss))
        for name in ("joint", "gradient_projection", "after_task"):
            check_flag(name, getattr(self, name))
        check_whole("warmup_steps", self.warmup_steps, 0, 2**31)
        check_whole("every", self.every, 1, 2**31)
        for name in ("beta", "score_shift"):
            check_number(name, getattr(self, name))
            if getattr(self, name) < 0:
                raise ParameterError(
                    f"{name}={getattr(self, name)} is negative", "use 0 or more; the default is 1"
                )
        for name in ("ratio", "cap", "weight_scale"):
            if getattr(self, name) is not None:
                check_number(name, getattr(self, name))
        if self.ratio is not None and not 0 < self.ratio < 1:
            raise ParameterError(f"ratio={self.ratio} is not in (0, 1)", "the paper uses 0.16")
        if self.weight_scale is not None and not 0 < self.weight_scale <= 1e3:
            raise ParameterError(
                f"weight_scale={self.weight_scale} is not in (0, 1000]", "use 64, or None for no scaling"
            )
        if self.cap is not None and not (self.gradient_projection and self.cap > 0):
            raise ParameterError(
                f"cap={self.cap} needs gradient_projection=True and must be positive",
                "use 1 for a mark whose gradient is never longer than the task's",
            )

    def paced(self, m: int, steps: int, batch_size: int | None) -> Recipe:
        """Return the recipe with as few carriers per step as use each of them often enough in an epoch.

        Args:
            m: Number of carriers.
            steps: Number of optimiser steps in an epoch.
            batch_size: Graphs in a task batch; None for a node task, where the ratio is a share of the
                carriers.

        Returns:
            The recipe; unchanged if a ratio or `every` was chosen.
        """
        count = -(-USES_PER_EPOCH * m // steps)
        if self.ratio is not None or self.every > 1 or count >= m:
            return self
        return replace(self, ratio=count / (m if batch_size is None else count + batch_size))

    @property
    def weight(self) -> float:
        """Weight of the mark's loss in a step that uses carriers: beta on average over all steps."""
        return self.beta * self.every

    def uses_carriers(self, step: int) -> bool:
        """Return whether an optimiser step uses carriers."""
        return step % self.every == 0

    def first_step(self, steps: int) -> int:
        """Return the first of so many steps in which the mark may be embedded.

        Raises:
            ParameterError: If no step after the warm-up uses carriers.
        """
        first = min(self.warmup_steps, steps // 5)
        if -(-first // self.every) * self.every >= steps:
            raise ParameterError(
                f"every={self.every}: none of {steps} steps uses carriers after {first} warm-up steps",
                "use a smaller every, or train longer",
            )
        return first

    def record(self) -> dict[str, Any]:
        """Return the settings as plain values."""
        return asdict(self)

    @classmethod
    def recall(cls, record: dict[str, Any]) -> Recipe:
        """Return the recipe of a record, also of earlier versions."""
        known = {_RENAMED.get(name, name): value for name, value in record.items() if name not in _REMOVED}
        if type(known.get("warmup_steps")) is float:  # once a share of the epochs
            del known["warmup_steps"]
        unknown = sorted(known.keys() - {field.name for field in fields(cls)})
        if unknown:
            raise ParameterError(
                f"the recipe has unknown settings: {', '.join(unknown)}", "draw the mark anew"
            )
        return cls(**known)
