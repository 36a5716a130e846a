"""A score channel: on ordinary inputs, the scores of a marked model lean along a secret function.

What a model has learnt by heart about carriers need not pass to a student who never sees them; what it says
about the task's own inputs does. The secret picks a direction in a space of public features; the scores of
a marked model rise and fall along it, and so do those of whoever learns from them. What the model said
before it leaned is kept: against that even a faint lean shows.
"""

from __future__ import annotations

import hashlib
import math
import re
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.ndimage import median_filter
from scipy.special import ndtri
from scipy.stats import rankdata
from torch import Tensor, nn

from invgnn.errors import DataError, ParameterError, SuspectError
from invgnn.nn.forward import Forward, call, one_tensor
from invgnn.nn.observation import log_scores
from invgnn.readout.answers import without_gaps
from invgnn.readout.query import Suspect, scores_on
from invgnn.readout.reading import Direction
from invgnn.secret import Stream
from invgnn.stats import laws
from invgnn.storage import encoding
from invgnn.watermark.inputs import Inputs
from invgnn.watermark.public_features import Features

EPSILON = 2.0**-53
ERROR = 1e-12
"""Bound on the error of a normal number (`gaussians`)."""
SLACK = 1e-12
"""Bound on the rounding of the distance between two unit vectors, with room to spare."""
Scores: TypeAlias = NDArray[np.float64]


@dataclass(frozen=True)
class ScoreShift:
    """How closely a suspect's scores follow the secret direction: the cosine between the two.

    `cosine` looks at all inputs together, `within` at differences among inputs of the same predicted class;
    the better of both counts, for one bit. Evidence is computed from the distances `chord` and
    `chord_within` between unit vectors, not from the cosines: near 1 a cosine has lost what they tell. Both
    include every rounding error there may be, `unsure` is the probability that they do not.

    Guarantee: if the direction is uniform on the sphere given the suspect's scores, the inputs and the
    remembered scores, Pr[p <= u] <= u for every u, whatever the model and the dependence among inputs.
    """

    cosine: float
    within: float
    chord: float
    chord_within: float
    dimension: int
    inputs: int
    unsure: float = 0.0

    @property
    def log_p(self) -> float:
        """Natural logarithm of an upper bound on the chance that a random direction comes as close."""
        one, other = (laws.log_p_chord(c, self.dimension) for c in (self.chord, self.chord_within))
        return laws.log_p_plus(laws.log_p_combined(one, other), self.unsure)

    def bits(self, tests: int = 1) -> float:
        """Return the evidence in bits."""
        return laws.evidence_bits(self.log_p, tests)


@dataclass(frozen=True, eq=False)
class Baseline:
    """What a model said of inputs before it leaned, and the digest of those very inputs."""

    scores: Scores
    inputs: str

    def __post_init__(self) -> None:
        scores = np.array(self.scores)
        if scores.ndim != 2 or scores.dtype != np.float64 or 0 in scores.shape or scores.shape[1] < 2:
            raise ParameterError("remembered scores have a row per input and two classes at least")
        if not np.isfinite(scores).all():
            raise ParameterError("some remembered scores are NaN or infinite", "train it, then remember it")
        if type(self.inputs) is not str or not re.fullmatch("[0-9a-f]{64}", self.inputs):
            raise ParameterError("the remembered inputs are not a SHA-256 digest in hex", "draw it anew")
        scores.setflags(write=False)
        object.__setattr__(self, "scores", scores)

    @classmethod
    def of(cls, model: Suspect, data: Any, forward: Forward | None = None, version: int = 2) -> Baseline:
        """Ask a model."""
        inputs = Inputs.of(data)
        return cls(log_probabilities_of(model, inputs, forward), inputs.digest(version))

    def digest(self, version: int = 2) -> str:
        """Return the digest of the scores and of the inputs, as marks of a format are bound to it."""
        if version == 1:  # the shape gives the length of the bytes, and a digest is always as long
            shape = ",".join(map(str, self.scores.shape))
            held = hashlib.sha256(f"{self.inputs};{shape};".encode())
            held.update(np.ascontiguousarray(self.scores, dtype="<f8").tobytes())
            return held.hexdigest()
        return encoding.digest("invgnn/baseline/2", {"inputs": self.inputs, "scores": self.scores})


