"""The questions of one mark to one server: in the secret's order, among other ordinary inputs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from invgnn.audit.remote.endpoint import Endpoint
from invgnn.audit.remote.journal import Journal
from invgnn.audit.remote.reply import Reply, graphs_of, stacked
from invgnn.audit.remote.transcript import Transcript
from invgnn.errors import FileError, ParameterError
from invgnn.graphs.attributed import Shown, joined
from invgnn.graphs.disjoint_union import Ints
from invgnn.watermark.mark import Watermark
from invgnn.watermark.reference import Reference

FIRST = 16
"""Number of ordinary inputs that are asked before the first carrier, so that bets have a threshold."""
PORTION = 64
"""Number of questions between two reports of progress, if all are asked."""
TOLERANCE = 1e-4
"""Relative difference of two answers to one question that counts as the same answer."""


class Source(Protocol):
    """Where replies come from: an endpoint, or the transcript of an earlier audit."""

    journal: Journal

    @property
    def shown(self) -> str:
        """The address."""

    def replies(self, graphs: Shown) -> list[Reply]:
        """Return one reply per question."""


class Item(NamedTuple):
    """One question of the plan.

    Attributes:
        place: Position among the mark's questions in the secret's order, then among the decoys.
        again: Whether it is asked for the second time.
    """

    place: int
    again: bool = False


def plan_items(mark: Watermark, decoys: int, repeats: int) -> list[Item]:
    """Return all questions in the order in which they are asked.

    The order comes from a stream of the secret that is independent of the bits: first some ordinary
    inputs, then carriers and ordinary inputs in the secret's order, with decoys and repeated ordinary
    inputs at random places.

    Changing this breaks the replay of every transcript in the field.

    Args:
        mark: The mark.
        decoys: Number of further ordinary inputs.
        repeats: Number of ordinary inputs to ask twice.
    """
    count = len(mark.order)
    stream = mark.secret.derive("remote", mark.bound, decoys, repeats)
    usual = [place for place in range(count) if mark.order[place] >= mark.m]
    first = set(usual[:FIRST])
    own = [*usual[:FIRST], *(place for place in range(count) if place not in first)]
    kinds = np.repeat([0, 1, 2], [count - len(first), decoys, repeats])[
        stream.permutation(count - len(first) + decoys + repeats)
    ]
    todo, items = iter(own[len(first) :]), [Item(place) for place in own[: len(first)]]
    asked, fakes = list(usual[:FIRST]), iter(range(count, count + decoys))
    for kind in kinds.tolist():
        if kind == 2:
            items.append(Item(asked[int(stream.below([len(asked)])[0])], again=True))
            continue
        items.append(Item(next(todo if kind == 0 else fakes)))
        if kind == 0 and mark.order[items[-1].place] >= mark.m:
            asked.append(items[-1].place)
    return items


def decoy_graphs(mark: Watermark, data: Any, count: int) -> Shown | None:
    """Return ordinary inputs of the task to mix in, chosen by the secret; None for none.

    Raises:
        ParameterError: If there are no data, or their graphs cannot be asked like those of the mark.
    """
    if not count:
        return None
    if data is None:
        raise ParameterError(
            "decoys are inputs of the task, and no data were given", "pass data=, or --task"
        )
    names = () if mark.shown is None else tuple(mark.shown.more)
    known = Reference.of(data, mark.format, tensors=names, keep_directions=mark.carriers.is_directed)
    pool: Shown | None = known.graphs if mark.shown is None else known.tensors
    own = mark.asked[0]
    if pool is None or (pool.x is None) != (own.x is None) or set(pool.more) != set(own.more):
        raise ParameterError(
            "the graphs of the data have other tensors than the questions of the mark", "use decoys=0"
        )
    stream = mark.secret.derive("decoys", mark.bound, count)
    rounds = -(-count // len(pool))
    chosen = np.concatenate([stream.permutation(len(pool)) for _ in range(rounds)])[:count]
    return pool.take(chosen)


class Session:
    """All questions of an audit, asked step by step; a suspect that `mark.ask` can ask.

    Args:
        source: The endpoint, or the transcript of an earlier audit.
        mark: The mark.
        data: Task inputs from which decoys are taken.
        settings: Everything that decides what is asked and when to stop; written before the first question.
        progress: Called with the state of the audit after every step.

    Attributes:
        items: The questions, in order.
        position: Number of questions asked so far.
        found: The reply to each question of the mark so far, by its position in the secret's order.
        repeated: Number of questions that were asked twice.
        differing: How many of them were answered differently.
    """

    def __init__(
        self,
        source: Source,
        mark: Watermark,
        data: Any,
        settings: dict[str, Any],
        progress: Callable[[dict[str, Any]], None] | None = None,
    ) -> None:
        self.source, self.mark, self.progress = source, mark, progress
        decoys, repeats = _counts(source)
        self.items = plan_items(mark, decoys, repeats)
        replayed = isinstance(source, Transcript)
        fakes = None if replayed and data is None else decoy_graphs(mark, data, decoys)
        own = mark.asked[0]
        self._pool: Shown = own if fakes is None else joined([own, fakes])
        self.position = self.repeated = self.differing = self._skipped = 0
        self.found: dict[int, Reply] = {}
        source.journal.rewind()
        source.journal.begin(_plan(source, mark, settings))

    def advance(self, count: int) -> bool:
        """Ask the next questions; return whether any are left.

        Args:
            count: Number of questions.

        Raises:
            EndpointError: If the server is not available, or the budget is used up. Answers are kept.
        """
        items = self.items[self.position : self.position + count]
        known = [item for item in items if item.place < len(self._pool)]
        if known:
            replies = self.source.replies(self._pool.take([item.place for item in known]))
            for item, reply in zip(known, replies, strict=True):
                self._keep(item, reply)
        self._skipped += len(items) - len(known)
        self.position += len(items)
        return self.position < len(self.items)

    def _keep(self, item: Item, reply: Reply) -> None:
        """Keep the reply to a question, or compare it with the first one."""
        if item.again:
            self.repeated += 1
            self.differing += not reply.same(self.found[item.place], TOLERANCE)
        elif item.place < len(self.mark.order):
            self.found[item.place] = reply

    def in_parts(self, graphs: Shown) -> list[tuple[Ints, Any]]:
        """Ask all questions and return the answers to those of the mark, in the secret's order."""
        if isinstance(self.source, Endpoint):
            self.source.require(len(self.items) - self.source.journal.untaken)
        while self.advance(PORTION):
            self.report()
        self.report()
        return self.parts(range(len(graphs)))

    def parts(self, places: Sequence[int]) -> list[tuple[Ints, Any]]:
        """Return the answers to some questions of the mark, numbered as given, without refused ones."""
        rows = ((number, self.found[place].rows) for number, place in enumerate(places))
        return [(np.array([number]), row) for number, row in rows if row is not None]

    def __call__(self, batch: Any) -> Any:
        """Return the answers to other inputs, such as those of a score channel."""
        graphs = graphs_of(batch)
        return stacked(self.source.replies(graphs), graphs)

    def report(self, **more: Any) -> None:
        """Tell whoever watches how far the audit is."""
        if self.progress is not None:
            self.progress(self.record() | more)

    def finish(self, early: bool = False) -> None:
        """End the record of the audit, or check that a transcript was used completely.

        Args:
            early: Whether the budget ended the audit, perhaps between two questions of one step.

        Raises:
            FileError: If a transcript holds more answers than the audit asks for.
        """
        if isinstance(self.source, Endpoint):
            self.source.journal.finish(self.source.signer)
        elif self.source.journal.untaken != self._skipped and not early:
            raise FileError(
                "the transcript does not hold exactly the answers that the audit asks for",
                "a complete transcript of one audit is needed",
            )

    def record(self) -> dict[str, Any]:
        """Return what was asked as JSON values, for a verdict."""
        journal = self.source.journal
        carriers = sum(int(self.mark.order[place]) < self.mark.m for place in self.found)
        return {
            "endpoint": self.source.shown,
            "carriers": carriers,
            "ordinary": len(self.found) - carriers,
            "questions": self.position,
            "sent": journal.sent,
            "requests": journal.requests,
            "cost": self.source.cost if isinstance(self.source, Endpoint) else None,
            "repeated": self.repeated,
            "differing": self.differing,
            "transcript": journal.chain if journal.path else None,
        }


def _counts(source: Source) -> tuple[int, int]:
    """Return the number of decoys and of repeated questions."""
    if isinstance(source, Endpoint):
        return source.decoys, source.repeats
    plan = source.journal.plan or {}
    found = [plan.get(name) for name in ("decoys", "repeats")]
    if not all(type(count) is int and 0 <= count <= 1 << 20 for count in found):
        raise FileError("the plan of the transcript is malformed", "use another copy of the file")
    return int(found[0] or 0), int(found[1] or 0)


def _plan(source: Source, mark: Watermark, settings: dict[str, Any]) -> dict[str, Any]:
    """Return what the journal begins with."""
    if isinstance(source, Endpoint):
        asked = {"endpoint": source.shown, "form": source.wire.record(), "batch": source.batch}
        asked |= {"decoys": source.decoys, "repeats": source.repeats}
        if source.transport.query_digest is not None:
            asked["query"] = source.transport.query_digest
    else:
        plan = source.journal.plan or {}
        asked = {name: plan.get(name) for name in ("endpoint", "form", "batch", "decoys", "repeats")}
        asked |= {"query": plan["query"]} if "query" in plan else {}
    return {"mark": mark.digest, **asked, **settings}
