"""Query a suspect of any kind and collect its replies to all questions."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar, runtime_checkable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch_geometric.data import Batch

from invgnn.errors import EndpointError, InvgnnError, SuspectError
from invgnn.graphs.attributed import Shown
from invgnn.graphs.disjoint_union import Ints, ranges
from invgnn.nn.forward import ADVICE, Forward, evaluation_mode, observe, placed, to_batch, unwrap, weight_of
from invgnn.nn.observation import Observation
from invgnn.readout.answers import without_gaps
from invgnn.readout.reading import Direction, Reading, answer, head_of
from invgnn.readout.replies import Replies
from invgnn.readout.scores import _array, _filled, _real

Suspect = nn.Module | Callable[[Any], Any]
"""A module, or a function that maps a PyG batch to scores."""


@runtime_checkable
class AnswersInParts(Protocol):
    """A suspect that is asked question by question and may leave some unanswered, such as an endpoint."""

    def in_parts(self, graphs: Shown) -> list[tuple[Ints, Any]]:
        """Return numbers of graphs with the reply to them; graphs that are left out are refused."""


CHUNK = 1024
"""Number of graphs per call."""
PATIENCE = 64
"""Number of failed calls, before the first success, after which the suspect counts as broken."""


def ask(
    suspect: Suspect,
    graphs: Shown,
    readings: Sequence[Reading],
    forward: Forward | None = None,
    chunk: int = CHUNK,
) -> Replies:
    """Query a suspect with every graph, in the order given, once for all readings.

    The suspect is not changed. A call that fails is repeated with half of the graphs, down to single
    graphs; a graph that fails alone counts as refused. Of a data-parallel wrapper the module inside is
    queried, so that one process may read alone.

    Args:
        suspect: A module or a function that maps a PyG batch to scores.
        graphs: The questions.
        readings: Where the suspect will be read.
        forward: Calls the model on a batch; by default the names of its arguments decide.
        chunk: Number of graphs per call.

    Returns:
        The replies.

    Raises:
        SuspectError: If the suspect cannot be called at all, or never returns scores.
    """
    if not isinstance(suspect, nn.Module) and isinstance(suspect, AnswersInParts):
        return gather(graphs, suspect.in_parts(graphs), readings)
    caller = _Caller(suspect, readings, forward)

    def call(chosen: Ints) -> _Part:
        return caller(graphs if len(chosen) == len(graphs) else graphs.take(chosen))

    parts = _in_parts(len(graphs), chunk, call)
    if _takes_single_graphs(parts):
        parts = _in_parts(len(graphs), 1, call)
    return _joined(graphs, parts, caller)


def gather(graphs: Shown, parts: Sequence[tuple[Ints, Any]], readings: Sequence[Reading]) -> Replies:
    """Return the replies that were given question by question.

    Args:
        graphs: The questions.
        parts: Numbers of graphs with the reply to them; graphs that are left out are refused.
        readings: Where the suspect will be read.

    Raises:
        SuspectError: If there is no reply.
    """
    if not parts:
        raise SuspectError("the suspect answered no question", "ask a suspect that answers ordinary inputs")
    caller = _Caller(lambda batch: None, readings, None)
    held = []
    for chosen, reply in parts:
        rows = {len(chosen), int(graphs.sizes[chosen].sum())}
        held.append((chosen, _Part(_array(reply, rows, len(chosen) == 1), None, None)))
    return _joined(graphs, held, caller)


def _takes_single_graphs(parts: list[tuple[Ints, _Part]]) -> bool:
    """Return whether the replies show a function for single graphs, which got batches as well.

    It returns one row of several scores, whatever it is given. As many scores as there are graphs in a
    batch then pass for one score per graph, while the reply to a single graph has several columns.
    """
    widths: dict[bool, set[int]] = {True: set(), False: set()}
    for chosen, part in parts:
        if part.scores.dtype.kind == "f":
            widths[len(chosen) > 1].add(part.scores.shape[1])
    return widths[True] == {1} and any(width > 1 for width in widths[False])


def _in_parts(count: int, chunk: int, call: Callable[[Ints], _Reply]) -> list[tuple[Ints, _Reply]]:
    """Call a function on the numbers 0..count-1 in chunks; a chunk that fails is split in half.

    First halves come first, so that a suspect which refuses only some questions soon answers another one.
    """
    todo = deque(np.arange(start, min(start + chunk, count)) for start in range(0, count, chunk))
    parts: list[tuple[Ints, _Reply]] = []
    failed, first = 0, None
    while todo:
        chosen = todo.popleft()
        try:
            parts.append((chosen, call(chosen)))
        except EndpointError:  # not an answer: the server is down, or the budget used up
            raise
        except (Exception, SystemExit) as error:  # a foreign model or endpoint may raise anything
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
    graphs: Shown,
    reading: Reading,
    direction: Direction,
    forward: Forward | None = None,
    chunk: int = CHUNK,
) -> NDArray[np.float64]:
    """Return the answer of a suspect on every graph, with its columns in their given order.

    Args:
        suspect: A module or a function that maps a PyG batch to scores.
        graphs: The questions.
        reading: Where to read the suspect.
        direction: The secret's vectors.
        forward: Calls the model on a batch; by default the names of its arguments decide.
        chunk: Number of graphs per call.
    """
    return without_gaps(ask(suspect, graphs, [reading], forward, chunk).answers(reading, direction))


def scores_on(
    suspect: Suspect, inputs: Sequence[Any], forward: Forward | None = None, chunk: int = CHUNK
) -> Tensor:
    """Return the scores of a suspect on task inputs, in double precision on the CPU, NaN if refused.

    Args:
        suspect: A module or a function that maps a PyG batch to scores.
        inputs: PyG graphs with one row of scores each, or a single graph with one row per node.
        forward: Calls the model on a batch; by default the names of its arguments decide.
        chunk: Number of graphs per call.

    Raises:
        SuspectError: If the suspect answers none of them.
    """
    caller = _Caller(suspect, [], forward)
    if len(inputs) == 1:
        (graph,) = inputs
        rows = int(graph.num_nodes)
        parts = _in_parts(1, chunk, lambda _: caller.on(graph, rows))
        return _filled(rows, [(np.arange(rows), reply) for _, reply in parts])
    batch = Batch.from_data_list
    parts = _in_parts(
        len(inputs), chunk, lambda chosen: caller.on(batch([inputs[i] for i in chosen]), len(chosen))
    )
    return _filled(len(inputs), parts)


# -- one call --------------------------------------------------------------------------------------


_Reply = TypeVar("_Reply")


@dataclass(frozen=True, eq=False)
class _Part:
    """The reply to one call. Scores may still be label names."""

    scores: NDArray[Any]
    embeddings: Tensor | None
    perceived: Tensor | None


class _Caller:
    """Calls a suspect and records which access levels cannot be read."""

    def __init__(self, suspect: Suspect, readings: Sequence[Reading], forward: Forward | None) -> None:
        suspect = unwrap(suspect) if isinstance(suspect, nn.Module) else suspect
        self.suspect, self.forward = suspect, forward
        self.layer = next((r.layer for r in readings if r.hidden), None)
        self.hidden = {r.access for r in readings if r.hidden}
        self.real = any(r.access == "values" for r in readings)
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
        """Record that no hidden layer can be read, and why."""
        advice = "use access='logits' or 'labels', or pass the model itself"
        self.failures |= {name: SuspectError(why(name), advice) for name in self.hidden}
        self.layer = None

    def __call__(self, graphs: Shown) -> _Part:
        """Query the suspect with some graphs."""
        batch = to_batch(graphs, self.like)
        if not isinstance(self.suspect, nn.Module):
            return _Part(self._scores(self.suspect(batch), graphs), None, None)
        with evaluation_mode(self.suspect), torch.no_grad():
            seen = self._observe(self.suspect, batch)
            embeddings = None if seen.hidden is None else seen.embeddings
            perceived = None
            if "perception" in self.hidden - self.failures.keys():
                perceived = self._perceive(seen)
        here = None if embeddings is None else embeddings.cpu().double()
        return _Part(self._scores(seen.scores, graphs), here, perceived)

    def _scores(self, reply: Any, graphs: Shown) -> NDArray[Any]:
        """Return the scores in a reply, with one row per graph or per node."""
        return _array(reply, {len(graphs), graphs.num_nodes}, len(graphs) == 1)

    def _perceive(self, seen: Observation) -> Tensor | None:
        """Return the answers of the paper's head, or None if it fails; other levels stay readable."""
        try:
            return answer(seen, Reading("perception"), _nothing, self.suspect).cpu().double()
        except Exception as error:  # the head is foreign code too
            why = f"the perception head failed: {error}"
            self.failures["perception"] = SuspectError(
                why, "read the suspect at another declared access level"
            )
            return None

    def _observe(self, model: nn.Module, batch: Any) -> Observation:
        """Run one forward pass; if the layer cannot be observed, the scores can still be read."""
        try:
            seen = observe(model, batch, self.layer, self.forward)
            if self.layer is not None:
                _ = seen.embeddings  # computed once; raises an error if rows are neither graphs nor nodes
            return seen
        except SuspectError as error:
            if self.layer is None:
                raise
            seen = observe(model, batch, None, self.forward)  # if this fails too, the call has failed
            self.failures |= dict.fromkeys(self.hidden, error)
            self.layer = None
            return seen

    def on(self, batch: Any, rows: int) -> NDArray[Any]:
        """Return the reply to a batch that has this many rows of scores."""
        if isinstance(self.suspect, nn.Module):
            batch = batch if self.like is None else placed(batch, self.like)
            with evaluation_mode(self.suspect), torch.no_grad():
                reply: Any = observe(self.suspect, batch, None, self.forward).scores
        else:
            reply = self.suspect(batch)
        return _array(reply, {rows}, rows == 1)


def _nothing(access: str, width: int, like: Tensor | None = None, /) -> Tensor:
    """Raise an error, because a head is read without a direction."""
    raise AssertionError("a perception head is read without a direction")


# -- all calls together ----------------------------------------------------------------------------


def _joined(graphs: Shown, parts: list[tuple[Ints, _Part]], caller: _Caller) -> Replies:
    """Return the replies of all calls in the order of the questions; missing rows are NaN."""
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
        values=_real(rows, scores) if caller.real else None,
    )


def _stacked(
    graphs: Shown, parts: list[tuple[Ints, _Part]], pick: Callable[[_Part], Tensor | None]
) -> Tensor | None:
    """Return one tensor of a part of all replies, NaN for refused graphs; None unless every call has it."""
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