@dataclass(frozen=True, eq=False)
class ScoreChannel:
    """A secret direction among public features: taught by a teacher who leans, read from scores.

    strength  how far the log-odds between the two halves of the classes move, in nats, for an input one
              standard deviation along the direction
    before    class scores on the inputs of a model that does not lean yet, known before the direction was
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
        """Return the channel of a secret stream on the inputs of a task.

        The stream must be bound to `before` and to the inputs. The direction is the projection of a
        Gaussian vector that knows nothing of the features' axes, so it does not matter how a machine's
        linear algebra signs or turns them.
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
        """How far every input lies along the direction, in standard deviations."""
        return self.features(batch) @ torch.from_numpy(self.direction)

    def shift(self, scores: Tensor, batch: Any) -> Tensor:
        """Scores, leaning: what a model marked at full strength would say."""
        signs = self.signs("logits", scores.shape[1]).to(scores)
        return scores + self.strength / 2 * torch.outer(self.along(batch).to(scores), signs)

    def shifted_teacher(self, teacher: nn.Module, forward: Forward | None = None) -> nn.Module:
        """A teacher who leans; distil it, for instance with `mark.refresh`, and the student is marked."""
        return _ShiftedTeacher(self, teacher, forward)

    def read(self, suspect: Suspect, forward: Forward | None = None) -> ScoreShift:
        """Ask a suspect about the inputs that the mark is bound to, and measure how it leans."""
        return self.measure(log_probabilities_of(suspect, self.inputs, forward))

    def measure(self, scores: Scores) -> ScoreShift:
        """Measure how log-probabilities [inputs, classes] lean; rows with NaN count as the usual answer."""
        return self.compare(*self.followed(scores), len(scores))

    def followed(self, scores: Scores) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return how strongly scores follow every feature: all together, and within predicted classes.

        Guarantee: depends on the scores, the inputs and what is known from before, never on the direction.
        """
        known = np.concatenate([self.features(batch).numpy() for batch in self.inputs.batches()])
        if len(known) != len(self.before):
            raise DataError(
                f"{len(known)} inputs, but {len(self.before)} are known from before the model leaned",
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
        """Compare what `followed` found with the direction."""
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
        """The cosine with the direction, and the distance of the unit vectors, rounding errors added."""
        size = float(np.linalg.norm(found))
        if not size > 1e-9:  # the suspect says nothing: p is one
            return 0.0, 2.0
        unit = found / size
        cosine = min(1.0, max(-1.0, float(unit @ self.direction)))
        return cosine, min(2.0, float(np.linalg.norm(unit - self.direction)) + self.slack)


def gaussians(stream: Stream, n: int) -> NDArray[np.float64]:
    """Return n standard normal numbers, each from three words of a stream.

    Guarantee: there are independent, exactly normal numbers, one for each, that differ from these by at
    most `ERROR`, or `ERROR` times their size where that exceeds one, except with probability n 2^-151. A
    sign and 191 bits k give the probability (k + 1/2) / 2^192 to lie farther out. Where k is at least
    2^40, the width of its cell moves a number by at most 1.26 * 2^-41 < 6e-13; it is smaller with
    probability 2^-151. Rounding the probability, and scipy's inverse (checked against mpmath), add less
    than 1e-13.
    """
    words = stream.words(3 * n).reshape(n, 3)
    sign = np.where(words[:, 0] & np.uint64(1), 1.0, -1.0)
    first, second, third = (words[:, 0] >> np.uint64(1)).astype(np.float64), *words[:, 1:].astype(float).T
    outside = first * 2.0**-64 + second * 2.0**-128 + (third + 0.5) * 2.0**-192
    return np.asarray(-sign * ndtri(outside))


ERROR_1, UNSURE_1 = 2e-4, 2.0**-30
"""For format 1, whose numbers had 53 bits: where k < 2^9, the error may be larger than this. That is so for
one of 1,536 numbers with probability 2^-32, so such a channel is worth 30 bits at most."""


def _gaussians_1(stream: Stream, n: int) -> NDArray[np.float64]:
    words = (stream.words(n) >> np.uint64(11)).astype(np.float64)
    return np.asarray(ndtri((words + 0.5) / 2.0**53))


def _slack(
    axes: NDArray[np.float64], drawn: NDArray[np.float64], shadow: NDArray[np.float64], error: float
) -> float:
    """Return how far the direction may lie from one that is exactly uniform, as a distance of unit vectors.

    A vector that is moved by e of its length turns by at most 2 e. Moved is the shadow by the error of
    the normal numbers and by the rounding of the product; and by how far the axes are from orthonormal,
    which is measured, the rounding of that measurement added.
    """
    rows, columns = axes.shape
    skew = float(np.linalg.norm(axes.T @ axes - np.eye(columns))) + rows * columns * EPSILON
    size = float(np.linalg.norm(drawn))
    moved = (1 + skew) * error * (size + math.sqrt(rows)) + rows * EPSILON * math.sqrt(2 * columns) * size
    return float(SLACK + 2 * moved / float(np.linalg.norm(shadow)) + 2 * skew)


def log_probabilities_of(suspect: Suspect, data: Any, forward: Forward | None = None) -> Scores:
    """Return the log-probabilities that a suspect gives the classes of every input [inputs, classes]."""
    said = scores_on(suspect, Inputs.of(data).graphs(), forward)
    return np.asarray(log_scores(said).log_softmax(-1).numpy(), dtype=np.float64)


def beyond(answers: NDArray[np.float64], before: Scores) -> NDArray[np.float64]:
    """What is left of answers when all is taken out that follows from what a model said before.

    By least squares, on where each input stood in every class and which class was on top.
    """
    top = before.argmax(1)[:, None] == np.arange(before.shape[1])
    known = np.column_stack([np.ones(len(before)), top, *map(standing, before.T)])
    left = answers - known @ np.linalg.lstsq(known, answers, rcond=1e-9)[0]
    rounding = float(np.linalg.norm(left)) <= 1e-9 * float(np.linalg.norm(answers))  # no answers at all
    return np.zeros_like(left) if rounding else np.asarray(left)


def standing(answers: NDArray[np.float64]) -> NDArray[np.float64]:
    """Answers by their rank, as normal scores around zero: how large they are does not matter."""
    scores = ndtri((rankdata(answers) - 0.5) / len(answers))
    return np.asarray(scores - scores.mean())


def follow(features: NDArray[np.float64], answers: NDArray[np.float64]) -> NDArray[np.float64]:
    """How strongly answers follow each feature, every stretch of features counting alike.

    A model's own likes lie along the widest features: they are brought down to the size usual among their
    neighbours. All of this looks at the suspect and the inputs only.
    """
    along = (features - features.mean(0)).T @ answers / len(answers)
    usual = median_filter(np.abs(along), size=2 * max(8, len(along) // 8) + 1, mode="reflect")
    return np.asarray(np.clip(along / np.maximum(usual, 1e-12), -3, 3))


def _means(values: NDArray[np.float64], groups: NDArray[np.int64]) -> NDArray[np.float64]:
    """For every value the mean of its group."""
    total, count = np.bincount(groups, values), np.bincount(groups)
    return np.asarray((total / np.maximum(count, 1))[groups])


class _ShiftedTeacher(nn.Module):
    def __init__(self, channel: ScoreChannel, teacher: nn.Module, forward: Forward | None) -> None:
        super().__init__()
        self.channel, self.teacher, self.ask = channel, teacher, forward or call

    def forward(self, data: Any) -> Tensor:
        return self.channel.shift(one_tensor(self.ask(self.teacher, data)), data)
