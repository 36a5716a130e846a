"""examine(mark, suspect): every declared reading of a suspect, and the evidence in all of them together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from scipy.stats import hypergeom

from invgnn.errors import SuspectError
from invgnn.nn.forward import Forward
from invgnn.readout.alignment import Columns, select
from invgnn.readout.answers import Answers
from invgnn.readout.query import Suspect
from invgnn.readout.reading import Access
from invgnn.readout.replies import Replies
from invgnn.stats import laws
from invgnn.stats.evidence import Evidence
from invgnn.watermark.mark import Watermark
from invgnn.watermark.score_channel import ScoreChannel, ScoreShift, log_probabilities_of


@dataclass(frozen=True, eq=False)
class Level:
    """What one access level shows, under one way to read the columns.

    Attributes:
        access: The access level.
        answers: The suspect's answers; None where it cannot be read there.
        evidence: The evidence in them, as if nothing else had been read; None likewise.
        note: Why it cannot be read.
    """

    access: Access
    answers: Answers | None
    evidence: Evidence | None
    note: str = ""

    @property
    def constant(self) -> bool:
        """Whether the suspect answers the same on every carrier."""
        return self.answers is None or bool(np.ptp(self.answers.carriers) == 0)


@dataclass(frozen=True)
class Refusal:
    """How many questions a suspect refused, answered with no numbers, or all with the same ones.

    Guarantee: given how many questions are refused in all, and if being a carrier has no influence on
    being refused, Pr[p <= u] <= u: Fisher's exact test, one-sided. It shows that carriers are treated
    differently, not whose model this is.
    """

    carriers: int
    ordinary: int
    asked_carriers: int
    asked_ordinary: int

    @property
    def log_p(self) -> float:
        """Logarithm of the chance that so many of the refused questions are carriers."""
        total, refused = self.asked_carriers + self.asked_ordinary, self.carriers + self.ordinary
        if not refused:
            return 0.0
        found = float(hypergeom.logsf(self.carriers - 1, total, self.asked_carriers, refused))
        return min(0.0, found + 1e-6 * abs(found))  # scipy's error is far below


@dataclass(frozen=True, eq=False)
class Finding:
    """What a suspect's replies show of a mark.

    Attributes:
        levels: Every declared level, under the way to read columns that shows most.
        best: The level with the most evidence.
        score_shift: What the score channel shows, if the mark has one.
        columns: Which column was read as which class.
        aligned: Whether that is another order than the one in which the columns come.
        tests: How many tests were made: declared levels times ways to read the columns.
        log_p: Natural log of the p-value of everything together, all these tests paid for.
        refusal: How many questions were refused.
        queries: How many inputs the suspect was asked about.
    """

    levels: tuple[Level, ...]
    best: Level
    score_shift: ScoreShift | None
    columns: Columns
    aligned: bool
    tests: int
    log_p: float
    refusal: Refusal
    queries: int

    @property
    def constant(self) -> bool:
        """Whether no level shows anything but one answer for all carriers."""
        return all(level.constant for level in self.levels)

    @property
    def evidence(self) -> Evidence:
        """The counts of the best level."""
        if self.best.evidence is None:
            raise SuspectError("no level could be read", self.best.note)
        return self.best.evidence


def examine(
    mark: Watermark,
    suspect: Suspect,
    *,
    access: Access | None = None,
    channel: ScoreChannel | None = None,
    forward: Forward | None = None,
) -> Finding:
    """Read a suspect at every level that was declared and that it can answer, in one pass.

    The number of tests is the number of declared levels, whether or not the suspect can answer them all or
    only one of them is asked for, times the ways to read its columns. So the same scores cost the same,
    however the suspect is passed.

    Args:
        mark: The mark.
        suspect: A module, or a function from a PyG batch to scores.
        access: One declared level to read alone; it is paid for like all.
        channel: The mark's score channel, if it has one.
        forward: How to call an unusual model.

    Raises:
        SuspectError: If no level can be read.

    Guarantee: for a suspect independent of the secret Pr[log_p <= log u] <= u for every u. The columns, the
    number of tests and the levels depend on the suspect's replies and on labels that the key is bound to.
    """
    readings = mark.readings if access is None else [mark.reading(access)]
    replies = mark.ask(suspect, readings, forward)
    scores = (
        None if channel is None else log_probabilities_of(suspect, channel.inputs, forward or mark.forward)
    )
    ways = [
        _read(mark, replies, [r.access for r in readings], columns, channel, scores)
        for columns in replies.alignments
    ]
    tests = len(mark.readings) * len(ways)
    found = [(_together(levels, lean, len(mark.readings)), levels, lean) for levels, lean in ways]
    best = min(range(len(found)), key=lambda i: found[i][0])
    log_p, levels, lean = found[best]
    readable = [level for level in levels if level.evidence is not None]
    if not readable and len(levels) == 1 and levels[0].access in replies.failures:
        raise replies.failures[levels[0].access]
    if not readable:
        raise SuspectError(
            "the suspect cannot be read at any declared level: "
            + "; ".join(f"{level.access}: {level.note}" for level in levels),
            "pass the model itself, or a function that returns finite scores for ordinary inputs",
        )
    return Finding(
        levels=levels,
        best=min(readable, key=lambda level: level.evidence.log_p if level.evidence else 0.0),
        score_shift=lean,
        columns=replies.alignments[best],
        aligned=best > 0,
        tests=tests,
        log_p=laws.log_p_times(log_p, len(ways)),
        refusal=_refusal(readable, mark),
        queries=mark.m + len(mark.ordinary) + (0 if lean is None else lean.inputs),
    )


def _read(
    mark: Watermark,
    replies: Replies,
    accesses: Sequence[Access],
    columns: Columns,
    channel: ScoreChannel | None,
    scores: Any,
) -> tuple[tuple[Level, ...], ScoreShift | None]:
    """All levels and the score channel, given which column is which class."""
    levels = tuple(_level(mark, replies, access, columns) for access in accesses)
    return levels, None if channel is None else _lean(mark, channel, scores, columns)


def _level(mark: Watermark, replies: Replies, access: Access, columns: Columns) -> Level:
    try:
        answers = mark.answers(replies, mark.reading(access), columns)
    except SuspectError as error:
        return Level(access, None, None, error.message)
    return Level(access, answers, mark.evidence(answers))


def _lean(mark: Watermark, channel: ScoreChannel, scores: Any, columns: Columns) -> ScoreShift:
    width = scores.shape[1]
    fits = mark.classes is not None and max(columns) < width
    rows = select(torch.from_numpy(scores), columns).numpy() if fits else scores
    return channel.measure(rows)


def _together(levels: Sequence[Level], lean: ScoreShift | None, declared: int) -> float:
    """Log p of the best level, the declared ones paid for, and the score channel."""
    found = min((level.evidence.log_p for level in levels if level.evidence is not None), default=0.0)
    carriers = laws.log_p_times(found, declared)
    return carriers if lean is None else laws.log_p_channels([carriers, lean.log_p])


def _refusal(levels: Sequence[Level], mark: Watermark) -> Refusal:
    """What was refused at the first level that reads scores, or at the first of all."""
    answers = [level.answers for level in levels if level.answers is not None]
    one = next((one for one in answers if not one.reading.hidden), answers[0])  # one level, so one test
    return Refusal(
        one.refused_carriers + one.alike_carriers,
        one.refused_ordinary + one.alike_ordinary,
        mark.m,
        len(mark.ordinary),
    )


def with_channel(evidence: Evidence, lean: ScoreShift | None) -> Evidence:
    """Return the evidence of carriers and score channel: two streams of one secret, so independent."""
    if lean is None:
        return evidence
    both = laws.log_p_channels([evidence.log_p, lean.log_p])
    return replace(evidence, log_p=both, statistic=f"{evidence.statistic} and lean")
