"""Inputs that are different for a model and equal for a text digest: two data sets with one digest."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch_geometric.data import Data

from invgnn.attacks.forgery.forgery import Forged, Forgery, Naive
from invgnn.attacks.forgery.rounding import law_by_cosine
from invgnn.audit.verify import verify
from invgnn.errors import ParameterError
from invgnn.graphs.disjoint_union import Bools, Floats
from invgnn.stats import laws
from invgnn.training.tasks import Task
from invgnn.watermark.baseline import Baseline, log_probabilities_of
from invgnn.watermark.inputs import Inputs
from invgnn.watermark.mark import Watermark
from invgnn.watermark.reference import Reference
from invgnn.watermark.score_channel import ScoreChannel
from invgnn.watermark.score_shift import ScoreShift, beyond, follow, standing

LARGEST = 127
"""Largest number of nodes of a graph with a twin; its bytes must be valid in an attribute's name."""
NODES, LOOPS = 8, 64
"""Number of nodes that are tested for self-loops, and number of loops in the test."""
COUNTS = np.round(np.geomspace(48, 160, 16)).astype(np.int64)
"""Numbers of self-loops to choose from."""
GOALS = (4, 10)
"""The two entries of `COUNTS` whose median answers are the targets for every graph."""


def digest_by_text(data: Sequence[Data]) -> str:
    """Return the former digest of inputs: names, types, shapes and bytes, without separation by lengths.

    Guarantee: none. A name can contain the text of a tensor, so different inputs can have the same digest.
    """
    held = hashlib.sha256()
    for graph in data:
        for name, value in sorted(graph.to_dict().items()):
            held.update(f"{name};".encode() + _as_text(value))
        held.update(b"|")
    return held.hexdigest()


def _as_text(value: Any) -> bytes:
    """Return the text of a value in the former digest."""
    if not isinstance(value, Tensor):
        return f"{value!r};".encode()
    about = f"{value.dtype};{tuple(value.shape)};".encode()
    return about + value.contiguous().view(-1).view(torch.uint8).numpy().tobytes()


def twins(x: Tensor, one: Tensor, other: Tensor) -> tuple[Data, Data]:
    """Return two graphs with these features, different edges, and the same text for the digest.

    The first contains the other's edges as bytes of an unused attribute. The second has an attribute whose
    *name* is the text of the first's edges.

    Args:
        x: The node features.
        one: Edges of the first graph.
        other: Edges of the second graph.
    """
    hidden = b"q;1;edge_index;" + _as_text(other)
    first, second = Data(x=x, edge_index=one), Data(x=x, edge_index=other)
    first["a"] = 1
    first["f"] = torch.frombuffer(bytearray(hidden), dtype=torch.uint8)
    name = b"a;1;edge_index;" + _as_text(one) + f"f;torch.uint8;({len(hidden)},);q".encode()
    second[name.decode()] = 1
    return first, second


class Dull(nn.Module):
    """A model that returns the same scores for every graph: a baseline without effect on the regression.

    Args:
        classes: Number of classes.
    """

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.scores = nn.Parameter(torch.zeros(1, classes))

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:
        """Return the same scores for all graphs."""
        return self.scores.expand(int(batch.max()) + 1, -1)


class TwinInputs(Forgery):
    """Fix key and direction first, then choose for every graph the twin that shifts the scores along it.

    Both twins have the same nodes, features and proper edges. They differ in the number of self-loops of
    one node, which the reference data drop and a model uses.

    Args:
        score_channel: Features of the score channel.
        rounds: How often the features are fitted to the choice, and the choice is improved.
        steps: Steps of the search in every round.
    """

    fools = "score channel, inputs bound by the digest of a text, p ≤ α"
    stopped = (
        "inputs are bound by canonical bytes and shown as decoded from them; attribute names must be "
        "identifiers"
    )

    def __init__(self, score_channel: int = 24, rounds: int = 2, steps: int = 500) -> None:
        self.score_channel, self.rounds, self.steps = score_channel, rounds, steps

    def forge(self, model: nn.Module, task: Task) -> Forged:
        """Give every graph a twin, draw the mark on one of the data sets, choose, and present the choice.

        Raises:
            ParameterError: If the task has only one graph.
        """
        if task.level != "graph":
            raise ParameterError("this forgery needs many graphs", "use a task with many graphs")
        graphs = [graph for graph in task.data if graph.num_nodes <= LARGEST]
        how: dict[str, Any] = {"m": 16, "access": "logits", "score_channel": self.score_channel}
        mark = Watermark.draw(self.secret(), graphs, **how)  # drawn by the rules
        pairs = _Pairs.make(model, graphs, mark.direction("logits", task.num_classes).numpy())
        first, dull = pairs.free & (np.arange(len(pairs)) % 2 == 1), Dull(task.num_classes)
        before = log_probabilities_of(dull, pairs.shown(first))
        chosen, channel = first, pairs.channel(mark, first, before)
        for _ in range(self.rounds):
            chosen = self._climb(pairs, channel)
            channel = pairs.channel(mark, chosen, before)
        shift = channel.measure(log_probabilities_of(model, pairs.shown(chosen)))
        alike = pairs.digest(first) == pairs.digest(chosen)
        bound, old = (
            mark.with_baseline(dull, pairs.shown(first)),
            _of_format_1(mark, dull, pairs.shown(first)),
        )
        return Forged(
            accused=model,
            naive=Naive(self.fools, _believed(shift) if alike else 0.0),
            attempts=(
                lambda: verify(model, mark.with_baseline(dull, pairs.held(first)), data=pairs.held(chosen)),
                lambda: verify(model, bound, data=pairs.held(chosen)),
                lambda: verify(model, bound, data=pairs.shown(chosen)),
                lambda: verify(model, old, data=pairs.held(chosen)),
                lambda: verify(model, old, data=pairs.shown(chosen)),
                lambda: verify(
                    model, mark.with_baseline(dull, pairs.shown(chosen)), data=pairs.shown(chosen)
                ),
            ),
            mark=bound,
        )

    def _climb(self, pairs: _Pairs, channel: ScoreChannel) -> Bools:
        """Choose twins whose answers follow the direction, with the axes of the features fixed."""
        low, high = (
            np.concatenate([channel.features(batch).numpy() for batch in Inputs(side).batches()])
            for side in (pairs.low, pairs.high)
        )

        def follows(chosen: Bools) -> float:
            said = standing(np.where(chosen, pairs.answers[1], pairs.answers[0]))
            found = follow(np.where(chosen[:, None], high, low), beyond(said, channel.before))
            return float(found @ channel.direction / np.linalg.norm(found))

        rng, along = np.random.default_rng(self.seed), (low + high) @ channel.direction
        chosen = (along > np.median(along)) & pairs.free
        best, free = follows(chosen), np.flatnonzero(pairs.free)
        for _ in range(self.steps):
            other = chosen.copy()
            other[rng.choice(free, rng.integers(1, 3))] ^= True
            value = follows(other)
            if value > best:
                best, chosen = value, other
        return np.asarray(chosen)

    def __repr__(self) -> str:
        """Return the name in tables and test ids."""
        return "twin inputs"


