"""How far apart the keys of independent owners lie, and what one owner's model scores for the others.

The first follows from how keys are drawn and protects nobody by itself: a plain key's bits are a public
function of its carriers, so a model that perceives the invariant matches everybody's. Hence the second,
which is measured.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import logsumexp
from scipy.stats import binom

from invgnn import null
from invgnn.errors import ParameterError
from invgnn.graphs import Floats, Ints
from invgnn.query import Suspect
from invgnn.reading import Access
from invgnn.theory.intervals import Share
from invgnn.theory.statement import Assumption, Standing, Statement
from invgnn.watermark import Watermark


def p_min(share: Share) -> float:
    """You get a lower bound on min(p, 1 - p) from a bounded share of 1-bits among candidate graphs.

    Guarantee: above the truth with probability at most the share's delta. No halving of delta is
    needed: if p <= 1/2 only its lower bound can err, otherwise only its upper. Void for a `paper`
    share, where the paper looks at the lower side alone.
    """
    return share.lower if share.method == "paper" else min(share.lower, 1.0 - share.upper)


def differ(p: float) -> float:
    """You get q = 2p(1 - p), the probability that two independent bits with Pr[1] = p differ."""
    if not 0.0 <= p <= 1.0:
        raise ParameterError(f"p is {p}", "give a probability between 0 and 1")
    return 2.0 * p * (1.0 - p)


@dataclass(frozen=True)
class HammingLaw(Statement):
    """The law of the Hamming distance H of two independently drawn keys of m bits.

    With `p`, bits are independent with Pr[1] = p and H ~ Binom(m, 2p(1 - p)), as in the paper. Without,
    keys are uniform among the balanced ones, as this library draws them: H = m - 2X, always even, where
    X ~ Hypergeom(m, m/2, m/2) counts the ones in common.
    """

    m: int
    p: float | None = None

    def __post_init__(self) -> None:
        null.check_m(self.m)
        independent = Assumption("the two keys were drawn independently")
        drawn = (
            "keys are uniform among the balanced" if self.p is None else f"bits are i.i.d., Pr[1]={self.p}"
        )
        object.__setattr__(self, "assumptions", (independent, Assumption(drawn)))

    @property
    def q(self) -> float:
        """The probability that two keys differ at a given place: 1/2 for balanced ones."""
        return 0.5 if self.p is None else differ(self.p)

    @property
    def mean(self) -> float:
        return self.m * self.q

    def log_cdf(self, h: int) -> float:
        """You get log Pr[H <= h]; at h = 0 it is the log of the collision probability.

        Guarantee: for balanced keys from exact integer counts; for independent bits a sum of logs, so
        that nothing underflows.
        """
        if self.p is None:
            return null.log_p_matches(self.m - h, self.m, self.m // 2)
        if h < 0:
            return -math.inf
        terms = binom.logpmf(np.arange(min(h, self.m) + 1), self.m, self.q)
        return min(0.0, float(logsumexp(terms)))

    @property
    def log_collision(self) -> float:
        """The log of Pr[the two keys are the same]: -log C(m, m/2) if balanced, m log(1 - q) otherwise."""
        return self.log_cdf(0)

    def pmf(self) -> Floats:
        """You get Pr[H = h] for h = 0..m."""
        if self.p is not None:
            return np.asarray(binom.pmf(np.arange(self.m + 1), self.m, self.q))
        cdf = np.exp([self.log_cdf(h) for h in range(self.m + 1)])
        return np.diff(cdf, prepend=0.0)


@dataclass(frozen=True)
class Separation(Statement):
    """The distances between many drawn keys beside what their law says.

    `log_p_least` bounds from above the log probability that some pair comes as close as the closest did.
    """

    pairs: int
    mean: float
    least: int
    expected_mean: float
    log_p_least: float


def separation(keys: ArrayLike, law: HammingLaw) -> Separation:
    """You get the Hamming distances of all pairs of keys [owners, m], summed up against a law.

    Guarantee: `log_p_least` is a union bound over the pairs and needs no independence among them. A
    tiny value says that the keys were not drawn as the law has it.
    """
    distances = pair_distances(keys)
    if np.asarray(keys).shape[1] != law.m:
        raise ParameterError(f"keys of {np.asarray(keys).shape[1]} bits under a law for {law.m}", "match m")
    least = int(distances.min())
    p = min(0.0, math.log(distances.size) + law.log_cdf(least))
    mean = float(distances.mean())
    return Separation(distances.size, mean, least, law.mean, p, assumptions=law.assumptions)


def pair_distances(keys: ArrayLike) -> Ints:
    """You get the Hamming distance of every pair of keys [owners, m], in the order (0,1), (0,2), ..."""
    k = np.asarray(keys)
    if k.ndim != 2 or len(k) < 2 or not np.isin(k, (0, 1)).all():
        raise ParameterError(f"keys of shape {k.shape}", "give two or more rows of zeros and ones")
    signs = 2.0 * k - 1.0
    agree_less_differ = np.rint(signs @ signs.T).astype(np.int64)
    return np.asarray((k.shape[1] - agree_less_differ[np.triu_indices(len(k), 1)]) // 2, dtype=np.int64)


@dataclass(frozen=True)
class TotalVariation(Statement):
    """What becomes of the paper's Theorem 3, TV(F_W, F_W') >= 1 - exp(-Omega(m)): it is not proved.

    A coupling bounds the total variation from above, TV <= 1 - Pr[X = Y] for every coupling; the proof
    takes one coupling and writes >=. As defined, both laws range over the same draw of carriers and
    are identical, so that TV = 0. Conditioned on the keys, the step "W != W' and few errors, hence other
    bits decoded" needs keys more than 2(m - tau) places apart: `needed`, which they seldom are. No
    number here is a guarantee of uniqueness; `closer` says how often that step fails.
    """

    m: int
    needed: int
    expected: float
    closer: float
    standing: ClassVar[Standing] = "unproved"


def total_variation(m: int, tau: int, p: float | None = None) -> TotalVariation:
    """You get where the paper's proof of uniqueness breaks, in numbers, and no bound."""
    law, needed = HammingLaw(m, p), 2 * (m - tau)
    closer = math.exp(law.log_cdf(needed))
    apart = Assumption(f"any two keys lie more than {needed} places apart", closer == 0.0)
    sense = Assumption("a lower bound on TV follows from one coupling", False)
    return TotalVariation(m, needed, law.mean, closer, assumptions=(sense, apart))


