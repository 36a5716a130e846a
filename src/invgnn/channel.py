"""A second channel: on ordinary inputs, the scores of a marked model lean along a secret function.

What a model has learnt by heart about carriers need not pass to a student who never sees them; what it says
about the task's own inputs does. The secret picks a direction in a space of public features; the scores of
a marked model rise and fall along it, and so do those of whoever learns from them. What the model said
before it leaned is kept: against that even a faint lean shows.
"""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.ndimage import median_filter
from scipy.special import ndtri
from scipy.stats import rankdata
from torch import Tensor, nn
from torch_geometric.data import Batch

from invgnn import null
from invgnn.errors import DataError, ParameterError
from invgnn.features import Features
from invgnn.forward import Forward, call, one_tensor
from invgnn.query import Suspect, scores_on, without_gaps
from invgnn.reading import Direction, log_scores
from invgnn.secret import Stream

CHUNK = 1024
Scores: TypeAlias = NDArray[np.float64]


@dataclass(frozen=True)
class Lean:
    """How closely a suspect's scores follow the secret direction: the cosine between the two.

    `cosine` looks at all inputs together, `within` at differences among inputs of the same predicted class;
    the better of both counts, for one bit.

    Guarantee: if the direction is uniform on the sphere given the suspect's scores, the inputs and the
    remembered scores, Pr[p <= u] <= u for every u, whatever the model and the dependence among inputs.
    """

    cosine: float
    within: float
    dimension: int
    inputs: int

    @property
    def log_p(self) -> float:
        """Natural logarithm of the chance that a random direction comes as close."""
        one, other = (null.log_p_cosine(c, self.dimension) for c in (self.cosine, self.within))
        return null.log_p_combined(one, other)

    def bits(self, tried: int = 1) -> float:
        """Evidence in bits."""
        return null.evidence_bits(self.log_p, tried)


@dataclass(frozen=True, eq=False)
class Memory:
    """What a model said of inputs before it leaned, and the digest of those very inputs."""

    scores: Scores
    inputs: str

    def __post_init__(self) -> None:
        scores = np.array(self.scores)
        if scores.ndim != 2 or scores.dtype != np.float64 or 0 in scores.shape or scores.shape[1] < 2:
            raise ParameterError("remembered scores have a row per input and two classes at least")
        if not np.isfinite(scores).all():
            raise ParameterError("some remembered scores are NaN or infinite", "train it, then remember it")
        scores.setflags(write=False)
        object.__setattr__(self, "scores", scores)

    @classmethod
    def of(cls, model: Suspect, data: Any, forward: Forward | None = None) -> Memory:
        """Ask a model."""
        return cls(said_of(model, data, forward), digest_inputs(data))

    @property
    def digest(self) -> str:
        """Digest of the scores and of the inputs."""
        shape = ",".join(map(str, self.scores.shape))
        held = hashlib.sha256(f"{self.inputs};{shape};".encode())
        held.update(np.ascontiguousarray(self.scores, dtype="<f8").tobytes())
        return held.hexdigest()


def digest_inputs(data: Any) -> str:
    """Digest of all that a suspect is shown of inputs, value by value: what is not bound is not shown."""
    held = hashlib.sha256()
    for graph in _shown(data):
        for name, value in sorted(graph.to_dict().items()):
            held.update(f"{name};".encode() + _as_bytes(name, value))
        held.update(b"|")
    return held.hexdigest()


def _as_bytes(name: str, value: Any) -> bytes:
    if isinstance(value, Tensor) and value.layout == torch.strided:
        array = value.detach().cpu().contiguous()
        about = f"{array.dtype};{tuple(array.shape)};"
        return about.encode() + array.view(-1).view(torch.uint8).numpy().tobytes()
    if value is None or isinstance(value, bool | int | float | str):
        return f"{value!r};".encode()
    raise DataError(
        f"the inputs hold {name}, a {type(value).__name__}, which cannot be bound to a mark",
        "keep tensors and plain values in the data, and edges in edge_index",
    )


