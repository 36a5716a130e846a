"""Asking a suspect: its replies to every question, whatever it is and however it replies."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch_geometric.data import Batch

from invgnn.alignment import Columns, assign, in_order, select
from invgnn.errors import InvgnnError, SuspectError
from invgnn.forward import ADVICE, Forward, observe, placed, politely, to_batch, unwrap, weight_of
from invgnn.graphs import Graphs, Ints, ranges
from invgnn.reading import (
    Direction,
    Observation,
    Reading,
    answer,
    full,
    head_of,
    label_answer,
    log_scores,
    pool,
)
from invgnn.recipe import standardise

Suspect = nn.Module | Callable[[Any], Any]

CHUNK = 1024
"""How many graphs are asked about in one call."""
GAP = 14.0
"""How far below all others, in nats, a score counts that is minus infinity or missing."""
HUGE, TINY = 1e6, 1e-4
"""Scores beyond the one, or with differences below the other, are scaled."""
MOST_COLUMNS = 8192
REPEATS = 0.1
"""The largest share of answers, the commonest aside, that may repeat another for repeats to count."""
PATIENCE = 64
"""How many calls may fail in a row, from the first on, before the suspect counts as broken."""


@dataclass(frozen=True, eq=False)
class Answers:
    """One number per carrier and per ordinary input, and how many of them the suspect refused.

    Where answers hardly ever repeat, `alike` counts those that equal the commonest answer to the last bit:
    a suspect that gives a constant instead of an answer refuses too.

    A refused answer stands at the median of the others: the choice looks at the answers alone, never at the
    bits, so the null stays exact.
    """

    reading: Reading
    carriers: NDArray[np.float64]
    ordinary: NDArray[np.float64]
    refused_carriers: int = 0
    refused_ordinary: int = 0
    alike_carriers: int = 0
    alike_ordinary: int = 0

    @classmethod
    def of(cls, reading: Reading, said: NDArray[np.float64], m: int) -> Answers:
        """Return the answers, the first m of them on carriers; NaN and infinite ones were refused."""
        refused = ~np.isfinite(said)
        if refused[m:].all():
            raise SuspectError(
                f"the suspect gives no finite answer on any of {len(said) - m} ordinary inputs",
                "a suspect must give finite scores; nothing can be read from these",
            )
        held, alike = without_gaps(said), _alike(said)
        counts = [int(part.sum()) for one in (refused, alike) for part in (one[:m], one[m:])]
        return cls(reading, held[:m], held[m:], *counts)

    @property
    def queries(self) -> int:
        """How many graphs the suspect was asked about."""
        return len(self.carriers) + len(self.ordinary)

    @property
    def standard(self) -> NDArray[np.float64]:
        """Carrier answers in standard deviations of the suspect's own ordinary answers."""
        if self.reading.binary:
            return self.carriers
        values = standardise(torch.from_numpy(self.carriers), torch.from_numpy(self.ordinary))
        return np.asarray(values.numpy(), dtype=np.float64)


