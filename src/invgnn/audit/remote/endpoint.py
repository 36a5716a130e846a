"""A suspect behind HTTP."""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import threading
from collections import deque
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

from invgnn.audit.remote.journal import Journal, question_digest
from invgnn.audit.remote.mapping import JsonMapping
from invgnn.audit.remote.reply import Reply, graphs_of, stacked
from invgnn.audit.remote.transport import RESUME, Pace, Refused, Transport, TurnedAway
from invgnn.audit.remote.wire import OpenInference, Wire, parsed
from invgnn.checks import check_number, check_whole
from invgnn.errors import BudgetError, EndpointError, ParameterError, SuspectError
from invgnn.graphs.attributed import Shown
from invgnn.graphs.disjoint_union import Ints

PATIENCE = 64
"""Number of failed requests in a row that end an audit; one without an answer in time counts as eight."""
FIRST_PATIENCE = 16
"""The same, before the server has answered any question."""
SETTINGS = {401, 403, 404, 405}
"""Statuses that, before any answer, mean that address or token are wrong."""

_Result = TypeVar("_Result")


class Endpoint:
    """A model behind HTTP, as a suspect anywhere a suspect is taken.

    By default the server must speak the Open Inference Protocol, version 2, as `invgnn serve` does. A
    mapping describes other JSON shapes. Nothing is asked twice: every answer is kept in the journal, and a
    run with the same journal asks only what is missing. Redirects are refused, responses are limited in
    size and time, and nothing but the questions, the headers and a random request number is sent.

    Args:
        url: The address: of a model, `https://host/v2/models/NAME`, or for a mapping the complete address.
        mapping: A mapping file, or its content, for other JSON shapes.
        headers: Names of headers, each with the environment variable that holds its value.
        token: Environment variable that holds a bearer token.
        batch: Graphs per request.
        rate: Most requests per second.
        timeout: Most seconds of one exchange.
        attempts: Most attempts of a request; between them the client waits, longer every time.
        backoff: Seconds before the second attempt.
        journal: File in which requests and answers are kept, readable by its owner only. Without one they
            are kept in memory.
        signer: Who signs the transcript, such as an `invgnn.court` identity.
        decoys: Number of further ordinary inputs to mix in, from the `data` that `verify` gets. They cost
            questions and hide the carriers: among k questions about carriers and ordinary inputs a server
            that watches the stream sees a share of m / (k + decoys) carriers.
        repeats: Number of ordinary inputs that are asked a second time, to notice a server that answers
            with several models.
        max_queries: Most graphs to send, repeated ones included.
        price: Price of one graph.
        budget: Most money to spend.
        insecure_http: Allow an unencrypted connection to another machine.
        most_bytes: Most bytes of a response.

    Raises:
        ParameterError: If a value is invalid.
    """

    def __init__(
        self,
        url: str,
        *,
        mapping: str | os.PathLike[str] | Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
        token: str | None = None,
        batch: int = 16,
        rate: float | None = None,
        timeout: float = 30.0,
        attempts: int = 5,
        backoff: float = 0.5,
        journal: str | os.PathLike[str] | None = None,
        signer: Any = None,
        decoys: int = 0,
        repeats: int = 8,
        max_queries: int | None = None,
        price: float = 0.0,
        budget: float | None = None,
        insecure_http: bool = False,
        most_bytes: int = 16 << 20,
    ) -> None:
        self.wire: Wire = OpenInference() if mapping is None else _mapping(mapping)
        given = {"attempts": attempts, "backoff": backoff, "rate": rate, "most_bytes": most_bytes}
        self.transport = Transport(
            _address(url) if mapping is None else url,
            dict(headers or {}),
            token,
            timeout,
            insecure_http=insecure_http,
            **given,  # type: ignore[arg-type]  # checked there
        )
        for name, value in (("batch", batch), ("decoys", decoys), ("repeats", repeats)):
            check_whole(name, value, int(name == "batch"), 1 << 20)
        self.batch, self.decoys, self.repeats = batch, decoys, repeats
        self.max_queries, self.price, self.budget = _terms(max_queries, price, budget)
        self.journal, self.signer = Journal(journal), signer
        self._streak = 0
        self._known: Shown | None = None  # a graph that the server has answered

    def __repr__(self) -> str:
        return f"Endpoint({self.transport.shown!r})"

    @property
    def shown(self) -> str:
        """The address without its query, which may hold a key."""
        return self.transport.shown

    @property
    def cost(self) -> float:
        """What the graphs sent so far cost."""
        return self.price * self.journal.sent

    def allowed(self, graphs: int) -> bool:
        """Return whether so many more graphs are within the budget."""
        sent = self.journal.sent + graphs
        return (self.max_queries is None or sent <= self.max_queries) and (
            self.budget is None or self.price * sent <= self.budget
        )

    def in_parts(self, graphs: Shown) -> list[tuple[Ints, Any]]:
        """Return the answers of the server, question by question; refused ones are left out.

        Args:
            graphs: The questions, which are asked in this order.

        Raises:
            EndpointError: If the server is not available, or the budget is used up. Answers are kept.
            SuspectError: If the server answers none of the questions.
        """
        replies = self.replies(graphs)
        return [(np.array([n]), reply.rows) for n, reply in enumerate(replies) if reply.rows is not None]

    def __call__(self, batch: Any) -> Any:
        """Return the answers to a PyG batch as one array; scores of refused graphs are NaN."""
        graphs = graphs_of(batch)
        return stacked(self.replies(graphs), graphs)

    def replies(self, graphs: Shown) -> list[Reply]:
        """Return one reply per question, from the journal where it has one.

        Args:
            graphs: The questions, which are asked in this order.
        """
        digests = [question_digest(graphs, place) for place in range(len(graphs))]
        found = [self.journal.take(digest) for digest in digests]
        missing = [place for place, reply in enumerate(found) if reply is None]
        if missing:
            self.require(len(missing))
            asked = _run(self._ask(graphs.take(missing), [digests[place] for place in missing]))
            for place, reply in zip(missing, asked, strict=True):
                found[place] = reply
        held = [reply for reply in found if reply is not None]
        if held and all(reply.rows is None for reply in held) and len(held) >= min(PATIENCE, len(graphs)):
            raise SuspectError(
                f"{self.shown} answers no question: {held[0].refusal}", "check the address and the mapping"
            )
        return held

    def require(self, graphs: int) -> None:
        """Raise an error if so many more graphs are beyond the budget.

        Args:
            graphs: Number of graphs.

        Raises:
            BudgetError: If they are.
        """
        if not self.allowed(graphs):
            raise BudgetError(
                f"{graphs} more questions are beyond the budget: {self.journal.sent} were sent, which cost "
                f"{self.cost:g}",
                "raise max_queries or the budget, and go on with the same journal",
            )

    async def _ask(self, graphs: Shown, digests: Sequence[str]) -> list[Reply]:
        """Ask questions in batches; a batch that is refused is split in half, down to single questions."""
        size = min(self.batch, self.wire.most or self.batch)
        todo = deque(
            np.arange(start, min(start + size, len(graphs))) for start in range(0, len(graphs), size)
        )
        found: list[Reply | None] = [None] * len(graphs)
        refused: list[int] = []
        later: set[int] = set()
        pace = Pace()
        async with self.transport.client() as client:
            while todo:
                chosen = todo.popleft()
                self.require(len(chosen))
                part, names = graphs.take(chosen), [digests[int(place)] for place in chosen]
                try:
                    for place, reply in zip(
                        chosen, await self._one(client, pace, part, names), strict=True
                    ):
                        found[place] = reply
                except (Refused, TurnedAway) as error:
                    self._failed(error, pace, len(chosen))
                    await self._go_on(client, pace, error)
                    if len(chosen) > 1:
                        todo.extendleft(np.array_split(chosen, 2)[::-1])
                    elif isinstance(error, TurnedAway) and int(chosen[0]) not in later:
                        later.add(int(chosen[0]))  # it may have been busy: asked once more, after others
                        todo.append(chosen)
                    else:
                        found[chosen[0]] = Reply(None, error.message)
                        refused.append(int(chosen[0]))
                    continue
                except SuspectError:
                    self.journal.append(
                        {"type": "failure", "sent": pace.sent * len(chosen), "requests": pace.sent}
                    )
                    raise
                self._settle(refused, found, digests)
        if any(reply is not None and reply.rows is not None for reply in found) or self._answered:
            self._settle(refused, found, digests)
        return [reply for reply in found if reply is not None]

    async def _one(self, client: Any, pace: Pace, graphs: Shown, names: Sequence[str]) -> list[Reply]:
        """Ask about some graphs in one request, and record the replies."""
        number, raw = secrets.token_hex(8), b""

        def read(body: bytes) -> list[Reply]:
            nonlocal raw
            raw = body
            return self.wire.decode(parsed(body), graphs, number)

        self.journal.check()
        pace.sent = 0
        body = json.dumps(self.wire.encode(graphs, number)).encode()
        replies = await self.transport.post(client, pace, body, read, self._attempts(len(graphs)))
        self._streak = 0
        if replies[0].rows is not None:
            self._known = graphs.take(np.arange(1))
        self.journal.answered(names, replies, sent=pace.sent * len(graphs), requests=pace.sent, body=raw)
        return replies

    def _attempts(self, graphs: int) -> int:
        """Return how often a request may be sent: less often after a failure, and within the budget."""
        most = self.transport.attempts
        if self._streak:  # do not wait again and again for a server that may be down
            most = min(2 if self._answered else 1, most)
        return next((one for one in range(most, 1, -1) if self.allowed(one * graphs)), 1)

    @property
    def _answered(self) -> bool:
        """Whether the server has answered any question."""
        return any(line["type"] == "replies" for line in self.journal.lines)

    def _failed(self, error: Refused | TurnedAway, pace: Pace, graphs: int) -> None:
        """Count a request that failed.

        A server may pretend to be busy, or redirect, where a graph looks like a carrier. That counts as a
        refusal if it answers other questions.
        """
        self.journal.append({"type": "failure", "sent": pace.sent * graphs, "requests": pace.sent})
        self._streak += 8 if error.late else 1
        if error.status in SETTINGS and not self._answered:
            raise EndpointError(f"{self.shown} refuses requests ({error.message})", error.advice)

    async def _go_on(self, client: Any, pace: Pace, error: Refused | TurnedAway) -> None:
        """Give up after too many failures in a row, unless the server answers a question that it knows."""
        if self._streak < (PATIENCE if self._answered else FIRST_PATIENCE):
            return
        self._streak = 0
        if not self._answered and isinstance(error, TurnedAway):
            raise error
        if not self._answered and not error.late:
            raise SuspectError(f"{self.shown} answers no question: {error.message}", error.advice)
        if error.late or self._known is None or not await self._answers(client, pace, self._known):
            raise EndpointError(f"{self.shown} has stopped answering ({error.message})", RESUME)

    async def _answers(self, client: Any, pace: Pace, graph: Shown) -> bool:
        """Return whether the server answers a question. The reply is not kept, and counts as sent."""
        self.require(1)
        number = secrets.token_hex(8)
        body = json.dumps(self.wire.encode(graph, number)).encode()
        pace.sent = 0
        try:
            replies = await self.transport.post(
                client, pace, body, lambda raw: self.wire.decode(parsed(raw), graph, number), 1
            )
        except (Refused, TurnedAway):
            return False
        finally:
            self.journal.append({"type": "failure", "sent": pace.sent, "requests": pace.sent})
        return replies[0].rows is not None

    def _settle(self, refused: list[int], found: list[Reply | None], digests: Sequence[str]) -> None:
        """Record refusals once the server has answered another question: it was not simply down."""
        kept = [(digests[place], reply) for place in refused if (reply := found[place]) is not None]
        if kept:
            self.journal.answered([name for name, _ in kept], [one for _, one in kept], sent=0, requests=0)
        refused.clear()


