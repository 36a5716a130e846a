"""The score channel: a keyed shift of a model's scores on ordinary inputs, which survives distillation.

A distilled student never sees the carriers, so it need not inherit the answers on them. It does inherit how
its teacher scores ordinary inputs. The secret derives a direction in a space of public features; embedding
shifts the scores of the model along this direction. The scores of the model before the shift are kept
(`Baseline`), so that even a small shift can be measured.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from invgnn.errors import DataError, SuspectError
from invgnn.nn.forward import Forward, call, one_tensor
from invgnn.readout.answers import without_gaps
from invgnn.readout.query import Suspect
from invgnn.readout.reading import Direction
from invgnn.secret import Stream
from invgnn.watermark.baseline import Scores, log_probabilities_of
from invgnn.watermark.gaussians import ERROR, ERROR_1, SLACK, UNSURE_1, _gaussians_1, _slack, gaussians
from invgnn.watermark.inputs import Inputs
from invgnn.watermark.public_features import Features
from invgnn.watermark.score_shift import ScoreShift, _means, beyond, follow, standing


@dataclass(frozen=True, eq=False)
class ScoreChannel:
    """A secret direction among public features, embedded in scores and read from them.

    Attributes:
        features: The public features.
        direction: The secret unit vector among them.
        signs: The secret's signs of the classes.
        strength: By how many nats the log-odds between the two halves of the classes shift for an input one
            standard deviation along the direction.
        before: Baseline scores on the inputs, fixed before the direction was derived.
        inputs: The inputs that the mark is bound to.
        slack: Bound on the distance of the direction from an exactly uniform one.
        unsure: Probability that the bound does not hold.
    """

    features: Features
    direction: NDArray[np.float64]
    signs: Direction
    strength: float
    before: Scores
    inputs: Inputs
    slack: float = SLACK
    unsure: float = 0.0

    @classmethod
    def draw(
        cls,
        stream: Stream,
        signs: Direction,
        data: Any,
        dimension: int,
        strength: float,
        before: Scores,
        version: int = 2,
    ) -> ScoreChannel:
        """Return the score channel of a secret stream on the inputs of a task.

        The direction is the projection of a Gaussian vector that is independent of the features' axes, so
        signs and rotations of the axes, which differ between linear algebra libraries, do not matter.

        Args:
            stream: The secret stream; it must be bound to `before` and to the inputs.
            signs: The secret's signs of the classes.
            data: The inputs of the task.
            dimension: Number of features.
            strength: Strength of the shift.
            before: Baseline scores.
            version: The format of the mark.
        """
        inputs = Inputs.of(data)
        features = Features.fit(next(inputs.batches(None)), inputs.level, dimension, version)
        axes = features.axes.numpy()
        drawn = _gaussians_1(stream, len(axes)) if version == 1 else gaussians(stream, len(axes))
        shadow = axes.T @ drawn
        error, unsure = (ERROR_1, UNSURE_1) if version == 1 else (ERROR, 0.0)
        slack = _slack(axes, drawn, shadow, error)
        direction = shadow / np.linalg.norm(shadow)
        return cls(features, direction, signs, strength, before, inputs, slack, unsure)

    def along(self, batch: Any) -> Tensor:
        """Return how far every input lies along the direction, in standard deviations."""
        return self.features(batch) @ torch.from_numpy(self.direction)

    def shift(self, scores: Tensor, batch: Any) -> Tensor:
        """Return the scores shifted along the direction, as of a model with the full shift."""
        signs = self.signs("logits", scores.shape[1]).to(scores)
        return scores + self.strength / 2 * torch.outer(self.along(batch).to(scores), signs)

    def shifted_teacher(self, teacher: nn.Module, forward: Forward | None = None) -> nn.Module:
        """Return the teacher with shifted scores; a student distilled from it carries the channel."""
        return _ShiftedTeacher(self, teacher, forward)

    def read(self, suspect: Suspect, forward: Forward | None = None) -> ScoreShift:
        """Ask a suspect about the inputs that the mark is bound to, and measure the shift of its scores."""
        return self.measure(log_probabilities_of(suspect, self.inputs, forward))

    def measure(self, scores: Scores) -> ScoreShift:
        """Measure the shift of log-probabilities [inputs, classes]; rows with NaN count as the median."""
        return self.compare(*self.followed(scores), len(scores))

    def followed(self, scores: Scores) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return how strongly scores follow every feature: all together, and within predicted classes.

        Guarantee: depends on the scores, the inputs and the baseline, never on the direction.
        """
        known = np.concatenate([self.features(batch).numpy() for batch in self.inputs.batches()])
        if len(known) != len(self.before):
            raise DataError(
                f"{len(known)} inputs, but {len(self.before)} have baseline scores",
                "pass the data the mark was drawn from",
            )
        if len(known) != len(scores):
            raise SuspectError(
                f"the suspect returned {len(scores)} rows of scores for {len(known)} inputs",
                "return one row per input",
            )
        signs = self.signs("logits", scores.shape[1]).double().numpy()
        answers = standing(without_gaps(scores @ (signs - signs.mean())))
        answers = beyond(answers, self.before)
        within = answers - _means(answers, np.nan_to_num(scores, nan=-np.inf).argmax(1))
        return follow(known, answers), follow(known, within)

    def compare(self, found: NDArray[np.float64], within: NDArray[np.float64], inputs: int) -> ScoreShift:
        """Compare what `followed` returned with the direction."""
        (cosine, chord), (cosine_within, chord_within) = map(self._compare, (found, within))
        return ScoreShift(
            cosine=cosine,
            within=cosine_within,
            chord=chord,
            chord_within=chord_within,
            dimension=self.features.dimension,
            inputs=inputs,
            unsure=self.unsure,
        )

    def _compare(self, found: NDArray[np.float64]) -> tuple[float, float]:
        """Return the cosine with the direction, and the distance of the unit vectors plus rounding
        errors.
        """
        size = float(np.linalg.norm(found))
        if not size > 1e-9:  # the scores follow no feature: p is one
            return 0.0, 2.0
        unit = found / size
        cosine = min(1.0, max(-1.0, float(unit @ self.direction)))
        return cosine, min(2.0, float(np.linalg.norm(unit - self.direction)) + self.slack)


class _ShiftedTeacher(nn.Module):
    """A teacher whose scores are shifted along the direction."""

    def __init__(self, channel: ScoreChannel, teacher: nn.Module, forward: Forward | None) -> None:
        super().__init__()
        self.channel, self.teacher, self.ask = channel, teacher, forward or call

    def forward(self, data: Any) -> Tensor:
        return self.channel.shift(one_tensor(self.ask(self.teacher, data)), data)
