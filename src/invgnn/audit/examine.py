"""Read a suspect at every declared access level, and combine the evidence of all of them."""

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
from invgnn.watermark.baseline import log_probabilities_of
from invgnn.watermark.mark import Watermark
from invgnn.watermark.score_channel import ScoreChannel
from invgnn.watermark.score_shift import ScoreShift


@dataclass(frozen=True, eq=False)
class Level:
    """The result at one access level, for one assignment of columns to classes.

    Attributes:
        access: The access level.
        answers: The suspect's answers. None if it cannot be read at this level.
        evidence: The evidence in the answers, as if nothing else had been read. None if there are none.
        note: Why the suspect cannot be read at this level.
    """

    access: Access
    answers: Answers | None
    evidence: Evidence | None
    note: str = ""

    @property
    def constant(self) -> bool:
        """Whether the answer is the same on every carrier, or there is none."""
        return self.answers is None or bool(np.ptp(self.answers.carriers) == 0)


@dataclass(frozen=True)
class Refusal:
    """How many inputs a suspect refused, answered without numbers, or answered all alike.

    Guarantee: given the total number of refused inputs, and if being a carrier has no influence on being
    refused, Pr[p <= u] <= u: Fisher's exact test, one-sided. It shows that carriers are treated
    differently, not whose model this is.

    Attributes:
        carriers: Number of refused carriers.
        ordinary: Number of refused ordinary inputs.
        asked_carriers: Number of carriers that the suspect was queried with.
        asked_ordinary: Number of ordinary inputs that it was queried with.
    """

    carriers: int
    ordinary: int
    asked_carriers: int
    asked_ordinary: int

    @property
    def log_p(self) -> float:
        """Natural log of the probability that so many of the refused inputs are carriers."""
        total, refused = self.asked_carriers + self.asked_ordinary, self.carriers + self.ordinary
        if not refused:
            return 0.0
        found = float(hypergeom.logsf(self.carriers - 1, total, self.asked_carriers, refused))
        return min(0.0, found + 1e-6 * abs(found))  # scipy's error is far below


