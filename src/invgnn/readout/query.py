"""Asking a suspect: its replies to every question, whatever it is and however it replies."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch_geometric.data import Batch

from invgnn.errors import InvgnnError, SuspectError
from invgnn.graphs.disjoint_union import Graphs, Ints, ranges
from invgnn.nn.forward import ADVICE, Forward, evaluation_mode, observe, placed, to_batch, unwrap, weight_of
from invgnn.nn.observation import Observation
from invgnn.readout.answers import without_gaps
from invgnn.readout.reading import Direction, Reading, answer, head_of
from invgnn.readout.replies import Replies
from invgnn.readout.scores import _array, _filled

Suspect = nn.Module | Callable[[Any], Any]

CHUNK = 1024
"""How many graphs are asked about in one call."""
PATIENCE = 64
"""How many calls may fail in a row, from the first on, before the suspect counts as broken."""


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
        with evaluation_mode(self.suspect), torch.no_grad():
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
            with evaluation_mode(self.suspect), torch.no_grad():
                said: Any = observe(self.suspect, batch, None, self.forward).scores
        else:
            said = self.suspect(batch)
        return _array(said, {rows}, rows == 1)


def _nothing(access: str, width: int, like: Tensor | None = None, /) -> Tensor:
    raise AssertionError("a head is read without a direction")


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
