"""Close calls of the second channel: a cosine that rounds to one, remembered scores tried one by one."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import betainc
from torch import nn

from invgnn import files, null
from invgnn.carriers import Reference
from invgnn.channel import Channel, Memory, beyond, follow, gaussians, said_of, standing
from invgnn.edits.layers import fresh_twin
from invgnn.features import Features
from invgnn.forgeries.forgery import KEPT, Forged, Forgery, Naive, scratch
from invgnn.graphs import Floats
from invgnn.inputs import Inputs
from invgnn.storage import pack
from invgnn.tasks import Task
from invgnn.verdict import Verdict, verify
from invgnn.watermark import Watermark, digest_questions, encode_questions

CLOSE = 2e-8
"""Beyond this angle no cosine rounds to one."""


def law_by_cosine(cosine: float, dimension: int) -> float:
    """Return the log p-value of a direction as it was once computed, from one minus the cosine.

    Guarantee: none. Near one a cosine has lost what the angle tells, and at one the p-value is the least
    double there is.
    """
    half = (dimension - 1) / 2
    tail = float(betainc(half, half, (1 - cosine) / 2))
    return math.log(tail) if tail > 0 else math.log(5e-324)


def followed(model: nn.Module, features: Features, inputs: Inputs, before: Floats, signs: Floats) -> Floats:
    """Return how strongly a model's answers follow each feature, what was said before taken out."""
    known = np.concatenate([features(batch).numpy() for batch in inputs.batches()])
    said = said_of(model, inputs) @ (signs - signs.mean())
    return follow(known, beyond(standing(said), before))


class RoundCosine(Forgery):
    """Try remembered scores until the direction in a plane comes so close that its cosine rounds to one.

    It takes some 2^30 tries, which one machine can make. The direction that they find is put in place here.
    """

    fools = "second channel in two dimensions, p from one minus the cosine"
    stopped = "16 dimensions at least; p from the distance, all rounding added, and never below 2^-112"

    def forge(self, model: nn.Module, task: Task) -> Forged:
        """Look where the model's answers lie in the plane of the first two features."""
        inputs, other = Inputs(task.data), fresh_twin(model)
        wide = Features.fit(next(inputs.batches(None)), inputs.level, null.LEAST_DIMENSION)
        plane = replace(wide, axes=wide.axes[:, :2], sizes=wide.sizes[:2])
        how: dict[str, Any] = {"m": 16, "access": "logits", "sampler": KEPT}
        reference = Reference.of(task.data)
        mark = Watermark.draw(self.secret(), reference, function=null.LEAST_DIMENSION, **how)
        signs = mark.direction("logits", task.num_classes).numpy()
        found = followed(model, plane, inputs, said_of(other, inputs), signs)
        cosine, tried = _nearest(found)
        narrow = {**mark.context, "function": 2}
        return Forged(
            accused=model,
            naive=Naive(self.fools, null.log_p_combined(law_by_cosine(cosine, 2), 0.0)),
            attempts=(
                lambda: verify(model, Watermark.draw(self.secret(), reference, function=2, **how)),
                lambda: verify(model, replace(mark, context=narrow), data=task.data),
                lambda: _from_file(model, mark.remember(other, task.data), narrow, task.data),
            ),
            tried=tried,
            mark=mark,
        )

    def __repr__(self) -> str:
        return "round a cosine"


def _nearest(found: Floats) -> tuple[float, int]:
    """The best cosine that a direction can have, and how many tries it takes on average to meet one."""
    at, size = math.atan2(found[1], found[0]), float(np.linalg.norm(found))
    angles = at + np.linspace(-CLOSE, CLOSE, 4096)
    shadows = np.stack([np.cos(angles), np.sin(angles)], axis=1) * np.linspace(1, 2, 4096)[:, None]
    directions = shadows / np.linalg.norm(shadows, axis=1, keepdims=True)
    cosines = np.minimum(1.0, directions @ found / size)
    best = float(cosines.max())
    share = float(np.mean(cosines == best)) * 2 * CLOSE / (2 * math.pi)
    return best, math.ceil(1 / share)


def _from_file(model: nn.Module, mark: Watermark, context: dict[str, Any], data: Any) -> Verdict:
    """Verify with a file of the mark in which another context is written."""
    body, tensors = pack(mark)
    with scratch("narrow.mark") as path:
        files.write(path, "mark", {**body, "context": context}, tensors, private=True)
        return verify(model, Watermark.load(path), data=data)


class GrindScores(Forgery):
    """Change the last remembered score by one unit in the last place, again and again, and keep the best.

    Every change draws key and direction anew. The scores stay those of an honest model to fifteen digits.

    tries     how many scores
    function  features of the second channel: the fewest that a mark may have
    """

    fools = "p ≤ α, the remembered scores shown only afterwards"
    stopped = "owned needs 80 bits, or a claim older than the suspect; key and direction are drawn together"

    def __init__(
        self,
        tries: int = 4096,
        m: int = 128,
        function: int = null.LEAST_DIMENSION,
        alpha: float = 1e-2,
    ) -> None:
        self.tries, self.m, self.function, self.alpha = tries, m, function, alpha

    def forge(self, model: nn.Module, task: Task) -> Forged:
        """Keep the best of both channels together."""
        how: dict[str, Any] = {"m": self.m, "access": "logits", "statistic": "matches", "sampler": KEPT}
        drawn = Watermark.draw(self.secret(), task.data, function=self.function, **how)
        mark = drawn.remember(fresh_twin(model), task.data)
        log_p, memory = min(self._ground(model, mark, task), key=lambda found: found[0])
        ground = replace(mark, memory=memory)
        return Forged(
            accused=model,
            naive=Naive(self.fools, log_p, self.alpha),
            attempts=(lambda: verify(model, ground, self.alpha, data=task.data),),
            tried=self.tries,
            mark=ground,
        )

    def _ground(self, model: nn.Module, mark: Watermark, task: Task) -> Iterator[tuple[float, Memory]]:
        """The log p-value of every try, and what it remembers."""
        channel, said = mark.channel(task.data), mark.read(model).carriers
        signs = mark.direction("logits", task.num_classes).numpy()
        found = followed(model, channel.features, channel.inputs, channel.before, signs)
        asked = digest_questions(encode_questions(mark.carriers, mark.ordinary, mark.labels))
        for memory in _neighbours(mark.memory, self.tries):
            parts = (mark.bound, asked, memory.digest())
            bits = mark.secret.derive("bits", *parts).balanced(mark.m)
            carriers = null.log_p(said, bits, mark.context["statistic"]).log_p
            chord = _distance(found, mark, channel, parts)
            yield null.log_p_channels([carriers, null.log_p_chord(chord, self.function)]), memory

    def __repr__(self) -> str:
        return f"grind {self.tries} remembered scores"


def _neighbours(memory: Memory | None, tries: int) -> Iterator[Memory]:
    """Memories whose last score differs by a few units in the last place."""
    if memory is not None:
        for number in range(tries):
            scores: NDArray[np.float64] = memory.scores.copy()
            scores.view(np.int64)[-1, -1] += number
            yield Memory(scores, memory.inputs)


def _distance(found: Floats, mark: Watermark, channel: Channel, parts: tuple[str, ...]) -> float:
    """How far the direction that derives from some parts is from what a model follows."""
    axes = channel.features.axes.numpy()
    shadow = axes.T @ gaussians(mark.secret.derive("function", *parts), len(axes))
    apart = found / np.linalg.norm(found) - shadow / np.linalg.norm(shadow)
    return float(np.linalg.norm(apart)) + channel.slack