@dataclass(frozen=True, eq=False)
class Replies:
    """What a suspect returned on every question, before any reading.

    Attributes:
        graphs: The questions, in the order in which they were asked.
        scores: Scores in double precision on the CPU, a row per graph or per node, NaN where refused.
        embeddings: The watched layer, a row per graph.
        perceived: Answers of the paper's head, one per graph.
        failures: Access levels that cannot be read, and why.
        labels: The class of every row of the scores, -1 where it is unknown; None without labels.
        classes: How many classes the task has, if known.
    """

    graphs: Graphs
    scores: Tensor
    embeddings: Tensor | None
    perceived: Tensor | None
    failures: dict[str, SuspectError] = field(default_factory=dict)
    labels: Ints | None = None
    classes: int | None = None

    def labelled(self, labels: Ints | None, classes: int | None) -> Replies:
        """Return the replies with the classes of the questions, where these fit the rows of the scores."""
        if labels is None or classes is None:
            return replace(self, classes=classes)
        if len(labels) == len(self.graphs) < len(self.scores):  # a class per graph, scores per node
            labels = np.repeat(labels, self.graphs.sizes)
        return replace(self, labels=labels if len(labels) == len(self.scores) else None, classes=classes)

    @cached_property
    def logs(self) -> Tensor:
        """The scores as log-probabilities, whatever they came as."""
        return log_scores(self.scores).log_softmax(-1)

    @cached_property
    def alignments(self) -> tuple[Columns, ...]:
        """The ways to read the columns: as they come and, where that differs, as the labels assign them."""
        width = self.logs.shape[1]
        if self.classes is None:
            return (tuple(range(width)),)
        first = in_order(self.classes, width)
        if self.labels is None:
            return (first,)
        best = assign(self.logs, self.labels, self.classes)
        return (first,) if best == first else (first, best)

    def answers(
        self, reading: Reading, direction: Direction, columns: Sequence[int] | None = None
    ) -> NDArray[np.float64]:
        """Return one answer per question, NaN where the suspect refused it.

        Args:
            reading: Where to read.
            direction: The secret's vectors.
            columns: Which column is which class; by default as they come.

        Raises:
            SuspectError: If the suspect cannot be read there.
        """
        if reading.access in self.failures:
            raise self.failures[reading.access]
        if reading.access == "perception" and self.perceived is not None:
            return np.asarray(self.perceived.numpy(), dtype=np.float64)
        batch = to_batch(self.graphs)
        logs = select(self.logs, self.alignments[0] if columns is None else columns)
        seen = Observation(logs, self.embeddings, batch)
        said = (
            label_answer(seen, direction)
            if reading.access == "labels"
            else answer(seen, reading, direction)
        )
        if not reading.hidden:
            void = ~torch.isfinite(self.scores).all(-1)
            said = said.masked_fill(pool(void.to(said), batch).view(-1) > 0, torch.nan)
        return np.asarray(said.double().numpy(), dtype=np.float64)


def ask(
    suspect: Suspect,
    graphs: Graphs,
    readings: Sequence[Reading],
    forward: Forward | None = None,
    chunk: int = CHUNK,
) -> Replies:
    """Ask a suspect about every graph, in the order given, once for all readings; nothing of it changes.

    A call that fails is repeated with half the graphs, down to single ones: what is refused alone counts as
    refused. Of a data-parallel wrapper the model inside is asked, so one process may read alone.

    Raises:
        SuspectError: If it cannot be called at all, or nothing it returns are scores.
    """
    caller = _Caller(suspect, readings, forward)
    parts = _in_parts(
        len(graphs),
        chunk,
        lambda chosen: caller(graphs if len(chosen) == len(graphs) else graphs.take(chosen)),
    )
    return _joined(graphs, parts, caller)


def _in_parts(count: int, chunk: int, call: Callable[[Ints], _Reply]) -> list[tuple[Ints, _Reply]]:
    """What a call returns on numbers 0..count-1, in parts; a part that fails is halved, down to singles.

    The first halves come first, so a suspect that refuses some questions soon answers another.
    """
    todo = deque(np.arange(start, min(start + chunk, count)) for start in range(0, count, chunk))
    parts: list[tuple[Ints, _Reply]] = []
    failed, first = 0, None
    while todo:
        chosen = todo.popleft()
        try:
            parts.append((chosen, call(chosen)))
        except (Exception, SystemExit) as error:  # whatever a stranger's model or endpoint raises
            failed, first = failed + 1, first or error
            if len(chosen) > 1:
                todo.extendleft(np.array_split(chosen, 2)[::-1])
            if not parts and (failed >= PATIENCE or not todo):
                if isinstance(first, InvgnnError):
                    raise first from None
                raise SuspectError(f"the suspect failed on every question: {first}", ADVICE) from first
    return parts


def answers_on(
    suspect: Suspect,
    graphs: Graphs,
    reading: Reading,
    direction: Direction,
    forward: Forward | None = None,
    chunk: int = CHUNK,
) -> NDArray[np.float64]:
    """Return a suspect's answer on every graph, its columns taken as they come."""
    return without_gaps(ask(suspect, graphs, [reading], forward, chunk).answers(reading, direction))


