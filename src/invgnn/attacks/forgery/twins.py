"""Inputs that look different to a model and alike to a digest: two data sets in one."""

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
from invgnn.watermark.reference import Reference
from invgnn.watermark.inputs import Inputs
from invgnn.watermark.mark import Watermark
from invgnn.watermark.score_channel import ScoreChannel
from invgnn.watermark.score_shift import ScoreShift, beyond, follow, standing
from invgnn.watermark.baseline import Baseline, log_probabilities_of

LARGEST = 127
"""Nodes of a graph that has a twin: larger numbers would not do as part of an attribute's name."""
NODES, LOOPS = 8, 64
"""How many nodes are tried for the self-loops, and with how many loops."""
COUNTS = np.round(np.geomspace(48, 160, 16)).astype(np.int64)
"""Numbers of self-loops to choose from."""
GOALS = (4, 10)
"""The two of them whose usual answers every graph is brought to, as closely as it can be."""


def digest_by_text(data: Sequence[Data]) -> str:
    """Return the digest that inputs once had: names, types, shapes and bytes, nothing between them.

    Guarantee: none. A name may contain what looks like a tensor, so different inputs share a digest.
    """
    held = hashlib.sha256()
    for graph in data:
        for name, value in sorted(graph.to_dict().items()):
            held.update(f"{name};".encode() + _as_text(value))
        held.update(b"|")
    return held.hexdigest()


def _as_text(value: Any) -> bytes:
    if not isinstance(value, Tensor):
        return f"{value!r};".encode()
    about = f"{value.dtype};{tuple(value.shape)};".encode()
    return about + value.contiguous().view(-1).view(torch.uint8).numpy().tobytes()


def twins(x: Tensor, one: Tensor, other: Tensor) -> tuple[Data, Data]:
    """Return two graphs with these features, different edges, and one text to be hashed.

    The first holds the other's edges as bytes of an attribute that nobody reads. The second has an
    attribute whose *name* is the text of the first's edges.
    """
    hidden = b"q;1;edge_index;" + _as_text(other)
    first, second = Data(x=x, edge_index=one), Data(x=x, edge_index=other)
    first["a"] = 1
    first["f"] = torch.frombuffer(bytearray(hidden), dtype=torch.uint8)
    name = b"a;1;edge_index;" + _as_text(one) + f"f;torch.uint8;({len(hidden)},);q".encode()
    second[name.decode()] = 1
    return first, second


class Dull(nn.Module):
    """A model that says the same of every graph: a baseline that takes nothing out of another's answers."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.scores = nn.Parameter(torch.zeros(1, classes))

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:
        """The same scores for all."""
        return self.scores.expand(int(batch.max()) + 1, -1)


class TwinInputs(Forgery):
    """Fix key and direction first; then choose, graph by graph, the twin that makes the model lean.

    Both twins have the same nodes, features and proper edges. They differ in how many self-loops one node
    has, which the reference drops and a model sees.

    score_channel  features of the score channel
    rounds    how often the features are fitted to the choice, and the choice improved
    steps     of the climb in every round
    """

    fools = "score channel, inputs bound by the digest of a text, p ≤ α"
    stopped = (
        "inputs are bound by their canonical bytes and shown as decoded from them; odd names are refused"
    )

    def __init__(self, score_channel: int = 24, rounds: int = 2, steps: int = 500) -> None:
        self.score_channel, self.rounds, self.steps = score_channel, rounds, steps

    def forge(self, model: nn.Module, task: Task) -> Forged:
        """Give every graph a twin, draw the mark on any of the data sets, choose, and show the choice."""
        if task.level != "graph":
            raise ParameterError("one graph leaves nothing to choose", "forge on a task of many graphs")
        graphs = [graph for graph in task.data if graph.num_nodes <= LARGEST]
        how: dict[str, Any] = {"m": 16, "access": "logits", "score_channel": self.score_channel}
        mark = Watermark.draw(self.secret(), graphs, **how)  # drawn as anybody would
        pairs = _Pairs.make(model, graphs, mark.direction("logits", task.num_classes).numpy())
        first, dull = pairs.free & (np.arange(len(pairs)) % 2 == 1), Dull(task.num_classes)
        before = log_probabilities_of(dull, pairs.shown(first))
        chosen, channel = first, pairs.channel(mark, first, before)
        for _ in range(self.rounds):
            chosen = self._climb(pairs, channel)
            channel = pairs.channel(mark, chosen, before)
        lean = channel.measure(log_probabilities_of(model, pairs.shown(chosen)))
        alike = pairs.digest(first) == pairs.digest(chosen)
        bound, old = (
            mark.with_baseline(dull, pairs.shown(first)),
            _of_format_1(mark, dull, pairs.shown(first)),
        )
        return Forged(
            accused=model,
            naive=Naive(self.fools, _believed(lean) if alike else 0.0),
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
        """The twins whose answers follow the direction, the features' axes held fixed."""
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
        return "twin inputs"


