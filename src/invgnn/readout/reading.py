"""From what a model shows to one answer per graph: four levels of access, and never the bits."""

from __future__ import annotations

import math
import re
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, Literal, Protocol, get_args

import torch
from torch import Tensor, nn
from torch.amp import is_autocast_available

from invgnn.checks import check_choice, check_whole
from invgnn.errors import ParameterError, SuspectError
from invgnn.nn.observation import PROBABILITY_FLOOR, Observation, full, log_scores, pool

Access = Literal["perception", "embedding", "logits", "labels"]
Feature = Literal["projection", "confidence"]

LAYER = re.compile(r"[\w.\-]{1,200}(:\w{0,8})?")
"""Names of modules; they stand in verdicts and pages, so nothing else is let through."""
MOST_CLASSES = 65_536


class Direction(Protocol):
    """Gives the secret's ±1 vector for an access level and a width, placed as `like` is."""

    def __call__(self, access: str, width: int, like: Tensor | None = None, /) -> Tensor: ...


@dataclass(frozen=True)
class Reading:
    """Where a suspect is read, fixed before anybody looks.

    access   what the suspect gives: `perception`, `embedding`, `logits` or `labels`
    layer    for `embedding` and `perception`: a module's name (its output), `"name:in"` (its input),
             or `"auto"`: the input of the last layer with weights that the model calls
    feature  for `logits`: the secret's `projection` of the scores, or the top class's `confidence`
    classes  for `labels`: how many there are, since a suspect may return bare label numbers
    """

    access: Access = "embedding"
    layer: str = "auto"
    feature: Feature = "projection"
    classes: int | None = None

    def __post_init__(self) -> None:
        check_choice("access", self.access, get_args(Access))
        check_choice("feature", self.feature, get_args(Feature))
        if type(self.layer) is not str or not LAYER.fullmatch(self.layer):
            raise ParameterError(
                "the layer is not the name of a module",
                "name it as model.named_modules() does, e.g. 'encoder.2', or use 'auto'",
            )
        if ":" in self.layer and self.layer.partition(":")[2] != "in":
            raise ParameterError(
                f"unknown side of the layer {self.layer!r}", "write 'name' (its output) or 'name:in'"
            )
        if self.classes is not None:
            check_whole("classes", self.classes, 1, MOST_CLASSES)
        if self.access == "labels" and (self.classes is None or self.classes < 2):
            raise ParameterError(
                f"labels of {self.classes or 'how many'} classes cannot be read",
                "pass classes=, the number of classes of the task",
            )

    @property
    def hidden(self) -> bool:
        """Whether this reading needs to see inside the model."""
        return self.access in {"perception", "embedding"}

    @property
    def binary(self) -> bool:
        """Whether answers are decoded at one half instead of at their own median."""
        return self.access in {"perception", "labels"}

    @classmethod
    def recall(cls, record: dict[str, Any]) -> Reading:
        """Return the reading of a record.

        Raises:
            ParameterError: If the record is not exactly what `record` writes for some reading.
        """
        if not set(record) <= {"access", "layer", "feature", "classes"}:
            raise ParameterError("a reading has unknown fields", "draw the mark anew")
        found = cls(**record)
        if found.record() != record:
            raise ParameterError("a reading has fields that its access level lacks", "draw the mark anew")
        return found

    def record(self) -> dict[str, Any]:
        """The reading as plain values, for context and report."""
        kept: dict[str, Any] = {"access": self.access}
        if self.hidden:
            kept["layer"] = self.layer
        if self.access == "logits":
            kept["feature"] = self.feature
        if self.access == "labels":
            kept["classes"] = self.classes
        return kept