def scores_on(
    suspect: Suspect, inputs: Sequence[Any], forward: Forward | None = None, chunk: int = CHUNK
) -> Tensor:
    """Return a suspect's scores on task inputs, in double precision on the CPU, NaN where it refuses.

    Args:
        suspect: A module or a function.
        inputs: PyG graphs, of which each has one row of scores, or one graph with a row for every node.
        forward: How to call an unusual model.
        chunk: How many graphs are asked about in one call.

    Raises:
        SuspectError: If the suspect answers none of them.
    """
    caller = _Caller(suspect, [], forward)
    if len(inputs) == 1:
        parts = _in_parts(1, 1, lambda _: caller.on(inputs[0], int(inputs[0].num_nodes)))
        parts = [(np.arange(len(reply)), reply) for _, reply in parts]
    else:
        batch = Batch.from_data_list
        parts = _in_parts(
            len(inputs), chunk, lambda chosen: caller.on(batch([inputs[i] for i in chosen]), len(chosen))
        )
    rows = len(inputs) if len(inputs) > 1 else len(parts[0][1])
    return _filled(rows, parts)


def _alike(said: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Which answers are the commonest one, if it occurs more than once and others hardly ever repeat.

    Carriers and ordinary inputs count alike in this, so a test of which of them are refused stays exact.
    """
    values, counts = np.unique(said[np.isfinite(said)], return_counts=True)
    if not len(counts) or counts.max() < 2:
        return np.zeros(len(said), dtype=bool)
    others = np.delete(counts, counts.argmax())
    if others.sum() > (1 + REPEATS) * len(others):
        return np.zeros(len(said), dtype=bool)
    return np.asarray(said == values[counts.argmax()])


def without_gaps(answers: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return answers with NaN and infinite ones at the median of the others; all are 0 if none is finite.

    Guarantee: the choice looks at the answers alone, never at the bits, so the null stays exact.
    """
    gaps = ~np.isfinite(answers)
    if gaps.all():
        return np.zeros_like(answers)
    # the lower median, itself an answer: labels stay labels
    return np.where(gaps, np.quantile(answers[~gaps], 0.5, method="lower"), answers)


# -- one call --------------------------------------------------------------------------------------


_Reply = TypeVar("_Reply")


@dataclass(frozen=True, eq=False)
class _Part:
    """The reply of one call; scores may still be label names."""

    scores: NDArray[Any]
    embeddings: Tensor | None
    perceived: Tensor | None


class _Caller:
    """One way to call a suspect, and what could not be read on the way."""

    def __init__(self, suspect: Suspect, readings: Sequence[Reading], forward: Forward | None) -> None:
        suspect = unwrap(suspect) if isinstance(suspect, nn.Module) else suspect
        self.suspect, self.forward = suspect, forward
        self.layer = next((r.layer for r in readings if r.hidden), None)
        self.hidden = {r.access for r in readings if r.hidden}
        self.failures: dict[str, SuspectError] = {}
        self.like = weight_of(suspect) if isinstance(suspect, nn.Module) else None
        if not isinstance(suspect, nn.Module) and self.layer is not None:
            self._hide(lambda name: f"a function gives scores only, so it cannot be read at {name!r}")
        if "perception" in self.hidden - self.failures.keys():
            try:
                head_of(suspect)
            except SuspectError as error:
                self.failures["perception"] = error
        if self.hidden <= self.failures.keys():
            self.layer = None

    def _hide(self, why: Callable[[str], str]) -> None:
        advice = "use access='logits' or 'labels', or pass the model itself"
        self.failures |= {name: SuspectError(why(name), advice) for name in self.hidden}
        self.layer = None

    def __call__(self, graphs: Graphs) -> _Part:
        """Ask about some graphs."""
        batch = to_batch(graphs, self.like)
        if not isinstance(self.suspect, nn.Module):
            return _Part(self._scores(self.suspect(batch), graphs), None, None)
        with politely(self.suspect), torch.no_grad():
            seen = self._observe(self.suspect, batch)
            embeddings = None if seen.hidden is None else seen.embeddings
            perceived = None
            if "perception" in self.hidden - self.failures.keys():
                perceived = self._perceive(seen)
        here = None if embeddings is None else embeddings.cpu().double()
        return _Part(self._scores(seen.scores, graphs), here, perceived)

    def _scores(self, said: Any, graphs: Graphs) -> NDArray[Any]:
        return _array(said, {len(graphs), graphs.num_nodes}, len(graphs) == 1)

    def _perceive(self, seen: Observation) -> Tensor | None:
        """The answers of the paper's head; one that does not fit its model leaves the other levels."""
        try:
            return answer(seen, Reading("perception"), _nothing, self.suspect).cpu().double()
        except Exception as error:  # the head is the suspect's own code too
            why = f"the perception head failed: {error}"
            self.failures["perception"] = SuspectError(why, "read it at another declared level")
            return None

    def _observe(self, model: nn.Module, batch: Any) -> Observation:
        """One pass; a layer that cannot be watched leaves the scores."""
        try:
            seen = observe(model, batch, self.layer, self.forward)
            if self.layer is not None:
                _ = seen.embeddings  # kept there; refuses rows that are neither graphs nor nodes
            return seen
        except SuspectError as error:
            if self.layer is None:
                raise
            seen = observe(model, batch, None, self.forward)  # if this fails too, so does the suspect
            self.failures |= dict.fromkeys(self.hidden, error)
            self.layer = None
            return seen

    def on(self, batch: Any, rows: int) -> NDArray[Any]:
        """The reply to a batch that is at hand, which has so many rows."""
        if isinstance(self.suspect, nn.Module):
            batch = batch if self.like is None else placed(batch, self.like)
            with politely(self.suspect), torch.no_grad():
                said: Any = observe(self.suspect, batch, None, self.forward).scores
        else:
            said = self.suspect(batch)
        return _array(said, {rows}, rows == 1)


def _nothing(access: str, width: int, like: Tensor | None = None, /) -> Tensor:
    raise AssertionError("a head is read without a direction")


def _plain(value: Any) -> NDArray[Any]:
    """A reply as an array on the CPU: floats, or whole numbers or text that name labels."""
    if isinstance(value, tuple | dict):
        kind, pick = type(value).__name__, '["scores"]' if isinstance(value, dict) else "[0]"
        raise SuspectError(f"the suspect returned a {kind}", f"return the scores alone: result{pick}")
    if isinstance(value, Tensor):
        value = full(value.detach()).cpu().numpy() if value.is_floating_point() else value.cpu().numpy()
    try:
        found = np.array(value)
    except (TypeError, ValueError) as error:
        raise SuspectError(f"the suspect returned no array: {error}", "return scores") from error
    if found.dtype.kind not in "fiubUS":
        raise SuspectError(f"the suspect returned an array of {found.dtype}", "return scores or labels")
    return found


def _array(value: Any, rows: set[int], single: bool) -> NDArray[Any]:
    """A reply with one of these numbers of rows; labels as one column."""
    found = _plain(value)
    if found.ndim == 1 and single and found.dtype.kind == "f" and len(found) not in rows:
        found = found[None]  # an endpoint that drops the batch dimension of a single graph
    if found.ndim == 3 and found.shape[1] == 1:
        found = found[:, 0]
    if found.ndim == 1:
        found = found[:, None]
    if found.ndim != 2 or len(found) not in rows or not 0 < found.shape[1] <= MOST_COLUMNS:
        wanted = " or ".join(map(str, sorted(rows)))
        raise SuspectError(
            f"the suspect returned an array of shape {found.shape}, not {wanted} rows",
            "a suspect returns one row per graph, or one row per node for node tasks",
        )
    if found.dtype.kind != "f" and found.shape[1] > 1:
        found = found.astype(np.float64)  # counts of votes, say
    return found


# -- all calls together ----------------------------------------------------------------------------


def _joined(graphs: Graphs, parts: list[tuple[Ints, _Part]], caller: _Caller) -> Replies:
    """The replies of all calls, in the order of the questions; rows that nobody gave are NaN."""
    forms = Counter(len(part.scores) != len(chosen) for chosen, part in parts for _ in chosen)
    by_node = forms[True] > forms[False]
    rows = graphs.num_nodes if by_node else len(graphs)
    scores = [
        (ranges(graphs.ptr[chosen], graphs.sizes[chosen]) if by_node else chosen, part.scores)
        for chosen, part in parts
        if by_node == (len(part.scores) != len(chosen))
    ]
    return Replies(
        graphs,
        _filled(rows, scores),
        _stacked(graphs, parts, lambda part: part.embeddings),
        _stacked(graphs, parts, lambda part: part.perceived),
        caller.failures,
    )


def _filled(rows: int, parts: list[tuple[Ints, NDArray[Any]]]) -> Tensor:
    """Scores of all calls, NaN where none gave any, or gave other columns than most did."""
    forms = Counter(scores.dtype.kind == "f" for chosen, scores in parts for _ in chosen)
    floats = forms[True] >= forms[False]
    held = [(chosen, scores) for chosen, scores in parts if (scores.dtype.kind == "f") == floats]
    if not floats:
        names: NDArray[Any] = np.full(rows, None, dtype=object)
        for chosen, scores in held:
            names[chosen] = scores[:, 0]
        return torch.from_numpy(_one_hot(names))
    raw = np.full((rows, max(scores.shape[1] for _, scores in held)), np.nan)
    for chosen, scores in held:
        raw[chosen] = -np.inf  # columns that this reply lacks
        raw[chosen, : scores.shape[1]] = scores
    if raw.shape[1] == 1 and _are_labels(raw):
        names = np.array([int(value) if np.isfinite(value) else None for value in raw[:, 0]], dtype=object)
        return torch.from_numpy(_one_hot(names))
    return torch.from_numpy(tidy(raw))


def _are_labels(column: NDArray[np.float64]) -> bool:
    """Whether one column of floats holds the numbers of classes: three or more different whole numbers."""
    values = np.unique(column[np.isfinite(column)])
    return 3 <= len(values) <= MOST_LABELS and bool((values == values.round()).all())


def tidy(scores: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return scores that can be computed with, whatever their size; rows without any score are NaN.

    A column without any score, and scores of minus infinity, say that a class is out of the question.
    Scores so large or so close together that doubles would lose their differences are scaled, all by one
    factor.
    All of this looks at the scores alone.
    """
    finite = np.isfinite(scores)
    void = ~finite.any(1) | (np.isnan(scores) & ~np.isnan(scores).all(0)).any(1)
    if not finite[~void].any():
        return np.full_like(scores, np.nan)
    low, high = float(scores[finite].min()), float(scores[finite].max())
    least = 0.0 if low >= 0 else low - GAP
    out = np.where(np.isposinf(scores), high + GAP, np.where(finite, scores, least))
    largest = float(np.abs(out).max())
    centred = out / largest if largest > HUGE else out
    spread = float(np.abs(centred - centred.mean(1, keepdims=True))[~void].max())
    if largest > HUGE or (0 < spread < TINY and out.shape[1] > 1):
        out = (centred - centred.mean(1, keepdims=True)) * (10.0 / spread if spread else 1.0)
    out[void] = np.nan
    return np.asarray(out)


def _stacked(
    graphs: Graphs, parts: list[tuple[Ints, _Part]], pick: Callable[[_Part], Tensor | None]
) -> Tensor | None:
    """One tensor of what every call gave, NaN where none did; None unless all of them gave it."""
    given = [(chosen, pick(part)) for chosen, part in parts]
    found = [(chosen, value) for chosen, value in given if value is not None]
    if len(found) < len(given) or not found:
        return None
    shape = found[0][1].shape[1:]
    out = torch.full((len(graphs), *shape), torch.nan, dtype=torch.float64)
    for chosen, value in found:
        if value.shape[1:] == shape:
            out[torch.from_numpy(chosen)] = value
    return out


def _one_hot(names: NDArray[Any]) -> NDArray[np.float64]:
    """Label names as rows with a single one; numbers from 0 up keep their places, others are sorted."""
    column = names.reshape(len(names))
    void = np.array([name is None for name in column])
    known = np.array([str(name) if isinstance(name, str | bytes) else int(name) for name in column[~void]])
    if known.dtype.kind in "iu" and len(known) and known.min() >= 0 and known.max() < MOST_LABELS:
        place, width = known, max(int(known.max()) + 1, 2)
    else:
        values, place = np.unique(known, return_inverse=True)
        width = max(len(values), 2)
    out = np.full((len(column), width), np.nan)
    out[~void] = 0.0
    out[np.flatnonzero(~void), place] = 1.0
    return out


MOST_LABELS = 1024
"""Whole numbers below this are taken for the numbers of classes, others for their names."""
