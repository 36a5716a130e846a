"""How far answers lie from flipping a bit, and how many bits a bounded drift must leave right.

Lemma B.1 of the paper with signed margins: a bit that is read wrong has a negative margin, and no small
drift puts it right. The lemma speaks of answers decoded at a fixed threshold; most readings here decode at
the answers' own median, which the drift moves too, so they get a certificate of their own.
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
"""Answers in [0, 1] and their differences are rounded; nothing is certified by so little."""

SAME_CARRIERS = Assumption("drift is the largest over these very carriers, read without randomness", True)


def squash(answers: Answers) -> Floats:
    """You get s_k in [0, 1]; one half is the suspect's own usual answer.

    Binary readings are in [0, 1] already. The others are measured in standard deviations of the suspect's
    ordinary answers and put through the logistic function, which keeps their order.
    """
    return answers.carriers if answers.reading.binary else np.asarray(expit(answers.standard))


def signed_margins(s: ArrayLike, bits: ArrayLike, threshold: float = 0.5) -> Floats:
    """You get m_k = (2 w_k - 1)(s_k - threshold): positive where the bit is read right."""
    r, w = as_answers(s), as_bits(bits)
    _check_pair(r.size, w.size)
    return (2 * w.astype(np.float64) - 1) * (r - threshold)


def as_key(bits: ArrayLike, answers: int) -> Bools:
    """You get the bits as a balanced key for so many answers, or an error: p-values know no other."""
    w = as_bits(bits)
    _check_pair(answers, w.size)
    laws.check_m(w.size)
    if 2 * int(w.sum()) != w.size:
        advice = "the exact law is that of balanced keys; draw one"
        raise ParameterError(f"the key has {int(w.sum())} ones among {w.size} bits", advice)
    return w


def kappa_unsigned(s: ArrayLike) -> float:
    """You get the paper's margin min |s_k - 1/2|, which ignores whether bits are read right."""
    return float(np.abs(as_answers(s) - 0.5).min())


def kappa_signed(s: ArrayLike, bits: ArrayLike) -> float:
    """You get min m_k: the margin the lemma needs; negative as soon as one bit is read wrong."""
    return float(signed_margins(s, bits).min())


def headroom(t: int, m: int, alpha: float = 1e-6, law: null.Null = null.EXACT) -> int:
    """You get T - tau: how many matches may still be lost (the paper's other kappa_marg)."""
    return int(t) - law.threshold(m, alpha)


def drift(before: ArrayLike, after: ArrayLike) -> float:
    """You get gamma, the largest change of any answer."""
    return float(np.abs(_change(before, after)).max())


def drift_in_order(before: ArrayLike, after: ArrayLike) -> float:
    """You get the drift that median decoding feels: moving all answers alike changes no order.

    It is half the range of the changes, never more than `drift`.
    """
    return float(np.ptp(_change(before, after))) / 2


@dataclass(frozen=True)
class Certificate(Statement):
    """At least `t` matches are left by any drift up to gamma, and p is at most exp(log_p).

    Guarantee: for every s' with |s'_k - s_k| <= gamma for all k, decoded by the same rule. Nothing is
    assumed about how the model was changed. p is the exact p-value of T for a balanced key, at the worst
    count of ones that the drift allows.
    """

    rule: Rule
    gamma: float
    m: int
    matches: int
    log_p: float

    @property
    def bits(self) -> float:
        """Evidence in T that must be left."""
        return laws.evidence_bits(self.log_p)


def certify(s: ArrayLike, bits: ArrayLike, gamma: float, threshold: float = 0.5) -> Certificate:
    """You get the bits certain to be read right at a fixed threshold: #{k: m_k > gamma}."""
    w = as_key(bits, as_answers(s).size)
    right = signed_margins(s, w, threshold) > _drift(gamma)
    lost, false = int((w & ~right).sum()), int((~w & ~right).sum())
    log_p = worst_log_p(lost, false, w.size)
    return Certificate(
        "threshold", gamma, w.size, w.size - lost - false, log_p, assumptions=(SAME_CARRIERS,)
    )


def certify_median(s: ArrayLike, bits: ArrayLike, gamma: float) -> Certificate:
    """You get the bits certain to be read right when answers are decoded at their own median.

    The middle answer c' of the drifted answers lies within gamma of the old one. Given c', at most
    #{w = 1, s <= c' + gamma} ones are lost and #{w = 0, s >= c' - gamma} zeros turn into ones; and
    decoding above the middle never says more than m/2 ones, so no more zeros turn than ones are lost.
    The worst c' is one of the ends or one where a count changes.
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
    """You get the largest log p when at most `lost` ones read 0 and at most `false` zeros read 1.

    Guarantee: asking about one more carrier draws one more bit of the key. So p grows with a further false
    one (as many hits are easier to reach) and falls with a further right one (one more hit from one more
    draw): the corner where everything allowed went wrong is the worst.
    """
    return laws.log_p_matches(m - lost - false, m, m // 2 - lost + false)


def _check_pair(answers: int, bits: int) -> None:
    if answers != bits:
        raise ParameterError(f"{answers} answers for {bits} bits", "ask every carrier once")


def _drift(gamma: float) -> float:
    if not gamma >= 0:
        raise ParameterError(f"gamma is {gamma}", "a drift is a number not below 0")
    return gamma + ROUNDING


def _change(before: ArrayLike, after: ArrayLike) -> Floats:
    old, new = as_answers(before), as_answers(after)
    if old.shape != new.shape:
        raise ParameterError(f"{old.size} answers became {new.size}", "read both on the same carriers")
    return new - old
