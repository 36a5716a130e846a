"""Margins of the answers, and how many bits a bounded drift of the answers must leave right.

This is Lemma B.1 of the paper with signed margins: a bit that is read wrong has a negative margin, and a
small drift does not correct it. The lemma assumes that answers are decoded at a fixed threshold. Most
readings here decode at the median of the answers, which drifts too, so they have a certificate of their
own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import expit

from invgnn.errors import ParameterError
from invgnn.graphs.disjoint_union import Bools, Floats
from invgnn.readout.answers import Answers
from invgnn.stats import laws, null
from invgnn.stats.rank_sum import as_answers, as_bits
from invgnn.theory.statement import Assumption, Statement

Rule = Literal["threshold", "median"]
ROUNDING = 1e-12
"""Answers in [0, 1] and their differences are rounded: a margin this small certifies nothing."""

SAME_CARRIERS = Assumption("the drift is the largest over the same carriers, read without randomness", True)


def squash(answers: Answers) -> Floats:
    """Return the answers s_k in [0, 1], where 1/2 is the suspect's usual answer.

    Binary readings are in [0, 1] already. Other answers are standardised by the suspect's answers on
    ordinary inputs and put through the logistic function, which keeps their order.
    """
    return answers.carriers if answers.reading.binary else np.asarray(expit(answers.standard))


def signed_margins(s: ArrayLike, bits: ArrayLike, threshold: float = 0.5) -> Floats:
    """Return m_k = (2 w_k - 1)(s_k - threshold), which is positive where the bit is read right.

    Args:
        s: Answers in [0, 1].
        bits: The key.
        threshold: The threshold of decoding.
    """
    r, w = as_answers(s), as_bits(bits)
    _check_pair(r.size, w.size)
    return (2 * w.astype(np.float64) - 1) * (r - threshold)


def as_key(bits: ArrayLike, answers: int) -> Bools:
    """Return the bits as a balanced key, because p-values are defined for balanced keys only.

    Args:
        bits: The bits.
        answers: The number of answers that the key must have bits for.

    Raises:
        ParameterError: If the number of bits is wrong or the key is not balanced.
    """
    w = as_bits(bits)
    _check_pair(answers, w.size)
    laws.check_m(w.size)
    if 2 * int(w.sum()) != w.size:
        advice = "use a balanced key: half of its bits are 1"
        raise ParameterError(f"the key has {int(w.sum())} ones among {w.size} bits", advice)
    return w


def kappa_unsigned(s: ArrayLike) -> float:
    """Return the paper's margin min |s_k - 1/2|, which ignores whether the bits are read right."""
    return float(np.abs(as_answers(s) - 0.5).min())


def kappa_signed(s: ArrayLike, bits: ArrayLike) -> float:
    """Return min m_k, the margin that the lemma needs; it is negative if any bit is read wrong.

    Args:
        s: Answers in [0, 1].
        bits: The key.
    """
    return float(signed_margins(s, bits).min())


def headroom(t: int, m: int, alpha: float = 1e-6, law: null.Null = null.EXACT) -> int:
    """Return T - tau, the number of matches that may still be lost (the paper's other kappa_marg).

    Args:
        t: Number of matches.
        m: Number of carriers.
        alpha: Significance level.
        law: The null that gives the threshold.
    """
    return int(t) - law.threshold(m, alpha)


def drift(before: ArrayLike, after: ArrayLike) -> float:
    """Return gamma, the largest change of any answer.

    Args:
        before: Answers before an edit.
        after: Answers after it, on the same carriers.
    """
    return float(np.abs(_change(before, after)).max())


def drift_in_order(before: ArrayLike, after: ArrayLike) -> float:
    """Return the drift that matters for median decoding: a shift of all answers changes no order.

    It is half the range of the changes and never more than `drift`.

    Args:
        before: Answers before an edit.
        after: Answers after it, on the same carriers.
    """
    return float(np.ptp(_change(before, after))) / 2