@dataclass(frozen=True)
class CrossScore(Statement):
    """What a suspect scores for one owner, and the null that gives the score a meaning.

    With null `exact` (keyed marks) the evidence counts. With `models` (plain marks) `log_p` is 0: only
    unmarked models tell what T is usual, and a T of `tau` or more proves nothing about whose model it is.
    """

    owner: str
    key: str
    access: str
    t: int
    m: int
    tau: int
    log_p: float
    null: str
    tried: int

    @property
    def passes(self) -> bool:
        """T reaches the exact null's threshold, whether or not that null applies."""
        return self.t >= self.tau

    @property
    def bits(self) -> float:
        """Bits of evidence, less what it costs to have read for several owners."""
        return null.evidence_bits(self.log_p, self.tried)


def cross_scores(
    suspect: Suspect, marks: Mapping[str, Watermark], alpha: float = 1e-6, access: Access | None = None
) -> tuple[CrossScore, ...]:
    """You get, for every owner's mark, what this suspect scores and under which null.

    Guarantee: for a keyed mark whose secret is independent of the suspect, Pr[bits >= b for any owner]
    <= 2^-b. For a plain mark there is none.
    """
    null.check_alpha(alpha)
    return tuple(_score(owner, suspect, mark, alpha, access, len(marks)) for owner, mark in marks.items())


def _score(
    owner: str, suspect: Suspect, mark: Watermark, alpha: float, access: Access | None, tried: int
) -> CrossScore:
    answers = mark.read(suspect, access)
    found, key = mark.weigh(answers), mark.context["key"]
    law, rests = _NULL_OF[key]
    return CrossScore(
        owner=owner,
        key=key,
        access=answers.reading.access,
        t=found.t,
        m=mark.m,
        tau=null.NULLS["exact"].tau(mark.m, alpha),
        log_p=found.log_p,
        null=law,
        tried=tried,
        assumptions=(rests,),
    )


_NULL_OF = {
    "keyed": ("exact", Assumption("the suspect is independent of this owner's secret")),
    "plain": ("models", Assumption("an innocent suspect is exchangeable with unmarked models")),
}