@dataclass(frozen=True, eq=False)
class Channel:
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

    @classmethod
    def draw(
        cls, stream: Stream, signs: Direction, data: Any, dimension: int, strength: float, before: Scores
    ) -> Channel:
        """The channel of a secret stream on the inputs of a task; the stream must be bound to `before`.

        The direction is the shadow of a vector that knows nothing of the features' axes, so it does not
        matter how a machine's linear algebra signs or turns them.
        """
        level = "node" if _one_graph(data) else "graph"
        features = Features.fit(next(_batches(data, None)), level, dimension)
        words = (stream.words(len(features.axes)) >> np.uint64(11)).astype(np.float64)
        shadow = features.axes.numpy().T @ ndtri((words + 0.5) / 2.0**53)
        return cls(features, shadow / np.linalg.norm(shadow), signs, strength, before)

    def along(self, batch: Any) -> Tensor:
        """How far every input lies along the direction, in standard deviations."""
        return self.features(batch) @ torch.from_numpy(self.direction)

    def lean(self, scores: Tensor, batch: Any) -> Tensor:
        """Scores, leaning: what a model marked at full strength would say."""
        signs = self.signs("logits", scores.shape[1]).to(scores)
        return scores + self.strength / 2 * torch.outer(self.along(batch).to(scores), signs)

    def leaning(self, teacher: nn.Module, forward: Forward | None = None) -> nn.Module:
        """A teacher who leans; distil it, for instance with `mark.refresh`, and the student is marked."""
        return _Leaning(self, teacher, forward)

    def read(self, suspect: Suspect, data: Any, forward: Forward | None = None) -> Lean:
        """Ask a suspect about the inputs that the mark was drawn from, and see how it leans."""
        known = np.concatenate([self.features(batch).numpy() for batch in _batches(data, CHUNK)])
        if len(known) != len(self.before):
            raise DataError(
                f"{len(known)} inputs, but {len(self.before)} are known from before the model leaned",
                "pass the data the mark was drawn from",
            )
        scores = said_of(suspect, data, forward)
        signs = self.signs("logits", scores.shape[1]).double().numpy()
        answers = standing(without_gaps(scores @ (signs - signs.mean())))
        answers = beyond(answers, self.before)
        within = answers - _means(answers, scores.argmax(1))
        return Lean(
            cosine=_cosine(follow(known, answers), self.direction),
            within=_cosine(follow(known, within), self.direction),
            dimension=self.features.dimension,
            inputs=len(answers),
        )


def said_of(suspect: Suspect, data: Any, forward: Forward | None = None) -> Scores:
    """The log-probabilities that a suspect gives the classes of every input [inputs, classes]."""
    said = [log_scores(scores_on(suspect, batch, forward)) for batch in _batches(data, CHUNK)]
    return np.asarray(torch.cat(said).log_softmax(-1).numpy(), dtype=np.float64)


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


def _cosine(found: NDArray[np.float64], direction: NDArray[np.float64]) -> float:
    size = float(np.linalg.norm(found))
    return min(1.0, max(-1.0, float(found @ direction) / size)) if size > 1e-9 else 0.0


class _Leaning(nn.Module):
    def __init__(self, channel: Channel, teacher: nn.Module, forward: Forward | None) -> None:
        super().__init__()
        self.channel, self.teacher, self.ask = channel, teacher, forward or call

    def forward(self, data: Any) -> Tensor:
        return self.channel.lean(one_tensor(self.ask(self.teacher, data)), data)


def _one_graph(data: Any) -> bool:
    """Whether this is the graph of a node task; a PyG data set shows the edges of all its graphs."""
    return hasattr(data, "edge_index") and not hasattr(data, "indices")


def _shown(data: Any) -> list[Any]:
    """Every graph as a suspect sees it: without labels and masks."""
    graphs = [copy.copy(graph) for graph in ([data] if _one_graph(data) else data)]
    for graph in graphs:
        for name in [n for n in graph.to_dict() if n == "y" or n.endswith("_mask")]:
            del graph[name]
    return graphs


def _batches(data: Any, chunk: int | None) -> Iterator[Any]:
    """The one graph of a node task, or graphs in batches of at most `chunk` (None: all together)."""
    graphs = _shown(data)
    if _one_graph(data):
        yield graphs[0]
        return
    for start in range(0, len(graphs), chunk or len(graphs)):
        yield Batch.from_data_list(graphs[start : start + (chunk or len(graphs))])
