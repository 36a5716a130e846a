"""Compute one answer per graph from the output of a model, at five levels of access.

Answers never depend on the secret bits.
"""

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

Access = Literal["perception", "embedding", "logits", "labels", "values"]
"""The levels of access to a suspect."""
Feature = Literal["projection", "confidence"]
"""The features that can be read from logits."""

LAYER = re.compile(r"[\w.\-]{1,200}(:\w{0,8})?")
"""Names of modules. They appear in verdicts and pages, so no other text is accepted."""
MOST_CLASSES = 65_536
"""Largest number of classes."""


class Direction(Protocol):
    """A function that returns the secret ±1 vector of an access level and a width.

    The vector has the device and the precision of `like`.
    """

    def __call__(self, access: str, width: int, like: Tensor | None = None, /) -> Tensor:
        """Return the vector."""


@dataclass(frozen=True)
class Reading:
    """Where a suspect is read, declared before its answers are known.

    Attributes:
        access: What the suspect provides: `perception`, `embedding`, `logits` or `labels`; `values` for
            real-valued outputs, as of a regression, link scores or independent labels.
        layer: For `embedding` and `perception`: the name of a module (its output), `"name:in"` (its input),
            or `"auto"`: the input of the last layer with weights that the model calls.
        feature: For `logits`: the secret `projection` of the scores, or the `confidence` of the top class.
        classes: For `labels`: the number of classes, because a suspect may return label numbers only.

    Raises:
        ParameterError: If a field is invalid.
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
                "use a name from model.named_modules(), such as 'encoder.2', or 'auto'",
            )
        if ":" in self.layer and self.layer.partition(":")[2] != "in":
            raise ParameterError(
                f"unknown side of the layer {self.layer!r}", "write 'name' (its output) or 'name:in'"
            )
        if self.classes is not None:
            check_whole("classes", self.classes, 1, MOST_CLASSES)
        if self.access == "labels" and (self.classes is None or self.classes < 2):
            raise ParameterError(
                f"labels need at least 2 classes, but classes is {self.classes}",
                "pass classes=, the number of classes of the task",
            )

    @property
    def hidden(self) -> bool:
        """Whether this reading needs a hidden layer of the model."""
        return self.access in {"perception", "embedding"}

    @property
    def binary(self) -> bool:
        """Whether answers are decoded at one half instead of at their own median."""
        return self.access in {"perception", "labels"}

    @classmethod
    def recall(cls, record: dict[str, Any]) -> Reading:
        """Return the reading of a record that `record` returned.

        Raises:
            ParameterError: If the record is not exactly what `record` returns for some reading.
        """
        if not set(record) <= {"access", "layer", "feature", "classes"}:
            raise ParameterError("a reading has unknown fields", "draw the mark anew")
        found = cls(**record)
        if found.record() != record:
            raise ParameterError("a reading has fields that its access level lacks", "draw the mark anew")
        return found

    def record(self) -> dict[str, Any]:
        """Return the fields that matter at this access level, as plain values for context and report.

        Changing this breaks every mark in the field; golden vectors in the tests guard it.
        """
        kept: dict[str, Any] = {"access": self.access}
        if self.hidden:
            kept["layer"] = self.layer
        if self.access == "logits":
            kept["feature"] = self.feature
        if self.access == "labels":
            kept["classes"] = self.classes
        return kept


def answer(seen: Observation, reading: Reading, direction: Direction, model: Any = None) -> Tensor:
    """Compute the answer of every graph in a batch, differentiably (for `labels`: the log-odds).

    Guarantee: depends on the suspect and on the secret's `projection` stream only, never on the bits.

    Args:
        seen: The result of a forward pass.
        reading: Where to read.
        direction: The secret's vectors.
        model: The model, needed for `perception` only.

    Returns:
        One number per graph.

    Raises:
        SuspectError: If the model cannot be read there.
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
    width = rows.shape[1]  # one real-valued output is itself the answer, up to its sign
    signs = direction(reading.access, width, rows)
    if reading.access == "logits" and width % 2:
        # Orthogonal to 1: logits and log-probabilities give equal answers.
        signs = signs - signs.mean()
    with _uncast(rows):
        return torch.mv(rows, signs).div(float(width) ** 0.5)


def _uncast(like: Tensor) -> AbstractContextManager[Any]:
    """Return a context in which autocast does not reduce the precision of computations on an output."""
    place = like.device.type
    halved = is_autocast_available(place) and torch.is_autocast_enabled(place)
    return torch.autocast(place, enabled=False) if halved else nullcontext()