class _Pairs:
    """Two forms of every graph, one with a low answer of the model and one with a high answer."""

    def __init__(self, low: list[Data], high: list[Data], answers: Floats) -> None:
        self.low, self.high, self.answers = low, high, answers
        self.free = answers[0] < answers[1]
        self.free[0] = False  # a batch has the attributes of its first graph only
        self.twins = [
            twins(a.x, a.edge_index, b.edge_index) for a, b in zip(self.low, self.high, strict=True)
        ]

    @classmethod
    def make(cls, model: nn.Module, graphs: list[Data], signs: Floats) -> _Pairs:
        """Add self-loops where they raise the answer, as many as bring it to one of two targets."""
        rows = np.arange(len(graphs))

        def said(places: NDArray[Any], loops: int) -> Floats:
            scores = log_probabilities_of(model, _looped(graphs, places, np.full(len(graphs), loops)))
            return np.asarray(scores @ (signs - signs.mean()))

        tried = np.array([said(np.full(len(graphs), node), LOOPS) for node in range(NODES)])
        most, least = tried.argmax(0), tried.argmin(0)
        rising = abs(np.median(tried[most, rows])) > abs(np.median(tried[least, rows]))
        places = most if rising else least
        found = np.array([said(places, loops) for loops in COUNTS.tolist()])
        rng = np.random.default_rng(0)  # targets vary, so that ranks do not depend on the graphs
        goals = sorted(float(np.median(found[place])) for place in GOALS)
        sides = [np.abs(found - goal * rng.uniform(0.7, 1.3, len(graphs))).argmin(0) for goal in goals]
        low, high = (_looped(graphs, places, COUNTS[side]) for side in sides)
        return cls(low, high, np.stack([found[side, rows] for side in sides]))

    def __len__(self) -> int:
        return len(self.low)

    def shown(self, chosen: Bools) -> list[Data]:
        """Return a choice of twins as it was shown to a suspect: features and edges alone."""
        return [self.high[i] if one else self.low[i] for i, one in enumerate(chosen)]

    def held(self, chosen: Bools) -> list[Data]:
        """Return the same choice as data, whose text digest is the same for every choice."""
        return [self.low[0], *(self.twins[i][int(one)] for i, one in enumerate(chosen) if i)]

    def digest(self, chosen: Bools) -> str:
        """Return the text digest of a choice."""
        return digest_by_text(self.held(chosen))

    def channel(self, mark: Watermark, chosen: Bools, before: NDArray[np.float64]) -> ScoreChannel:
        """Return the former score channel, whose direction is derived from the text digest."""
        held = Baseline(before, self.digest(chosen)).digest(1)
        asked = [mark.carriers.digest_1(), mark.ordinary.digest_1(), held]
        stream = mark.secret.derive("function", mark.bound, *asked)
        size = mark.context["function"]
        return ScoreChannel.draw(stream, mark.direction, self.shown(chosen), size, 1.0, before, 1)


def _looped(graphs: list[Data], places: NDArray[Any], loops: NDArray[Any]) -> list[Data]:
    """Return graphs with self-loops at one node each."""
    made = []
    for graph, place, count in zip(graphs, places.tolist(), loops.tolist(), strict=True):
        loop = torch.full((2, count), min(place, graph.num_nodes - 1))
        made.append(Data(x=graph.x, edge_index=torch.cat([graph.edge_index, loop], dim=1)))
    return made


def _believed(shift: ScoreShift) -> float:
    """Return the log p-value of a score shift by the former law."""
    both = (law_by_cosine(cosine, shift.dimension) for cosine in (shift.cosine, shift.within))
    return laws.log_p_combined(*both)


def _of_format_1(mark: Watermark, model: nn.Module, data: list[Data]) -> Watermark:
    """Return the mark in format 1, in which inputs have a text digest, bound to data."""
    context = {name: value for name, value in mark.context.items() if name != "classes"}
    context |= {"format": 1, "reference": Reference.of(data, 1).digest}
    baseline = Baseline.of(model, data, version=1)
    return replace(mark, context=context, labels=None, baseline=baseline)
