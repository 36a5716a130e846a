"""Smoothing of every bit separately: majority votes over noise draws, and the radius where they hold."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtri

from invgnn.errors import ParameterError
from invgnn.graphs.disjoint_union import Bools, Floats, Ints
from invgnn.readout.answers import Answers
from invgnn.stats import laws
from invgnn.stats.evidence import Evidence, decode, evidence_of
from invgnn.theory.margins import as_key, worst_log_p
from invgnn.theory.smoothing import (
    DELTA,
    DRAWS,
    RESTS_ON,
    Noise,
    lower_share,
    share_for_majority,
)
from invgnn.theory.statement import Assumption, Statement
from invgnn.watermark.mark import Watermark


def said(answers: Answers) -> Bools:
    """Return one bit per carrier: whether its answer is above the suspect's usual answer."""
    usual = 0.5 if answers.reading.binary else float(np.median(answers.ordinary))
    return decode(answers.carriers, usual)


@dataclass(frozen=True, eq=False)
class Votes:
    """The votes of many noise draws.

    Attributes:
        ones: Number of draws that decode each carrier as 1.
        read: Number of draws that could be read.
        draws: Number of all draws.
    """

    ones: Ints
    read: int
    draws: int

    def __post_init__(self) -> None:
        counts = np.asarray(self.ones)
        whole = counts.ndim == 1 and counts.size > 0 and np.issubdtype(counts.dtype, np.integer)
        if not (whole and counts.min() >= 0 and counts.max() <= self.read <= self.draws and self.draws > 0):
            raise ParameterError(
                f"the votes are inconsistent: {self.read} of {self.draws} draws were read",
                "create votes with `count_votes`",
            )

    @property
    def unreadable(self) -> int:
        """Number of draws that could not be read."""
        return self.draws - self.read

    def right(self, bits: Bools) -> Ints:
        """Return how many draws decode each bit right; a draw that could not be read counts as wrong."""
        return np.where(bits, self.ones, self.read - self.ones)


def count_votes(said: Iterable[Bools | None], m: int) -> Votes:
    """Count the votes of many draws.

    Args:
        said: The m bits of every draw, or None where the model could not be read.
        m: Number of carriers.
    """
    rows = [*said]
    told = [row for row in rows if row is not None]
    return Votes(np.sum([np.zeros(m), *told], axis=0).astype(np.int64), len(told), len(rows))


def read_votes(mark: Watermark, seen: Iterable[Answers | None]) -> Votes:
    """Return the votes of a suspect from its answers at many noise draws (`read_noisy`).

    Args:
        mark: The mark.
        seen: Answers of `read_noisy`.
    """
    return count_votes((None if answers is None else said(answers) for answers in seen), mark.m)


def vote_evidence(mark: Watermark, votes: Votes) -> Evidence:
    """Return the evidence in smoothed bits: a bit is 1 if more than half of all draws decode 1.

    Guarantee: exact for a suspect independent of the secret. Votes depend on the suspect, on streams of the
    secret other than the bits, and on the verifier's noise, so the balanced key is uniform given them. Void
    if the noise was drawn repeatedly and chosen by its result, or scaled by the marked original.

    Args:
        mark: A keyed mark.
        votes: The votes.

    Raises:
        ParameterError: If the mark is plain.
    """
    if mark.context["key"] != "keyed":
        raise ParameterError(
            "a plain mark has no exact null, because its bits are public", "draw a keyed mark"
        )
    return evidence_of(2 * votes.ones > votes.draws, mark.bits, "matches", 0.5)


@dataclass(frozen=True, eq=False)
class SmoothedBits(Statement):
    """For every carrier, the radius within which its smoothed bit is certified to be read right.

    Guarantee: with probability at least 1 - delta over the draws of the certificate this holds for all
    changes of the parameters and all radii at once: after a change of norm at most r, a verifier who takes
    `reads` draws of fresh noise reads at least `matches(r)` bits right, and finds at least `evidence(r)`,
    with probability at least 1 - delta. A draw that could not be read counts against every bit.

    Attributes:
        radii: The radius of every carrier.
        bits: The key.
        draws: Number of draws of the certificate.
        unreadable: Number of them that could not be read.
        reads: Number of draws that the verifier takes.
        delta: Error probability of the certificate, and of the verifier's draws.
    """

    radii: Floats = field(repr=False)
    bits: Bools = field(repr=False)
    draws: int
    unreadable: int = 0
    reads: int = DRAWS
    delta: float = DELTA
    assumptions: tuple[Assumption, ...] = field(default=RESTS_ON, kw_only=True)

    def matches(self, radius: float) -> int:
        """Return the certified number of matches at a radius."""
        return int((self.radii >= radius).sum())

    def log_p(self, radius: float) -> float:
        """Return the largest possible log p at a radius, for any values of the uncertified bits."""
        open_ = self.radii < radius
        return worst_log_p(int((self.bits & open_).sum()), int((~self.bits & open_).sum()), len(self.bits))

    def evidence(self, radius: float) -> float:
        """Return the certified evidence bits at a radius."""
        return laws.evidence_bits(self.log_p(radius))

    def radius(self, alpha: float) -> float:
        """Return the largest radius at which p <= alpha is certified, minus infinity if there is none."""
        reached = (float(r) for r in np.unique(self.radii) if self.log_p(float(r)) <= math.log(alpha))
        return max(reached, default=-math.inf)


def certify_votes(
    votes: Votes,
    bits: ArrayLike,
    noise: Noise,
    *,
    reads: int = DRAWS,
    delta: float = DELTA,
) -> SmoothedBits:
    """Return the certificate from the votes of the marked model; see `SmoothedBits` for its meaning.

    Clopper and Pearson's lower bound on the probability of a right vote, at delta / m per carrier,
    decreases by r / sigma on the normal scale. The remaining probability must win `reads` draws except with
    probability delta / m.

    Args:
        votes: The votes of the marked model.
        bits: The key.
        noise: The noise of the draws.
        reads: Number of draws that the verifier takes.
        delta: Error probability of the certificate, and of the verifier's draws.
    """
    w = as_key(bits, votes.ones.size)
    share_for_majority(reads, delta)  # raises if delta itself is invalid, although delta / m is not
    least = ndtri(lower_share(votes.right(w), votes.draws, delta / w.size))
    needed = ndtri(share_for_majority(reads, delta / w.size))
    return SmoothedBits(noise.sigma * (least - needed), w, votes.draws, votes.unreadable, reads, delta)
