"""Audit a suspect question by question, and stop as soon as the evidence suffices or is hopeless."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from invgnn.audit.examine import Finding, Level, refusal_of
from invgnn.audit.remote.session import Session
from invgnn.audit.votes import RANKS, RULES, SHARES, votes_of
from invgnn.checks import check_choice, check_number
from invgnn.errors import BudgetError, ParameterError, SuspectError
from invgnn.readout.alignment import Columns
from invgnn.readout.answers import Answers
from invgnn.readout.query import gather
from invgnn.readout.reading import Access, Reading
from invgnn.readout.replies import Replies
from invgnn.stats import laws
from invgnn.stats.evidence import Evidence
from invgnn.stats.sequential import RATES, Bettor, log_e_value, log_p_of
from invgnn.watermark.baseline import log_probabilities_of
from invgnn.watermark.mark import Watermark
from invgnn.watermark.score_channel import ScoreChannel
from invgnn.watermark.score_shift import ScoreShift

Floats = NDArray[np.float64]
Method = Literal["betting", "sprt"]
Progress = Callable[[dict[str, Any]], None]
"""A function that is called with the state of an audit after every step."""

STEP = 16
"""Most questions between two decisions."""
STOPS = {
    "enough": "the evidence was enough",
    "hopeless": "the evidence was hopeless",
    "all": "all carriers were asked",
    "budget": "the budget was used up",
}
"""Why an audit ends."""


@dataclass(frozen=True)
class Sequential:
    """How to test a suspect question by question.

    Attributes:
        method: `betting` learns how well the suspect matches. `sprt` is Wald's test, which assumes one
            match rate.
        bits: Evidence in bits at which to stop; None for as much as a verdict `owned` needs.
        rate: The match rate that `sprt` assumes.
        miss: Accepted probability of giving up on a copy that matches 72 % of the bits or more (`sprt`: the
            assumed rate).

    Raises:
        ParameterError: If a value is invalid.
    """

    method: Method = "betting"
    bits: float | None = None
    rate: float = 0.85
    miss: float = 1e-3

    def __post_init__(self) -> None:
        check_choice("method", self.method, get_args(Method))
        for name in ("rate", "miss", *(() if self.bits is None else ("bits",))):
            check_number(name, getattr(self, name))
        if not 0.5 < self.rate < 1 or not 0 < self.miss < 1 or (self.bits is not None and self.bits < 0):
            raise ParameterError(
                f"rate={self.rate}, miss={self.miss}, bits={self.bits}",
                "use a rate between 1/2 and 1, a miss between 0 and 1, and bits of at least 0",
            )

    @property
    def rates(self) -> tuple[float, ...]:
        """The match rates that bettors assume."""
        return RATES if self.method == "betting" else (self.rate,)

    def record(self) -> dict[str, Any]:
        """Return the settings as JSON values."""
        return {"method": self.method, "rate": self.rate, "miss": self.miss}


def examine_sequentially(
    mark: Watermark,
    session: Session,
    sequential: Sequential,
    *,
    alpha: float,
    suspects: int,
    bits: float,
    access: Access | None = None,
    channel: ScoreChannel | None = None,
    rules: int = RULES,
) -> Finding:
    """Ask carriers in the secret's order, bet on each bit before it is used, and stop early.

    Every level that the server offers and both ways to read the columns share the wealth in equal parts, so
    all of them are paid for. A tie, or a question without an answer, is not bet on. A score channel is only
    read if the carriers were not enough; its p-value then multiplies the wealth.

    A decision is made after 16 questions, or after fewer if these could be enough.

    Guarantee: for a server whose answers depend on the secret only through the questions that it was asked,
    Pr[log_p <= log u] <= u for every u, also if the server adapts its answers to earlier questions and to
    how long the audit lasts.

    Args:
        mark: The mark.
        session: The questions to the server.
        sequential: The method.
        alpha: The accepted false-positive rate.
        suspects: Number of suspects tested with this mark.
        bits: Evidence at which to stop.
        access: One of the declared levels, to read only that one.
        channel: The mark's score channel, if it has one.
        rules: The rules of betting and deciding, those of an earlier version for its transcripts.

    Returns:
        The finding, with the reason why the audit ended.

    Raises:
        SuspectError: If no level can be read.
    """
    course = _Course(mark, session, sequential, access, rules)
    limit = laws.log_level(alpha, suspects)
    aim = max(-limit, (bits + math.log2(suspects)) * math.log(2))

    def evidence() -> float:
        return laws.evidence_bits(course.bettor.wealth.log_p, suspects)

    stop = "all"
    while session.position < len(session.items):
        try:
            session.advance(course.step(aim))
        except BudgetError:
            stop = "budget"
            break
        course.bet()
        session.report(evidence_bits=evidence())
        log_p = course.bettor.wealth.log_p
        if log_p <= limit and evidence() >= bits:
            stop = "enough"
            break
        if log_p > limit and course.is_hopeless(sequential.miss):
            stop = "hopeless"
            break
        if course.bettor.wealth.asked == mark.m:
            break
    shift = None
    if channel is not None and stop in ("hopeless", "all"):
        shift = course.read_channel(channel)
    session.finish(early=stop == "budget")
    return course.finding(stop, shift)


class _Course:
    """The state of a sequential audit: bets made so far, and the votes that they were made by."""

    def __init__(
        self, mark: Watermark, session: Session, how: Sequential, access: Access | None, rules: int
    ) -> None:
        self.mark, self.session, self.readings, self.rules = mark, session, mark.readings, rules
        self.read = [reading for reading in mark.readings if access in (None, reading.access)]
        self.kinds = len(SHARES[rules])
        ways = [share / (2 * len(self.readings)) for share in SHARES[rules]]
        self.bettor = Bettor.start(
            mark.m, [share for _ in range(2 * len(self.readings)) for share in ways], how.rates
        )
        self.method, self.extra = how.method, -math.inf
        self.votes: dict[int, Floats] = {}
        self.replies: Replies | None = None
        self.places: list[int] = []

    def step(self, aim: float) -> int:
        """Return how many questions to ask before the next decision.

        Args:
            aim: Natural logarithm of the wealth that is enough. It may be reached once there are as many
                further carriers as bits are missing.
        """
        if self.rules == 1:
            return STEP
        due = max(1, math.ceil((aim - self.bettor.wealth.log_wealth) / math.log(2)))
        position = self.session.position
        for number, item in enumerate(self.session.items[position : position + STEP], 1):
            own = not item.again and item.place < len(self.mark.order)
            due -= own and int(self.mark.order[item.place]) < self.mark.m
            if due == 0:
                return number
        return STEP

    def bet(self) -> None:
        """Bet on the bits of all carriers that were answered or refused since the last time."""
        self.places = list(self.session.found)  # in the order in which they were asked
        fresh = [p for p in self.places if self.mark.order[p] < self.mark.m and p not in self.votes]
        if not fresh:
            return
        votes = self._all_votes()  # from answers alone, before any of these bits is used
        awake = None if self.rules == 1 else (votes != 0).any(1)
        for place in fresh:
            self.votes[place] = votes[:, self.places.index(place)]
            bit = int(self.mark.bits[self.mark.order[place]])
            self.bettor = self.bettor.after(self.votes[place], bit, awake)

    def is_hopeless(self, miss: float) -> bool:
        """Return whether to give up: no threshold, at no level that is read, promises a match."""
        ways = [2 * at + way for at, one in enumerate(self.readings) if one in self.read for way in (0, 1)]
        rows = [way * self.kinds + kind for way in ways for kind in range(self.kinds) if kind != RANKS]
        voted = [row for row in rows if any(votes[row] for votes in self.votes.values())]
        return self.bettor.is_hopeless(miss, readings=voted)

    def _all_votes(self) -> Floats:
        """Return the votes of every way to read, for all questions answered so far [ways, questions]."""
        blank = np.zeros((self.kinds, len(self.places)))
        parts = self.session.parts(self.places)
        if not parts:
            return np.concatenate([blank] * 2 * len(self.readings))
        graphs, labels = self.mark.questions.in_order(self.mark.order[self.places], self.mark.level)
        self.replies = gather(graphs, parts, self.read).labelled(labels, self.mark.classes)
        ways = self.replies.alignments
        found = []
        for reading in self.readings:
            for columns in (ways[0], ways[-1]):
                values = self._values(reading, columns)
                votes = None if values is None else votes_of(values, self._carriers, reading.binary)
                found.append(blank if votes is None else votes[: self.kinds])
        return np.concatenate(found)

    @property
    def _carriers(self) -> NDArray[np.bool_]:
        """Which of the questions are carriers."""
        return np.asarray(self.mark.order[self.places] < self.mark.m)

    def _values(self, reading: Reading, columns: Columns) -> Floats | None:
        """Return the answers at one level, or None if it is not read."""
        if reading not in self.read or self.replies is None:
            return None
        try:
            return self.replies.answers(reading, self.mark.direction, columns)
        except SuspectError:
            return None

    def read_channel(self, channel: ScoreChannel) -> ScoreShift:
        """Read the score channel, and multiply the wealth by what it is worth."""
        scores = log_probabilities_of(self.session, channel.inputs)
        shift = channel.measure(scores)
        self.extra = self.bettor.wealth.log_wealth + log_e_value(shift.log_p)
        return shift

    def finding(self, stop: str, shift: ScoreShift | None) -> Finding:
        """Return the result in the form of any other examination."""
        if self.replies is None:
            raise SuspectError("no carrier was answered", "raise the budget, or check the server")
        log_p = log_p_of(max(self.bettor.wealth.best, self.extra))
        ways = self.replies.alignments
        gained = self.bettor.log_ratios.max(1).reshape(len(self.readings), 2, self.kinds)
        at, way, kind = (int(place) for place in np.unravel_index(gained.argmax(), gained.shape))
        columns = ways[0 if way == 0 else -1]
        levels = tuple(
            self._level(reading, columns, way * self.kinds + kind, log_p) for reading in self.read
        )
        readable = [level for level in levels if level.evidence is not None]
        if not readable:
            notes = "; ".join(f"{level.access}: {level.note}" for level in levels)
            raise SuspectError(f"the suspect cannot be read at any declared level: {notes}", _READ)
        best = next((one for one in readable if one.access == self.readings[at].access), readable[0])
        return Finding(
            levels=levels,
            best=best,
            score_shift=shift,
            columns=columns,
            aligned=columns != ways[0],
            tests=2 * len(self.readings) if self.rules == 1 else 1,  # all share one wealth
            log_p=log_p,
            refusal=refusal_of(readable, len(self.votes), len(self.places) - len(self.votes)),
            queries=self.session.position + (0 if shift is None else shift.inputs),
            stop=stop,
        )

    def _level(self, reading: Reading, columns: Columns, way: int, log_p: float) -> Level:
        """Return matches and answers at one level; the evidence belongs to all levels together."""
        values, mine = self._values(reading, columns), self._carriers
        if values is None:
            return Level(reading.access, None, None, "the server returns scores or labels only")
        try:
            answers = Answers.of(reading, np.concatenate([values[mine], values[~mine]]), int(mine.sum()))
        except SuspectError as error:
            return Level(reading.access, None, None, error.message)
        row = self.readings.index(reading) * 2 * self.kinds + way
        said = np.array([votes[row] for votes in self.votes.values()])
        bits = self.mark.bits[self.mark.order[list(self.votes)]]
        matches, ones = int(((said > 0) == (bits == 1))[said != 0].sum()), int((said > 0).sum())
        return Level(
            reading.access, answers, Evidence(self.method, log_p, len(said), matches, ones, 0, False)
        )


_READ = "ask a server that returns finite scores or labels for ordinary inputs"
