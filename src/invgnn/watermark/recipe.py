"""Recipe: the settings of the embedding. None of them changes how a suspect is read."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Literal, get_args

from invgnn.checks import check_choice, check_flag, check_number, check_whole
from invgnn.errors import ParameterError
from invgnn.watermark.plan import Plan

Loss = Literal["logistic", "mse"]
PRESENTATIONS = 200
"""How often every carrier is used in a training run."""
CARRIERS = 10
"""Fewest carriers in a step of a planned run that uses any."""
CARRIERS_APART = 48
"""The same where they get a forward pass of their own, which costs much even for a single carrier."""
CARRIERS_WITHOUT_PLAN = 32
"""Carriers in every step where the number of steps is unknown or small."""
_RENAMED = {
    "guard": "gradient_projection",
    "lean": "score_shift",
    "wait": "warmup_steps",
    "after": "after_task",
    "stiff": "weight_scale",
}
"""Names of settings in files of earlier versions."""
_REMOVED = {"margin", "noise", "simulate", "penalty", "extra", "ratio", "every"}
"""Settings of earlier versions that are ignored: they say how a mark was embedded, not how it is read."""


@dataclass(frozen=True)
class Recipe:
    """Settings of the embedding.

    Attributes:
        loss: `logistic` on the signed answers, or the paper's `mse` to the targets.
        beta: Weight of the mark's loss beside a mean task loss. Answers are standardised, so it means the
            same for every model and task. `train` uses half of it together with a
            task, in a training that is long enough for all presentations.
        presentations: How often every carrier is used in the whole training. The cost of a mark is this
            number of carriers, whatever the size of the data. They are made at the end of the training.
            None means 200.
        carriers: How many carriers a step with carriers uses, at least. It uses more where the training
            has too few steps for its presentations. None means 10, or 48 in a forward pass of their own,
            or 32 where the number of steps is not known and after the task.
        joint: Whether carriers are mixed into the task batch (one forward pass). Otherwise they get a
            forward pass of their own.
        gradient_projection: Whether `train` projects out the component of the mark's gradient that
            conflicts with the task's. It costs a second backward pass in every step that uses carriers.
            None does so in the steps after the task only, where it pays.
        cap: With gradient projection, how many times as long as the task's gradient the mark's may be at
            most. None sets no limit.
        score_shift: Strength of the score channel: by how many nats the log-odds between the two halves of
            the classes shift for an input one standard deviation along the secret direction.
        warmup_steps: Steps on the task alone before the mark is embedded, at most a fifth of all steps.
        after_task: How many steps `train` adds to embed the mark after the task, where an epoch is a single
            step. 0 embeds it during the task.
        weight_scale: How large `train` leaves the weights before norms, relative to fresh ones, for the
            same function (`scale_weights`). None leaves them as they are.
    """

    loss: Loss = "logistic"
    beta: float = 1.0
    presentations: int | None = None
    carriers: int | None = None
    joint: bool = True
    gradient_projection: bool | None = None
    cap: float | None = None
    score_shift: float = 1.0
    warmup_steps: int = 20
    after_task: int = 70
    weight_scale: float | None = 256.0

    def __post_init__(self) -> None:
        check_choice("loss", self.loss, get_args(Loss))
        check_flag("joint", self.joint)
        if self.gradient_projection is not None:
            check_flag("gradient_projection", self.gradient_projection)
        for name in ("presentations", "carriers"):
            if getattr(self, name) is not None:
                check_whole(name, getattr(self, name), 1, 2**31)
        for name in ("warmup_steps", "after_task"):
            check_whole(name, getattr(self, name), 0, 2**31)
        for name in ("beta", "score_shift"):
            check_number(name, getattr(self, name))
            if getattr(self, name) < 0:
                raise ParameterError(
                    f"{name}={getattr(self, name)} is negative", "use 0 or more; the default is 1"
                )
        for name in ("cap", "weight_scale"):
            if getattr(self, name) is not None:
                check_number(name, getattr(self, name))
        if self.weight_scale is not None and not 0 < self.weight_scale <= 1e3:
            raise ParameterError(
                f"weight_scale={self.weight_scale} is not in (0, 1000]", "use 256, or None for no scaling"
            )
        if self.cap is not None and (self.gradient_projection is False or not self.cap > 0):
            raise ParameterError(
                f"cap={self.cap} needs gradient projection and must be positive",
                "use 1 for a mark whose gradient is never longer than the task's",
            )

    def plan(self, m: int, steps: int, *, apart: bool = False) -> Plan:
        """Return which steps of a training run use carriers, and how many.

        Args:
            m: Number of carriers.
            steps: Optimiser steps of the run.
            apart: Whether carriers get a forward pass of their own.
        """
        return Plan.spread(
            m,
            steps,
            presentations=self.presentations or PRESENTATIONS,
            carriers=self.carriers or (CARRIERS_APART if apart else CARRIERS),
            warmup_steps=self.warmup_steps,
        )

    def following(self, plan: Plan) -> Recipe:
        """Return the recipe whose plan for a run of as many steps is the given one.

        Args:
            plan: A plan of this recipe.
        """
        return replace(self, presentations=plan.wanted, carriers=plan.count, warmup_steps=plan.first)

    def record(self) -> dict[str, Any]:
        """Return the settings as plain values."""
        return asdict(self)

    @classmethod
    def recall(cls, record: dict[str, Any]) -> Recipe:
        """Return the recipe of a record, also of earlier versions."""
        known = {_RENAMED.get(name, name): value for name, value in record.items() if name not in _REMOVED}
        for name, old in {"warmup_steps": float, "after_task": bool}.items():  # a share, a choice
            if type(known.get(name)) is old:
                del known[name]
        unknown = sorted(known.keys() - {field.name for field in fields(cls)})
        if unknown:
            raise ParameterError(
                f"the recipe has unknown settings: {', '.join(unknown)}", "draw the mark anew"
            )
        return cls(**known)