class _Pairs:
    """For every graph two forms, one that the model answers low and one that it answers high."""

    def __init__(self, low: list[Data], high: list[Data], answers: Floats) -> None:
        self.low, self.high, self.answers = low, high, answers
        self.free = answers[0] < answers[1]
        self.free[0] = False  # the attributes of the first graph were all that a batch showed
        self.twins = [
            twins(a.x, a.edge_index, b.edge_index) for a, b in zip(self.low, self.high, strict=True)
        ]

    @classmethod
    def make(cls, model: nn.Module, graphs: list[Data], signs: Floats) -> _Pairs:
        """Put self-loops where they raise the answer, as many as bring it to one of two goals."""
        rows = np.arange(len(graphs))

        def said(places: NDArray[Any], loops: int) -> Floats:
            scores = log_probabilities_of(model, _looped(graphs, places, np.full(len(graphs), loops)))
            return np.asarray(scores @ (signs - signs.mean()))

        tried = np.array([said(np.full(len(graphs), node), LOOPS) for node in range(NODES)])
        most, least = tried.argmax(0), tried.argmin(0)
        rising = abs(np.median(tried[most, rows])) > abs(np.median(tried[least, rows]))
        places = most if rising else least
        found = np.array([said(places, loops) for loops in COUNTS.tolist()])
        rng = np.random.default_rng(0)  # goals vary, so that ranks do not follow the graphs
        goals = sorted(float(np.median(found[place])) for place in GOALS)
        sides = [np.abs(found - goal * rng.uniform(0.7, 1.3, len(graphs))).argmin(0) for goal in goals]
        low, high = (_looped(graphs, places, COUNTS[side]) for side in sides)
        return cls(low, high, np.stack([found[side, rows] for side in sides]))

    def __len__(self) -> int:
        return len(self.low)

    def shown(self, chosen: Bools) -> list[Data]:
        """A choice of twins, as a suspect was shown it: features and edges alone."""
        return [self.high[i] if one else self.low[i] for i, one in enumerate(chosen)]

    def held(self, chosen: Bools) -> list[Data]:
        """The same choice as data with one digest, whatever the choice."""
        return [self.low[0], *(self.twins[i][int(one)] for i, one in enumerate(chosen) if i)]

    def digest(self, chosen: Bools) -> str:
        return digest_by_text(self.held(chosen))

    def channel(self, mark: Watermark, chosen: Bools, before: NDArray[np.float64]) -> ScoreChannel:
        """The score channel as it was: its direction follows from the digest of a text."""
        held = Baseline(before, self.digest(chosen)).digest(1)
        asked = [mark.carriers.digest_1(), mark.ordinary.digest_1(), held]
        stream = mark.secret.derive("function", mark.bound, *asked)
        size = mark.context["function"]
        return ScoreChannel.draw(stream, mark.direction, self.shown(chosen), size, 1.0, before, 1)


def _looped(graphs: list[Data], places: NDArray[Any], loops: NDArray[Any]) -> list[Data]:
    """Graphs with self-loops at one node each."""
    made = []
    for graph, place, count in zip(graphs, places.tolist(), loops.tolist(), strict=True):
        loop = torch.full((2, count), min(place, graph.num_nodes - 1))
        made.append(Data(x=graph.x, edge_index=torch.cat([graph.edge_index, loop], dim=1)))
    return made


def _believed(lean: ScoreShift) -> float:
    """What the old law makes of a lean."""
    both = (law_by_cosine(cosine, lean.dimension) for cosine in (lean.cosine, lean.within))
    return laws.log_p_combined(*both)


def _of_format_1(mark: Watermark, model: nn.Module, data: list[Data]) -> Watermark:
    """The mark in format 1, whose inputs still have a digest of text, bound to data."""
    context = {name: value for name, value in mark.context.items() if name != "classes"}
    context |= {"format": 1, "reference": Reference.of(data, 1).digest}
    baseline = Baseline.of(model, data, version=1)
    return replace(mark, context=context, labels=None, baseline=baseline)
