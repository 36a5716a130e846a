"""Trace a leak: many marks against many suspects, one batched pass per suspect, every test counted."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import torch

from invgnn.audit.examine import Finding, examine
from invgnn.checks import check_whole
from invgnn.errors import ParameterError, SuspectError
from invgnn.graphs.attributed import Shown, joined
from invgnn.graphs.disjoint_union import ranges
from invgnn.nn.forward import Forward
from invgnn.readout.query import Suspect, ask
from invgnn.readout.replies import Replies
from invgnn.stats import laws
from invgnn.watermark.mark import Watermark

MARKS_AT_ONCE = 256
"""Number of marks whose questions are put to a suspect in one pass; more would only need more memory."""


@dataclass(frozen=True)
class Trace:
    """What one suspect answers to the questions of one mark.

    Guarantee: if a suspect is independent of all secrets, one of its marks is named with probability at
    most alpha, over all marks and all suspects of the table together.

    Attributes:
        suspect: Name of the suspect.
        mark: Name of the mark, such as a licensee.
        named: Whether the mark is detected at the level alpha, corrected for all marks and suspects.
        evidence_bits: Evidence in bits, corrected in the same way.
        log10_p: Base-10 logarithm of the p-value of this mark and suspect alone.
        matches: Number of matching bits at the level with the most evidence.
        m: Number of carriers.
        access: That level; empty if the suspect could not be read.
        note: Why it could not be read.
    """

    suspect: str
    mark: str
    named: bool
    evidence_bits: float
    log10_p: float
    matches: int
    m: int
    access: str
    note: str = ""

    def record(self) -> dict[str, Any]:
        """Return the row of a table."""
        return asdict(self)


def trace_suspect(
    name: str,
    suspect: Suspect,
    marks: Mapping[str, Watermark],
    *,
    alpha: float = 1e-6,
    suspects: int = 1,
    data: Any = None,
    forward: Forward | None = None,
) -> list[Trace]:
    """Test one suspect for many marks.

    Args:
        name: Name of the suspect.
        suspect: A module, or a function from a PyG batch to scores.
        marks: The marks by name.
        alpha: The false-positive rate of the whole table.
        suspects: Number of suspects in the table.
        data: The reference data, if a mark has a score channel.
        forward: How to call a model with an unusual signature.

    Returns:
        One row per mark, in the order of `marks`.

    Raises:
        ParameterError: If there are no marks, or one is plain.
        SuspectError: If the suspect cannot be queried.
    """
    laws.check_alpha(alpha)
    check_whole("suspects", suspects, 1, 2**62)
    plain = [one for one, mark in marks.items() if mark.context["key"] != "keyed"]
    if not marks or plain:
        what = f"{plain[0]} is a plain mark" if plain else "there are no marks"
        raise ParameterError(f"nothing can be traced: {what}", "trace with keyed marks, one per licensee")
    tests = len(marks) * suspects
    rows = {}
    for names in _groups(marks):
        replies = _ask_all(suspect, [marks[one] for one in names], forward)
        for one, reply in zip(names, replies, strict=True):
            rows[one] = _row(name, one, marks[one], suspect, reply, alpha, tests, data, forward)
    return [rows[one] for one in marks]


def _groups(marks: Mapping[str, Watermark]) -> Iterator[list[str]]:
    """Yield the names of marks that are read at the same layer, in groups of limited size."""
    alike: dict[Any, list[str]] = {}
    for name, mark in marks.items():
        shown, _ = mark.asked
        kind = (mark.layer, tuple(one.access for one in mark.readings), shown.x is None, tuple(shown.more))
        alike.setdefault(kind, []).append(name)
    for names in alike.values():
        for start in range(0, len(names), MARKS_AT_ONCE):
            yield names[start : start + MARKS_AT_ONCE]


def _ask_all(suspect: Suspect, marks: Sequence[Watermark], forward: Forward | None) -> list[Replies]:
    """Ask a suspect about all questions of several marks in one pass, and return the replies of each."""
    asked = [mark.asked for mark in marks]
    whole = joined([graphs for graphs, _ in asked])
    replies = ask(suspect, whole, marks[0].readings, forward or marks[0].forward)
    ends = np.cumsum([0, *(len(graphs) for graphs, _ in asked)])
    return [
        _part(replies, graphs, int(start)).labelled(labels, mark.classes)
        for (graphs, labels), start, mark in zip(asked, ends[:-1], marks, strict=True)
    ]


def _part(replies: Replies, graphs: Shown, start: int) -> Replies:
    """Return the replies to some consecutive questions."""
    chosen = np.arange(start, start + len(graphs))
    whole = replies.graphs
    by_node = len(replies.scores) != len(whole)
    rows = torch.from_numpy(ranges(whole.ptr[chosen], whole.sizes[chosen]) if by_node else chosen)
    places = torch.from_numpy(chosen)
    return replace(
        replies,
        graphs=graphs,
        scores=replies.scores[rows],
        embeddings=None if replies.embeddings is None else replies.embeddings[places],
        perceived=None if replies.perceived is None else replies.perceived[places],
        values=None if replies.values is None else replies.values[rows],
    )


def _row(
    suspect_name: str,
    mark_name: str,
    mark: Watermark,
    suspect: Suspect,
    replies: Replies,
    alpha: float,
    tests: int,
    data: Any,
    forward: Forward | None,
) -> Trace:
    """Return the row of one mark."""
    channel = None if mark.score_channel is None else mark.channel(data)
    try:
        found: Finding = examine(mark, suspect, channel=channel, forward=forward, replies=replies)
    except SuspectError as error:
        return Trace(suspect_name, mark_name, False, 0.0, 0.0, 0, mark.m, "", error.message[:300])
    return Trace(
        suspect=suspect_name,
        mark=mark_name,
        named=found.log_p <= laws.log_level(alpha, tests),
        evidence_bits=laws.evidence_bits(found.log_p, tests),
        log10_p=laws.log10_of(found.log_p),
        matches=found.evidence.matches,
        m=mark.m,
        access=found.best.access,
    )


def named(rows: Iterable[Trace]) -> dict[str, list[str]]:
    """Return for every suspect the marks that are named, the one with the most evidence first."""
    found: dict[str, list[Trace]] = {}
    for row in rows:
        found.setdefault(row.suspect, []).extend([row] if row.named else [])
    return {
        suspect: [row.mark for row in sorted(held, key=lambda row: -row.evidence_bits)]
        for suspect, held in found.items()
    }


def fewest_bits(alpha: float, tests: int) -> float:
    """Return the evidence, before the correction, that a mark needs to be named among so many tests."""
    return math.log2(tests) - math.log2(alpha)
