"""Every bit smoothed by itself: what most noise draws say, and the radius within which they still do."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtri
from torch import nn

from invgnn import null
from invgnn.errors import ParameterError
from invgnn.graphs import Bools, Floats
from invgnn.ranks import as_bits
from invgnn.reading import Access
from invgnn.theory.margins import worst_log_p
from invgnn.theory.smoothing import (
    DELTA,
    DRAWS,
    RESTS_ON,
    Noise,
    lower_share,
    share_for_majority,
    under_noise,
)
from invgnn.theory.statement import Assumption, Statement
from invgnn.watermark import Answers, Watermark


def said(answers: Answers) -> Bools:
    """You get one bit per carrier: whether it is answered above the model's own ordinary inputs."""
    usual = 0.5 if answers.reading.binary else float(np.median(answers.ordinary))
    return null.decode(answers.carriers, usual)


def count_votes(
    model: nn.Module,
    say: Callable[[nn.Module], Bools],
    noise: Noise,
    rng: np.random.Generator,
    *,
    draws: int = DRAWS,
) -> Floats:
    """You get the share of noise draws that say 1, for every carrier."""
    return np.asarray(np.mean([*under_noise(model, say, noise, draws, rng)], axis=0), dtype=np.float64)


def read_votes(
    mark: Watermark,
    suspect: nn.Module,
    noise: Noise,
    rng: np.random.Generator,
    *,
    draws: int = DRAWS,
    access: Access | None = None,
) -> Floats:
    """You get the smoothed reading of a suspect: the share of draws in which each carrier says 1."""
    return count_votes(suspect, lambda net: said(mark.read(net, access)), noise, rng, draws=draws)


def weigh_votes(mark: Watermark, votes: Floats) -> null.Evidence:
    """You get the evidence in smoothed bits: a carrier says 1 if more than half of its draws do.

    Guarantee: exact for a suspect independent of the secret: votes depend on the suspect, on streams of the
    secret other than the bits, and on the verifier's noise, so the balanced key is uniform given them. Void
    if the noise was drawn again until it pleased, or scaled by the marked original.
    """
    if mark.context["key"] != "keyed":
        raise ParameterError(
            "the bits of a plain mark are public", "draw a keyed mark: it has an exact null"
        )
    return null.log_p(votes > 0.5, mark.bits, "matches", 0.5)


@dataclass(frozen=True, eq=False)
class SmoothedBits(Statement):
    """For every carrier the radius within which its smoothed bit is certain to be read right.

    Guarantee: with probability at least 1 - delta over the draws of the certificate this holds for all
    changes of the parameters and all radii at once: after a change of norm at most r, a verifier who takes
    `reads` draws of fresh noise reads at least `matches(r)` bits right, and finds at least `evidence(r)`,
    with probability at least 1 - delta.
    """

    radii: Floats = field(repr=False)
    bits: Bools = field(repr=False)
    draws: int
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
        return null.evidence_bits(self.log_p(radius))

    def radius(self, alpha: float) -> float:
        """The largest radius at which p <= alpha is certified; below 0 if it is not even at 0."""
        reached = (float(r) for r in np.unique(self.radii) if self.log_p(float(r)) <= math.log(alpha))
        return max(reached, default=-math.inf)


def certify_votes(
    votes: Floats,
    bits: ArrayLike,
    noise: Noise,
    *,
    draws: int = DRAWS,
    reads: int = DRAWS,
    delta: float = DELTA,
) -> SmoothedBits:
    """You get the certificate from the votes of the marked model; `SmoothedBits` says what it means.

    Clopper and Pearson's lower bound on the probability of a right vote, at delta / m per carrier, falls
    by r / sigma on the normal scale; what is left must win `reads` draws but for delta / m.
    """
    w = as_bits(bits)
    right = np.rint(np.where(w, votes, 1 - votes) * draws)
    least = ndtri(lower_share(right, draws, delta / w.size))
    needed = ndtri(share_for_majority(reads, delta / w.size))
    return SmoothedBits(noise.sigma * (least - needed), w, draws, reads, delta)
