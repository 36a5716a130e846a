"""Whether owners can be confused: what the paper's theorem leaves open, and scores for other owners.

That keys lie far apart (`hamming`) protects nobody by itself: a plain key's bits are a public function of
its carriers, so a model that perceives the invariant matches everybody's. Hence scores are measured.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from invgnn.readout.query import Suspect
from invgnn.readout.reading import Access
from invgnn.stats import laws, null
from invgnn.theory.hamming import HammingLaw
from invgnn.theory.intervals import Share
from invgnn.theory.statement import Assumption, Standing, Statement
from invgnn.watermark.mark import Watermark


def p_min(share: Share) -> float:
    """You get a lower bound on min(p, 1 - p) from a bounded share of 1-bits among candidate graphs.

    Guarantee: above the truth with probability at most the share's delta. No halving of delta is
    needed: if p <= 1/2 only its lower bound can err, otherwise only its upper. Void for a `paper`
    share, where the paper looks at the lower side alone.
    """
    return share.lower if share.method == "paper" else min(share.lower, 1.0 - share.upper)


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
    matches: int
    m: int
    threshold: int
    log_p: float
    null: str
    tests: int

    @property
    def passes(self) -> bool:
        """T reaches the exact null's threshold, whether or not that null applies."""
        return self.matches >= self.threshold

    @property
    def bits(self) -> float:
        """Bits of evidence, less what it costs to have read for several owners."""
        return laws.evidence_bits(self.log_p, self.tests)


def cross_scores(
    suspect: Suspect, marks: Mapping[str, Watermark], alpha: float = 1e-6, access: Access | None = None
) -> tuple[CrossScore, ...]:
    """You get, for every owner's mark, what this suspect scores and under which null.

    Guarantee: for a keyed mark whose secret is independent of the suspect, Pr[bits >= b for any owner]
    <= 2^-b. For a plain mark there is none.
    """
    laws.check_alpha(alpha)
    return tuple(_score(owner, suspect, mark, alpha, access, len(marks)) for owner, mark in marks.items())


def _score(
    owner: str, suspect: Suspect, mark: Watermark, alpha: float, access: Access | None, tests: int
) -> CrossScore:
    answers = mark.read(suspect, access)
    found, key = mark.evidence(answers), mark.context["key"]
    law, rests = _NULL_OF[key]
    return CrossScore(
        owner=owner,
        key=key,
        access=answers.reading.access,
        matches=found.matches,
        m=mark.m,
        threshold=null.NULLS["exact"].threshold(mark.m, alpha),
        log_p=found.log_p,
        null=law,
        tests=tests,
        assumptions=(rests,),
    )


_NULL_OF = {
    "keyed": ("exact", Assumption("the suspect is independent of this owner's secret")),
    "plain": ("models", Assumption("an innocent suspect is exchangeable with unmarked models")),
}
