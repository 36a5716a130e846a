"""Whether owners can be confused: the gap in the paper's theorem, and measured scores for other owners.

Distance between keys (`hamming`) alone protects no owner. The bits of a plain key are a public function of
its carriers, so a model that perceives the invariant matches the keys of all owners. Hence scores are
measured.
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
    """Return a lower bound on min(p, 1 - p) from a bounded share of 1-bits among candidate graphs.

    Guarantee: above the true value with probability at most the share's delta. delta need not be halved: if
    p <= 1/2 only the lower bound can err, otherwise only the upper. Void for a `paper` share, for which the
    paper uses the lower side alone.
    """
    return share.lower if share.method == "paper" else min(share.lower, 1.0 - share.upper)


@dataclass(frozen=True)
class TotalVariation(Statement):
    """The gap in the paper's Theorem 3, TV(F_W, F_W') >= 1 - exp(-Omega(m)), which is not proved.

    A coupling bounds the total variation from above, TV <= 1 - Pr[X = Y] for every coupling; the proof uses
    one coupling and writes >=. As defined, both laws range over the same draw of carriers and are
    identical, so that TV = 0. Conditioned on the keys, the step "W != W' and few errors, hence other bits
    decoded" needs keys that differ at more than 2(m - tau) positions, which they seldom do. No number here
    is a guarantee of uniqueness.

    Attributes:
        m: Number of bits.
        needed: The distance 2(m - tau) that the proof needs.
        expected: The expected distance of two keys.
        closer: Probability that two keys are not farther apart than `needed`, so that the step fails.
    """

    m: int
    needed: int
    expected: float
    closer: float
    standing: ClassVar[Standing] = "unproved"


def total_variation(m: int, tau: int, p: float | None = None) -> TotalVariation:
    """Return in numbers where the paper's proof of uniqueness fails; there is no bound.

    Args:
        m: Number of bits.
        tau: The threshold.
        p: Probability of a 1, or None for uniform balanced keys.
    """
    law, needed = HammingLaw(m, p), 2 * (m - tau)
    closer = math.exp(law.log_cdf(needed))
    apart = Assumption(f"any two keys differ at more than {needed} positions", closer == 0.0)
    sense = Assumption("a lower bound on TV follows from one coupling", False)
    return TotalVariation(m, needed, law.mean, closer, assumptions=(sense, apart))


@dataclass(frozen=True)
class CrossScore(Statement):
    """The score of a suspect for one owner, and the null under which it is evaluated.

    With the null `exact` (keyed marks) the evidence is valid. With `models` (plain marks) `log_p` is 0:
    only unmarked models show which T is usual, and a T at the threshold does not show whose model it is.

    Attributes:
        owner: Name of the owner.
        key: Kind of the key, "keyed" or "plain".
        access: The access level of the reading.
        matches: Number of matches.
        m: Number of carriers.
        threshold: The threshold of the exact null.
        log_p: The log p-value.
        null: The null, "exact" or "models".
        tests: Number of owners whose marks were read.
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
        """Whether T reaches the exact null's threshold, whether or not that null applies."""
        return self.matches >= self.threshold

    @property
    def bits(self) -> float:
        """Evidence bits, corrected for the number of owners."""
        return laws.evidence_bits(self.log_p, self.tests)


def cross_scores(
    suspect: Suspect, marks: Mapping[str, Watermark], alpha: float = 1e-6, access: Access | None = None
) -> tuple[CrossScore, ...]:
    """Return, for every owner's mark, the score of this suspect and its null.

    Guarantee: for a keyed mark whose secret is independent of the suspect, Pr[bits >= b for any owner]
    <= 2^-b. For a plain mark there is none.

    Args:
        suspect: The suspect.
        marks: The marks, by owner.
        alpha: Significance level of the threshold.
        access: The reading; by default the first that each mark declares.
    """
    laws.check_alpha(alpha)
    return tuple(_score(owner, suspect, mark, alpha, access, len(marks)) for owner, mark in marks.items())


def _score(
    owner: str, suspect: Suspect, mark: Watermark, alpha: float, access: Access | None, tests: int
) -> CrossScore:
    """Return the score of a suspect for one owner."""
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
    "plain": ("models", Assumption("an independent suspect is exchangeable with unmarked models")),
}
