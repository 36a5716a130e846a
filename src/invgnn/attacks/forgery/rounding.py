"""Numerical attacks on the score channel: a cosine that rounds to 1, and variants of baseline scores."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import betainc
from torch import nn

from invgnn.attacks.forgery.forgery import KEPT, Forged, Forgery, Naive, scratch
from invgnn.audit.verdict import Verdict
from invgnn.audit.verify import verify
from invgnn.graphs.disjoint_union import Floats
from invgnn.nn.layers import fresh_twin
from invgnn.stats import laws
from invgnn.stats.evidence import evidence_of
from invgnn.storage import container
from invgnn.training.tasks import Task
from invgnn.watermark.baseline import Baseline, log_probabilities_of
from invgnn.watermark.gaussians import gaussians
from invgnn.watermark.inputs import Inputs
from invgnn.watermark.mark import Watermark
from invgnn.watermark.mark_file import pack
from invgnn.watermark.public_features import Features
from invgnn.watermark.reference import Reference
from invgnn.watermark.score_channel import ScoreChannel
from invgnn.watermark.score_shift import beyond, follow, standing

CLOSE = 2e-8
"""Largest angle, in radians, whose cosine can round to 1."""


def law_by_cosine(cosine: float, dimension: int) -> float:
    """Return the log p-value of a direction as it was formerly computed, from one minus the cosine.

    Guarantee: none. Near 1 the cosine has lost the precision of the angle, and at 1 the p-value is the
    smallest double.

    Args:
        cosine: The cosine.
        dimension: Number of dimensions.
    """
    half = (dimension - 1) / 2
    tail = float(betainc(half, half, (1 - cosine) / 2))
    return math.log(tail) if tail > 0 else math.log(5e-324)


def followed(model: nn.Module, features: Features, inputs: Inputs, before: Floats, signs: Floats) -> Floats:
    """Return how strongly a model's answers follow each feature, with the baseline scores taken out.

    Args:
        model: The model.
        features: The public features.
        inputs: The inputs of the score channel.
        before: The baseline scores.
        signs: The direction in score space.
    """
    known = np.concatenate([features(batch).numpy() for batch in inputs.batches()])
    said = log_probabilities_of(model, inputs) @ (signs - signs.mean())
    return follow(known, beyond(standing(said), before))


class RoundCosine(Forgery):
    """Test baseline scores until the direction in a plane is so close that its cosine rounds to 1.

    This takes about 2^30 tests, which one machine can run. The forgery inserts the direction that they
    find.
    """

    fools = "score channel in two dimensions, p from one minus the cosine"
    stopped = (
        "at least 16 dimensions; p is computed from the distance, with all rounding errors added, and is "
        "never below 2^-112"
    )

    def forge(self, model: nn.Module, task: Task) -> Forged:
        """Find the direction of the model's answers in the plane of the first two features."""
        inputs, other = Inputs(task.data), fresh_twin(model)
        wide = Features.fit(next(inputs.batches(None)), inputs.level, laws.LEAST_DIMENSION)
        plane = replace(wide, axes=wide.axes[:, :2], sizes=wide.sizes[:2])
        how: dict[str, Any] = {"m": 16, "access": "logits", "sampler": KEPT}
        reference = Reference.of(task.data)
        mark = Watermark.draw(self.secret(), reference, score_channel=laws.LEAST_DIMENSION, **how)
        signs = mark.direction("logits", task.num_classes).numpy()
        found = followed(model, plane, inputs, log_probabilities_of(other, inputs), signs)
        cosine, tried = _nearest(found)
        narrow = {**mark.context, "function": 2}
        return Forged(
            accused=model,
            naive=Naive(self.fools, laws.log_p_combined(law_by_cosine(cosine, 2), 0.0)),
            attempts=(
                lambda: verify(model, Watermark.draw(self.secret(), reference, score_channel=2, **how)),
                lambda: verify(model, replace(mark, context=narrow), data=task.data),
                lambda: _from_file(model, mark.with_baseline(other, task.data), narrow, task.data),
            ),
            tried=tried,
            mark=mark,
        )

    def __repr__(self) -> str:
        """Return the name in tables and test ids."""
        return "round a cosine"