@dataclass(frozen=True)
class Certificate(Statement):
    """A lower bound on the matches after any drift up to gamma, and an upper bound on p.

    Guarantee: for every s' with |s'_k - s_k| <= gamma for all k, decoded by the same rule. Nothing is
    assumed about how the model was changed. p is the exact p-value of T for a balanced key, at the worst
    count of ones that the drift allows.

    Attributes:
        rule: How answers are decoded: at a fixed threshold, or at their median.
        gamma: The drift.
        m: Number of carriers.
        matches: Number of matches that are certain.
        log_p: Upper bound on the log p-value.
    """

    rule: Rule
    gamma: float
    m: int
    matches: int
    log_p: float

    @property
    def bits(self) -> float:
        """Evidence bits that are certain."""
        return laws.evidence_bits(self.log_p)


def certify(s: ArrayLike, bits: ArrayLike, gamma: float, threshold: float = 0.5) -> Certificate:
    """Return the certificate for decoding at a fixed threshold: #{k: m_k > gamma} bits stay right.

    Args:
        s: Answers in [0, 1].
        bits: The key.
        gamma: The drift.
        threshold: The threshold of decoding.
    """
    w = as_key(bits, as_answers(s).size)
    right = signed_margins(s, w, threshold) > _drift(gamma)
    lost, false = int((w & ~right).sum()), int((~w & ~right).sum())
    log_p = worst_log_p(lost, false, w.size)
    return Certificate(
        "threshold", gamma, w.size, w.size - lost - false, log_p, assumptions=(SAME_CARRIERS,)
    )


def certify_median(s: ArrayLike, bits: ArrayLike, gamma: float) -> Certificate:
    """Return the certificate for decoding at the median of the answers.

    The middle answer c' of the drifted answers lies within gamma of the old one. Given c', at most #{w = 1,
    s <= c' + gamma} ones are lost and #{w = 0, s >= c' - gamma} zeros turn into ones. Decoding above the
    middle never gives more than m/2 ones, so no more zeros turn than ones are lost. The worst c' is one of
    the ends or a point where a count changes.

    Args:
        s: Answers in [0, 1].
        bits: The key.
        gamma: The drift.
    """
    r, slack = as_answers(s), _drift(gamma)
    w = as_key(bits, r.size)
    middle = float(np.sort(r)[(r.size - 1) // 2])
    turns = np.concatenate([r - slack, r + slack])
    at = np.unique(np.clip(turns, middle - slack, middle + slack))[:, None]
    lost = (r[w] <= at + slack).sum(axis=1)
    false = np.minimum(lost, (r[~w] >= at - slack).sum(axis=1))
    pairs = {(int(a), int(b)) for a, b in zip(lost, false, strict=True)}
    t = w.size - max(a + b for a, b in pairs)
    log_p = max(worst_log_p(a, b, w.size) for a, b in pairs)
    return Certificate("median", gamma, w.size, t, log_p, assumptions=(SAME_CARRIERS,))


def worst_log_p(lost: int, false: int, m: int) -> float:
    """Return the largest log p if at most `lost` ones are read as 0 and at most `false` zeros as 1.

    Guarantee: one more decoded one draws one more bit of the key. So p increases with a further false one
    (the same number of hits is easier to reach) and decreases with a further right one (one more hit from
    one more draw). Hence the worst case is the one with all allowed errors.

    Args:
        lost: Largest number of ones that are read as 0.
        false: Largest number of zeros that are read as 1.
        m: Number of carriers.
    """
    return laws.log_p_matches(m - lost - false, m, m // 2 - lost + false)


def _check_pair(answers: int, bits: int) -> None:
    """Raise an error unless there are as many answers as bits."""
    if answers != bits:
        raise ParameterError(f"{answers} answers for {bits} bits", "pass one answer per bit")


def _drift(gamma: float) -> float:
    """Return the drift plus a rounding margin."""
    if not gamma >= 0:
        raise ParameterError(f"gamma is {gamma}", "use a drift of 0 or more")
    return gamma + ROUNDING


def _change(before: ArrayLike, after: ArrayLike) -> Floats:
    """Return the change of every answer."""
    old, new = as_answers(before), as_answers(after)
    if old.shape != new.shape:
        raise ParameterError(f"{old.size} answers became {new.size}", "read both on the same carriers")
    return new - old