@dataclass(frozen=True, eq=False)
class Finding:
    """The evidence for a mark in a suspect's replies.

    Attributes:
        levels: The result at each level, for the assignment of columns with the most evidence.
        best: The level with the most evidence.
        score_shift: The result of the score channel, if the mark has one.
        columns: For each class the column that was read.
        aligned: Whether the columns were read in another order than they come in.
        tests: Number of tests: declared levels times ways to read the columns.
        log_p: Natural log of the p-value of all results together, corrected for these tests.
        refusal: The number of refused inputs.
        queries: Number of inputs that the suspect was queried with.
        stop: Why a sequential audit ended; None if all questions were asked and tested together.
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
    stop: str | None = None

    @property
    def constant(self) -> bool:
        """Whether the answer is the same on every carrier, at every level."""
        return all(level.constant for level in self.levels)

    @property
    def evidence(self) -> Evidence:
        """The evidence of the best level; a `SuspectError` is raised if no level could be read."""
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
    replies: Replies | None = None,
) -> Finding:
    """Read a suspect at every declared level that it supports, in one pass.

    The number of tests is the number of declared levels times the number of ways to read the columns. All
    declared levels count, also if the suspect does not support some of them or only one is requested. The
    same scores therefore give the same evidence, however the suspect is passed.

    Guarantee: for a suspect independent of the secret Pr[log_p <= log u] <= u for every u. The columns, the
    number of tests and the levels depend on the suspect's replies and on labels that the key is bound to.

    Args:
        mark: The mark.
        suspect: A module, or a function from a PyG batch to scores.
        access: A declared level, to read only that one. The number of tests stays the same.
        channel: The mark's score channel, if it has one.
        forward: How to call a model with an unusual signature.
        replies: What `mark.ask` would return, if the suspect was asked about many marks at once.

    Returns:
        The finding.

    Raises:
        SuspectError: If no level can be read.
    """
    readings = mark.readings if access is None else [mark.reading(access)]
    replies = mark.ask(suspect, readings, forward) if replies is None else replies
    scores = (
        None if channel is None else log_probabilities_of(suspect, channel.inputs, forward or mark.forward)
    )
    ways = [
        _read(mark, replies, [r.access for r in readings], columns, channel, scores)
        for columns in replies.alignments
    ]
    tests = len(mark.readings) * len(ways)
    found = [(_together(levels, shift, len(mark.readings)), levels, shift) for levels, shift in ways]
    best = min(range(len(found)), key=lambda i: found[i][0])
    log_p, levels, shift = found[best]
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
        score_shift=shift,
        columns=replies.alignments[best],
        aligned=best > 0,
        tests=tests,
        log_p=laws.log_p_times(log_p, len(ways)),
        refusal=refusal_of(readable, mark.m, len(mark.ordinary)),
        queries=mark.m + len(mark.ordinary) + (0 if shift is None else shift.inputs),
    )


def _read(
    mark: Watermark,
    replies: Replies,
    accesses: Sequence[Access],
    columns: Columns,
    channel: ScoreChannel | None,
    scores: Any,
) -> tuple[tuple[Level, ...], ScoreShift | None]:
    """Read all levels and the score channel, for one assignment of columns to classes."""
    levels = tuple(_level(mark, replies, access, columns) for access in accesses)
    return levels, None if channel is None else _shift(mark, channel, scores, columns)


def _level(mark: Watermark, replies: Replies, access: Access, columns: Columns) -> Level:
    """Read one level, or note why it cannot be read."""
    try:
        answers = mark.answers(replies, mark.reading(access), columns)
    except SuspectError as error:
        return Level(access, None, None, error.message)
    return Level(access, answers, mark.evidence(answers))


def _shift(mark: Watermark, channel: ScoreChannel, scores: Any, columns: Columns) -> ScoreShift:
    """Measure the score shift, with the columns assigned to classes where the suspect has them all."""
    width = scores.shape[1]
    fits = mark.classes is not None and max(columns) < width
    rows = select(torch.from_numpy(scores), columns).numpy() if fits else scores
    return channel.measure(rows)


def _together(levels: Sequence[Level], shift: ScoreShift | None, declared: int) -> float:
    """Return log p of the best level, corrected for the declared ones, together with the score channel."""
    found = min((level.evidence.log_p for level in levels if level.evidence is not None), default=0.0)
    carriers = laws.log_p_times(found, declared)
    return carriers if shift is None else laws.log_p_channels([carriers, shift.log_p])


def refusal_of(levels: Sequence[Level], carriers: int, ordinary: int) -> Refusal:
    """Count refusals at the first level that reads scores, or at the first level if none does.

    Args:
        levels: The levels that could be read.
        carriers: Number of carriers that the suspect was queried with.
        ordinary: Number of ordinary inputs that it was queried with.
    """
    answers = [level.answers for level in levels if level.answers is not None]
    one = next((one for one in answers if not one.reading.hidden), answers[0])  # one level, so one test
    return Refusal(
        one.refused_carriers + one.alike_carriers,
        one.refused_ordinary + one.alike_ordinary,
        carriers,
        ordinary,
    )


def with_channel(evidence: Evidence, shift: ScoreShift | None) -> Evidence:
    """Return the evidence of carriers and score channel together.

    The two are derived from independent streams of the secret, so their p-values may be multiplied
    (Fisher's method).

    Args:
        evidence: The evidence of the carriers.
        shift: The result of the score channel, if there is one.

    Returns:
        The evidence, unchanged if there is no score channel.
    """
    if shift is None:
        return evidence
    both = laws.log_p_channels([evidence.log_p, shift.log_p])
    return replace(evidence, log_p=both, statistic=f"{evidence.statistic} and score shift")