def _address(url: str) -> str:
    """Return the address of inference of a model, or of a complete address."""
    if type(url) is not str:
        raise ParameterError("the endpoint is no text", "give the address of the model")
    head, mark, query = url.partition("?")
    head = head.rstrip("/")
    return f"{head if head.endswith('/infer') else head + '/infer'}{mark}{query}"


def _mapping(given: Any) -> JsonMapping:
    """Return the mapping of a file or of a dictionary."""
    if isinstance(given, JsonMapping):
        return given
    return JsonMapping.of(given) if isinstance(given, Mapping) else JsonMapping.load(given)


def _terms(
    max_queries: int | None, price: float, budget: float | None
) -> tuple[int | None, float, float | None]:
    """Return the terms of an audit if they make sense."""
    if max_queries is not None:
        check_whole("max_queries", max_queries, 1, 1 << 40)
    check_number("price", price)
    if budget is not None:
        check_number("budget", budget)
    if price < 0 or (budget is not None and (budget <= 0 or price == 0)):
        raise ParameterError(
            f"price {price} and budget {budget} do not fit together", "give a budget together with a price"
        )
    return max_queries, float(price), budget


def _run(work: Coroutine[Any, Any, _Result]) -> _Result:
    """Run asynchronous work to its end, also where a loop is running, as in a notebook."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(work)
    done: list[Callable[[], _Result]] = []

    def run() -> None:
        try:
            result = asyncio.run(work)
            done.append(lambda: result)
        except BaseException as error:
            caught = error
            done.append(lambda: _raise(caught))

    thread = threading.Thread(target=run, name="endpoint")
    thread.start()
    thread.join()
    return done[0]()


def _raise(error: BaseException) -> Any:
    raise error