def _nearest(found: Floats) -> tuple[float, int]:
    """Return the best cosine that a direction can have, and the expected number of tests to find one."""
    at, size = math.atan2(found[1], found[0]), float(np.linalg.norm(found))
    angles = at + np.linspace(-CLOSE, CLOSE, 4096)
    shadows = np.stack([np.cos(angles), np.sin(angles)], axis=1) * np.linspace(1, 2, 4096)[:, None]
    directions = shadows / np.linalg.norm(shadows, axis=1, keepdims=True)
    cosines = np.minimum(1.0, directions @ found / size)
    best = float(cosines.max())
    share = float(np.mean(cosines == best)) * 2 * CLOSE / (2 * math.pi)
    return best, math.ceil(1 / share)


def _from_file(model: nn.Module, mark: Watermark, context: dict[str, Any], data: Any) -> Verdict:
    """Verify with a file of the mark that contains another context."""
    body, tensors = pack({one.name: getattr(mark, one.name) for one in fields(mark)}, mark.digest)
    with scratch("narrow.mark") as path:
        container.write(path, "mark", {**body, "context": context}, tensors, private=True)
        return verify(model, Watermark.load(path), data=data)


class GrindScores(Forgery):
    """Change the last baseline score by one unit in the last place, many times, and keep the best result.

    Every change gives a new key and a new direction. The scores stay those of an honest model to fifteen
    digits.

    Args:
        tries: Number of variants.
        m: Number of carriers.
        score_channel: Features of the score channel; the default is the smallest number that a mark may
            have.
        alpha: Significance level.
    """

    fools = "p ≤ α, with baseline scores that are revealed only afterwards"
    stopped = (
        "owned requires 80 bits, or a claim older than the suspect; key and direction are derived together"
    )

    def __init__(
        self,
        tries: int = 4096,
        m: int = 128,
        score_channel: int = laws.LEAST_DIMENSION,
        alpha: float = 1e-2,
    ) -> None:
        self.tries, self.m, self.score_channel, self.alpha = tries, m, score_channel, alpha

    def forge(self, model: nn.Module, task: Task) -> Forged:
        """Keep the variant with the smallest combined p-value of both channels."""
        how: dict[str, Any] = {"m": self.m, "access": "logits", "statistic": "matches", "sampler": KEPT}
        drawn = Watermark.draw(self.secret(), task.data, score_channel=self.score_channel, **how)
        mark = drawn.with_baseline(fresh_twin(model), task.data)
        log_p, baseline = min(self._ground(model, mark, task), key=lambda found: found[0])
        ground = replace(mark, baseline=baseline)
        return Forged(
            accused=model,
            naive=Naive(self.fools, log_p, self.alpha),
            attempts=(lambda: verify(model, ground, self.alpha, data=task.data),),
            tried=self.tries,
            mark=ground,
        )

    def _ground(self, model: nn.Module, mark: Watermark, task: Task) -> Iterator[tuple[float, Baseline]]:
        """Yield the log p-value and the baseline of every variant."""
        channel, said = mark.channel(task.data), mark.read(model).carriers
        signs = mark.direction("logits", task.num_classes).numpy()
        found = followed(model, channel.features, channel.inputs, channel.before, signs)
        asked = mark.questions.digest
        for baseline in _neighbours(mark.baseline, self.tries):
            parts = (mark.bound, asked, baseline.digest())
            bits = mark.secret.derive("bits", *parts).balanced(mark.m)
            carriers = evidence_of(said, bits, mark.context["statistic"]).log_p
            chord = _distance(found, mark, channel, parts)
            yield laws.log_p_channels([carriers, laws.log_p_chord(chord, self.score_channel)]), baseline

    def __repr__(self) -> str:
        """Return the name in tables and test ids."""
        return f"grind {self.tries} remembered scores"


def _neighbours(baseline: Baseline | None, tries: int) -> Iterator[Baseline]:
    """Yield baselines whose last score differs by a few units in the last place."""
    if baseline is not None:
        for number in range(tries):
            scores: NDArray[np.float64] = baseline.scores.copy()
            scores.view(np.int64)[-1, -1] += number
            yield Baseline(scores, baseline.inputs)


def _distance(found: Floats, mark: Watermark, channel: ScoreChannel, parts: tuple[str, ...]) -> float:
    """Return the distance between the direction derived from some parts and that of the answers."""
    axes = channel.features.axes.numpy()
    shadow = axes.T @ gaussians(mark.secret.derive("function", *parts), len(axes))
    apart = found / np.linalg.norm(found) - shadow / np.linalg.norm(shadow)
    return float(np.linalg.norm(apart)) + channel.slack