def pooled(seen: Observation, reading: Reading) -> Tensor:
    """Return one row per graph: its embedding, its values, or its log-probabilities.

    Args:
        seen: The result of a forward pass.
        reading: Where to read.
    """
    if reading.access == "values":
        return pool(real_values(seen.scores), seen.batch)
    return seen.embeddings if reading.hidden else seen.log_probabilities


def real_values(scores: Tensor) -> Tensor:
    """Return real-valued outputs, ready to be projected: a single output as it is.

    Several outputs may have different units, so each is divided by its own spread over all rows. If all
    of them lie in [0, 1], they are independent probabilities, and their log-odds are used: logits and
    probabilities then read alike.

    Guarantee: spread and form depend on the suspect's answers to carriers and ordinary inputs alone, never
    on the bits or on the marked original. Given the answers, the bits are a uniformly random balanced
    vector, so the null stays exact.

    Args:
        scores: The outputs, one row per graph or per node.
    """
    rows = full(scores)
    rows = rows.reshape(len(rows), -1)
    if rows.shape[1] == 1:
        return rows
    known = rows.detach()
    known = known[torch.isfinite(known).all(1)]
    if not len(known):
        return rows
    if bool(((known >= 0) & (known <= 1)).all()):
        rows, known = (torch.logit(each, eps=PROBABILITY_FLOOR) for each in (rows, known))
    spread = known.std(0, correction=0)
    return rows / torch.where(spread > 0, spread, torch.ones_like(spread))


def natural_spread(seen: Observation, reading: Reading, rows: slice) -> Tensor:
    """Return the standard deviation of answers along a random direction, without gradient.

    Args:
        seen: The result of a forward pass.
        reading: Where to read.
        rows: The graphs to use.
    """
    values = pooled(seen, reading).detach()[rows]
    return torch.as_tensor(torch.linalg.vector_norm(values - values.mean(0)) / math.sqrt(values.numel()))


def _label_odds(seen: Observation, direction: Direction) -> Tensor:
    """Return the log-odds that the label lies in the secret half of the classes."""
    logs = log_scores(seen.scores).log_softmax(1)
    chosen = (direction("labels", logs.shape[1]) > 0).to(logs.device)
    odds = logs[:, chosen].logsumexp(1) - logs[:, ~chosen].logsumexp(1)
    return pool(odds, seen.batch).view(-1)


def _confidence(seen: Observation) -> Tensor:
    """Return the log-odds of the top class."""
    top = log_scores(seen.scores).log_softmax(1).max(1).values
    odds = top - torch.log1p(-top.exp().clamp(max=1 - PROBABILITY_FLOOR))
    return pool(odds, seen.batch).view(-1)


def label_answer(seen: Observation, direction: Direction) -> Tensor:
    """Return 1 for graphs whose top label is in the secret half of the classes, else 0.

    For node scores, the label of a graph is that of the majority of its nodes.

    Args:
        seen: The result of a forward pass.
        direction: The secret's vectors.
    """
    scores = log_scores(seen.scores)
    classes = scores.shape[1]
    votes = nn.functional.one_hot(scores.argmax(1), classes).float()
    label = pool(votes, seen.batch).argmax(1)
    return (direction("labels", classes) > 0).to(label.device)[label].float()


def head_of(model: Any) -> nn.Module:
    """Return the perception head of a model.

    Raises:
        SuspectError: If the model has none.
    """
    head = getattr(model, "perception", None)
    if not isinstance(head, nn.Module):
        raise SuspectError(
            "this model has no perception head",
            "attach one with invgnn.attach_head(model, width), or read at access='embedding'",
        )
    return head


NATURAL_SHARE = 0.25
"""Smallest spread used by `standardise`, as a share of the spread along a random direction."""


def standardise(answers: Tensor, ordinary: Tensor, natural: Tensor | float = 0.0) -> Tensor:
    """Return answers in standard deviations from the model's own ordinary answers.

    The result is differentiable in both arguments: shifting or scaling all answers together has no effect,
    and the loss cannot move embeddings away. The `natural` spread along other directions sets a lower
    limit, so reducing the spread along this direction has no effect either.

    Args:
        answers: Answers on carriers.
        ordinary: Answers on ordinary inputs.
        natural: Spread of answers along a random direction.
    """
    spread, mean = torch.std_mean(ordinary, correction=0)
    with torch.no_grad():
        floor = 1e-3 * ordinary.abs().mean() + 1e-6
        floor = torch.maximum(floor, NATURAL_SHARE * torch.as_tensor(natural).to(floor))
        floor = floor if ordinary.numel() > 1 else torch.ones_like(floor)
    return (answers - mean) / torch.maximum(spread, floor)