def answer(seen: Observation, reading: Reading, direction: Direction, model: Any = None) -> Tensor:
    """The answer of every graph in a batch, differentiable (for `labels`: the log-odds behind it).

    Guarantee: depends on the suspect and on the secret's `projection` stream only, never on the bits.
    """
    if reading.access == "perception":
        head, rows = head_of(model), pooled(seen, reading)
        with _uncast(rows):
            return full(head(rows.to(next(head.parameters(), rows).dtype))).view(-1)
    if reading.access == "labels":
        return _label_odds(seen, direction)
    if reading.access == "logits" and reading.feature == "confidence":
        return _confidence(seen)
    rows = pooled(seen, reading)
    width = rows.shape[1]
    signs = direction(reading.access, width, rows)
    if reading.access == "logits" and width % 2:  # orthogonal to 1: logits and log-probabilities read alike
        signs = signs - signs.mean()
    with _uncast(rows):
        return torch.mv(rows, signs).div(float(width) ** 0.5)


def _uncast(like: Tensor) -> AbstractContextManager[Any]:
    """A block in which autocast does not halve what is computed from a model's output."""
    place = like.device.type
    halved = is_autocast_available(place) and torch.is_autocast_enabled(place)
    return torch.autocast(place, enabled=False) if halved else nullcontext()


def pooled(seen: Observation, reading: Reading) -> Tensor:
    """One row per graph: its embedding, or its log-probabilities."""
    return seen.embeddings if reading.hidden else seen.log_probabilities


def natural_spread(seen: Observation, reading: Reading, rows: slice) -> Tensor:
    """The standard deviation of the answers of some graphs along a random direction, without gradient."""
    values = pooled(seen, reading).detach()[rows]
    return torch.as_tensor(torch.linalg.vector_norm(values - values.mean(0)) / math.sqrt(values.numel()))


def _label_odds(seen: Observation, direction: Direction) -> Tensor:
    logs = log_scores(seen.scores).log_softmax(-1)
    chosen = (direction("labels", logs.shape[1]) > 0).to(logs.device)
    odds = logs[:, chosen].logsumexp(-1) - logs[:, ~chosen].logsumexp(-1)
    return pool(odds, seen.batch).view(-1)


def _confidence(seen: Observation) -> Tensor:
    top = log_scores(seen.scores).log_softmax(-1).max(-1).values
    odds = top - torch.log1p(-top.exp().clamp(max=1 - PROBABILITY_FLOOR))
    return pool(odds, seen.batch).view(-1)


def label_answer(seen: Observation, direction: Direction) -> Tensor:
    """1 where the top label (for nodes: the majority's) is in the secret's half of the classes."""
    scores = log_scores(seen.scores)
    classes = scores.shape[1]
    votes = nn.functional.one_hot(scores.argmax(-1), classes).float()
    label = pool(votes, seen.batch).argmax(-1)
    return (direction("labels", classes) > 0).to(label.device)[label].float()


def head_of(model: Any) -> nn.Module:
    """The head inside a model that carries one."""
    head = getattr(model, "perception", None)
    if not isinstance(head, nn.Module):
        raise SuspectError(
            "this model has no perception head",
            "attach one with invgnn.attach_head(model, width), or read at access='embedding'",
        )
    return head


NATURAL_SHARE = 0.25
"""Least spread that answers are measured by, as a share of the spread along a random direction."""


def standardise(answers: Tensor, ordinary: Tensor, natural: Tensor | float = 0.0) -> Tensor:
    """Answers in standard deviations from the model's own ordinary answers.

    Differentiable in both, so moving or stretching all answers together gains nothing and the loss
    cannot drive embeddings away; the `natural` spread along other directions is a floor, so shrinking
    the spread along this one gains nothing either.
    """
    spread, mean = torch.std_mean(ordinary, correction=0)
    with torch.no_grad():
        floor = 1e-3 * ordinary.abs().mean() + 1e-6
        floor = torch.maximum(floor, NATURAL_SHARE * torch.as_tensor(natural).to(floor))
        floor = floor if ordinary.numel() > 1 else torch.ones_like(floor)
    return (answers - mean) / torch.maximum(spread, floor)
