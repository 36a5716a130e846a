"""Every bit smoothed by itself: what most noise draws say, and the radius within which they still do."""

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
    """You get one bit per carrier: whether it is answered above the model's own ordinary inputs."""
    usual = 0.5 if answers.reading.binary else float(np.median(answers.ordinary))
    return decode(answers.carriers, usual)


@dataclass(frozen=True, eq=False)
class Votes:
    """How many of `draws` noise draws say 1 on every carrier; only `read` of them could be read."""

    ones: Ints
    read: int
    draws: int

    def __post_init__(self) -> None:
        counts = np.asarray(self.ones)
        whole = counts.ndim == 1 and counts.size > 0 and np.issubdtype(counts.dtype, np.integer)
        if not (whole and counts.min() >= 0 and counts.max() <= self.read <= self.draws and self.draws > 0):
            raise ParameterError(
                f"votes among {self.read} readable of {self.draws} draws do not add up",
                "count them with `count_votes`",
            )

    @property
    def unreadable(self) -> int:
        """How many draws could not be read."""
        return self.draws - self.read

    def right(self, bits: Bools) -> Ints:
        """How many draws say each bit right; one that could not be read says nothing right."""
        return np.where(bits, self.ones, self.read - self.ones)


def count_votes(said: Iterable[Bools | None], m: int) -> Votes:
    """You get the votes of draws that each say m bits, or None where nothing could be read."""
    rows = [*said]
    told = [row for row in rows if row is not None]
    return Votes(np.sum([np.zeros(m), *told], axis=0).astype(np.int64), len(told), len(rows))


def read_votes(mark: Watermark, seen: Iterable[Answers | None]) -> Votes:
    """You get the smoothed reading of a suspect from its answers at many noise draws (`read_noisy`)."""
    return count_votes((None if answers is None else said(answers) for answers in seen), mark.m)


def weigh_votes(mark: Watermark, votes: Votes) -> Evidence:
    """You get the evidence in smoothed bits: a carrier says 1 if more than half of all draws do.

    Guarantee: exact for a suspect independent of the secret: votes depend on the suspect, on streams of the
    secret other than the bits, and on the verifier's noise, so the balanced key is uniform given them. Void
    if the noise was drawn again until it pleased, or scaled by the marked original.
    """
    if mark.context["key"] != "keyed":
        raise ParameterError(
            "the bits of a plain mark are public", "draw a keyed mark: it has an exact null"
        )
    return evidence_of(2 * votes.ones > votes.draws, mark.bits, "matches", 0.5)


@dataclass(frozen=True, eq=False)
class SmoothedBits(Statement):
    """For every carrier the radius within which its smoothed bit is certain to be read right.

    Guarantee: with probability at least 1 - delta over the draws of the certificate this holds for all
    changes of the parameters and all radii at once: after a change of norm at most r, a verifier who takes
    `reads` draws of fresh noise reads at least `matches(r)` bits right, and finds at least `evidence(r)`,
    with probability at least 1 - delta. A draw that could not be read counts against every bit.
    """

    radii: Floats = field(repr=False)
    bits: Bools = field(repr=False)
    draws: int
    unreadable: int = 0
    reads: int = DRAWS
    delta: float = DELTA
    assumptions: tuple[Assumption, ...] = field(default=RESTS_ON, kw_only=True)

    def matches(self, radius: float) -> int:
        """The certified T."""
        return int((self.radii >= radius).sum())

    def log_p(self, radius: float) -> float:
        """The largest log p there can be, whatever the uncertified carriers say."""
        open_ = self.radii < radius
        return worst_log_p(int((self.bits & open_).sum()), int((~self.bits & open_).sum()), len(self.bits))

    def evidence(self, radius: float) -> float:
        """The certified evidence bits."""
        return laws.evidence_bits(self.log_p(radius))

    def radius(self, alpha: float) -> float:
        """The largest radius at which p <= alpha is certified; below 0 if it is not even at 0."""
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
    """You get the certificate from the votes of the marked model; `SmoothedBits` says what it means.

    Clopper and Pearson's lower bound on the probability of a right vote, at delta / m per carrier, falls
    by r / sigma on the normal scale; what is left must win `reads` draws but for delta / m.
    """
    w = as_key(bits, votes.ones.size)
    share_for_majority(reads, delta)  # refuses a delta that only its m-th part would pass for
    least = ndtri(lower_share(votes.right(w), votes.draws, delta / w.size))
    needed = ndtri(share_for_majority(reads, delta / w.size))
    return SmoothedBits(noise.sigma * (least - needed), w, votes.draws, votes.unreadable, reads, delta)
