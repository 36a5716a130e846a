"""Read a suspect with the carriers of a partial opening, under the exact law of their own counts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from invgnn.court.claim import Claim
from invgnn.court.opening import Opened
from invgnn.errors import DataError, ParameterError, SuspectError
from invgnn.graphs.attributed import Attributed
from invgnn.graphs.disjoint_union import Bools, Graphs, Ints
from invgnn.nn.forward import Forward
from invgnn.readout.answers import Answers
from invgnn.readout.query import Suspect, ask
from invgnn.readout.reading import Direction, Reading
from invgnn.secret import SIZE
from invgnn.stats import laws
from invgnn.stats.evidence import decode
from invgnn.watermark.directions import PREFIXES, directions_of, stream_parts
from invgnn.watermark.questions import Questions


@dataclass(frozen=True, eq=False)
class Revealed:
    """The carriers of a partial opening with their bits, all shown to belong to the claim.

    Attributes:
        questions: The carriers, the ordinary inputs and their labels.
        bits: The bit of each carrier.
        direction: The secret's vectors for the declared readings.
        readings: The readings that can be made.
    """

    questions: Questions
    bits: Ints
    direction: Direction
    readings: tuple[Reading, ...]


@dataclass(frozen=True, eq=False)
class PartialEvidence:
    """The evidence in the answers to some carriers.

    Guarantee: if the claimant drew the bits at random before the suspect existed, Pr[p <= u] <= u, given
    the number of ones among the revealed bits and among the answers. Nobody can check that the bits were
    drawn at random.

    Attributes:
        access: The level with the most evidence.
        matches: Number of matching bits.
        carriers: Number of revealed carriers.
        ones: Number of answers decoded as 1.
        key_ones: Number of ones among the revealed bits.
        tests: Number of tests: declared levels times ways to read the columns.
        log_p: Natural log of the p-value, corrected for these tests.
        decoded: The decoded answers.
        queries: Number of inputs that the suspect was queried with.
    """

    access: str
    matches: int
    carriers: int
    ones: int
    key_ones: int
    tests: int
    log_p: float
    decoded: Bools
    queries: int

    def record(self) -> dict[str, Any]:
        """Return the evidence as JSON values."""
        return {
            "access": self.access,
            "matches": self.matches,
            "m": self.carriers,
            "ones": self.ones,
            "key_ones": self.key_ones,
            "tests": self.tests,
            "statistic": "matches",
            "null": "exact given the number of ones",
            "log10_p": laws.log10_of(self.log_p),
            "p": laws.p_of(self.log_p),
            "evidence_bits": laws.evidence_bits(self.log_p),
            "queries": self.queries,
        }


def reveal(claim: Claim, opened: Opened) -> Revealed:
    """Check the leaves of a partial opening against the claim.

    Args:
        claim: The claim.
        opened: The opening.

    Raises:
        ParameterError: If leaves are missing, are too many, or do not belong to the claim.
    """
    m, tree = claim.context["m"], claim.payload["tree"]
    if opened.form == "prefix":
        chosen = list(range(claim.rule["prefix"]))
    elif opened.challenge is not None:
        opened.challenge.check(claim, opened.judge)
        if opened.challenge.case != opened.case:  # whoever may use an old challenge chooses the carriers
            raise ParameterError("the challenge was drawn for another case", "answer that of this case")
        chosen = opened.challenge.drawn(claim)
    else:
        raise ParameterError("a full opening reveals no single leaves", "use it as a full opening")
    wanted = [*chosen, *range(m, tree["leaves"])]
    if [leaf.index for leaf in opened.leaves] != wanted:
        raise ParameterError(
            "the opening reveals other leaves than were declared or drawn", "ask for exactly these leaves"
        )
    try:
        if not all(leaf.leads_to(tree["root"], tree["leaves"]) for leaf in opened.leaves):
            raise ParameterError("a leaf does not belong to the claim", "ask for another opening")
        return _revealed(claim, [leaf.value for leaf in opened.leaves], len(chosen))
    except (LookupError, TypeError, ValueError, ArithmeticError, AttributeError, DataError) as error:
        raise ParameterError(f"a leaf is malformed ({type(error).__name__})", "ask for another") from None


def _revealed(claim: Claim, values: list[dict[str, Any]], size: int) -> Revealed:
    """Return what leaves say that belong to the claim."""
    shown, (usual, *ways) = values[:size], values[size:]
    carriers = Graphs.concat([Graphs.recall(one["carrier"]) for one in shown])
    bits = np.array([one["bit"] for one in shown], dtype=np.int64)
    if len(carriers) != size or not set(bits.tolist()) <= {0, 1}:
        raise ParameterError("a leaf does not hold one carrier and one bit", "ask for another opening")
    classes = claim.context["classes"]
    streams = {one["access"]: one["stream"] for one in ways}
    if not all(type(key) is bytes and len(key) == SIZE for key in streams.values()):
        raise ParameterError("a leaf holds no key of a direction", "ask for another opening")
    if len(streams) != len(ways):
        raise ParameterError("two leaves hold keys of one level", "ask for another opening")
    if "shared_halves" in claim.context and streams.get("logits") != streams.get("labels"):
        raise ParameterError(
            "the claim says that logits and labels share a direction, and the leaves hold two",
            "ask for another opening",
        )
    readings = tuple(
        one
        for one in map(Reading.recall, claim.context["readings"])
        if one.access in streams and (one.access in PREFIXES or len(stream_parts(one.access, classes)) > 1)
    )
    ordinary = Graphs.recall(usual["ordinary"])
    rich = [Attributed.recall(one["shown"]) for one in (*shown, usual) if "shown" in one]
    if rich and [len(one) for one in rich] != [*[1] * size, len(ordinary)]:
        raise ParameterError("a leaf does not show one carrier", "ask for another opening")
    as_shown = Attributed.concat(rich) if rich else None
    known = usual["labels"]
    count = len(ordinary) if claim.context["level"] == "graph" else ordinary.num_nodes
    if known is not None and not _are_labels(known, count, classes):
        raise ParameterError("a leaf holds no labels of the ordinary inputs", "ask for another opening")
    questions = Questions(carriers, ordinary, known, as_shown)
    return Revealed(questions, bits, directions_of(streams, classes), readings)


def _are_labels(found: Any, count: int, classes: int | None) -> bool:
    """Return whether a value is an array of classes, one per ordinary input or node; -1 is unknown."""
    sound = isinstance(found, np.ndarray) and found.dtype.kind in "iu" and found.shape == (count,)
    return sound and bool(np.all((found >= -1) & (found < (classes or 2**31))))


def read_partial(
    shown: Revealed, claim: Claim, suspect: Suspect, order: Ints, forward: Forward | None = None
) -> PartialEvidence:
    """Ask a suspect about the revealed carriers and the ordinary inputs.

    Args:
        shown: The revealed carriers.
        claim: The claim.
        suspect: A module, or a function from a PyG batch to scores.
        order: The order of the questions, drawn by the judge.
        forward: How to call a model with an unusual signature.

    Raises:
        SuspectError: If the suspect cannot be read at any declared level.
    """
    asked, labels = shown.questions.in_order(order, claim.context["level"])
    replies = ask(suspect, asked, shown.readings, forward).labelled(labels, claim.context["classes"])
    found = []
    for columns in replies.alignments:
        for reading in shown.readings:
            try:
                raw = np.empty(len(order))
                raw[order] = replies.answers(reading, shown.direction, columns)
                answers = Answers.of(reading, raw, len(shown.bits))
            except SuspectError:
                continue
            found.append((reading, answers))
    if not found:
        raise SuspectError("the suspect cannot be read at any declared level", "pass the model itself")
    tests = len(claim.context["readings"]) * len(replies.alignments)
    each = [_evidence(reading, answers, shown.bits, tests, len(order)) for reading, answers in found]
    return min(each, key=lambda one: one.log_p)


def _evidence(reading: Reading, answers: Answers, bits: Ints, tests: int, queries: int) -> PartialEvidence:
    """Return the evidence of one reading."""
    decoded = decode(answers.carriers, 0.5 if reading.binary else None)
    matches, ones = int((decoded == (bits == 1)).sum()), int(decoded.sum())
    log_p = laws.log_p_matches(matches, len(bits), ones, int(bits.sum()))
    return PartialEvidence(
        access=reading.access,
        matches=matches,
        carriers=len(bits),
        ones=ones,
        key_ones=int(bits.sum()),
        tests=tests,
        log_p=laws.log_p_times(log_p, tests),
        decoded=decoded,
        queries=queries,
    )


def as_good(decoded: Bools, bits: Ints, keys: Sequence[Ints]) -> tuple[int, int]:
    """Return the most matches that other keys have with the answers, and how many have as many as the key.

    Args:
        decoded: The decoded answers.
        bits: The key.
        keys: Other keys with equally many ones.
    """
    own = int((decoded == (bits == 1)).sum())
    counts = [int((decoded == (key == 1)).sum()) for key in keys]
    return max(counts), sum(count >= own for count in counts)
