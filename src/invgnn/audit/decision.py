"""Decide what the answers of a suspect prove: the null that applies, the status and its reasons."""

from __future__ import annotations

import math
from typing import NamedTuple

from invgnn.audit.examine import Finding, Level
from invgnn.audit.remote.session import Session
from invgnn.audit.sequential import Sequential
from invgnn.audit.verdict import Status, ceil_p, floor_bits
from invgnn.stats import laws, null
from invgnn.stats.evidence import GRINDING_BITS, empirical_p
from invgnn.stats.sequential import WEAKEST
from invgnn.watermark.mark import Watermark

MODELS_CONDITION = (
    "The suspect, if innocent, is exchangeable with the unmarked control models. The bits of a plain mark "
    "are a public function of its carriers, so a model that perceives the invariant matches anybody's "
    "carriers: a match is no evidence of whose mark it is."
)
"""The condition of a verdict on a plain mark."""


class Sufficient(NamedTuple):
    """How much evidence is enough, because of what is known about the age of the secret.

    Attributes:
        bits: Evidence in bits.
        reason: What is known, as the reason of a verdict.
    """

    bits: float
    reason: str


def beyond_search() -> Sufficient:
    """Return the evidence that is enough whatever the age of the secret."""
    beyond = "more than a search for a fitting secret could reach"
    return Sufficient(GRINDING_BITS, f"at least {GRINDING_BITS} bits of evidence, {beyond}")


def allowed_null(
    mark: Watermark, found: Finding, tests: list[Finding], alpha: float
) -> tuple[str, float, int, Level]:
    """Return the null that the mark allows, log p under it, the match threshold, and the level to show."""
    if mark.context["key"] == "keyed":
        return "exact", found.log_p, null.NULLS["exact"].threshold(mark.m, alpha), found.best
    ways = []
    for place, level in enumerate(found.levels):
        if level.evidence is not None:
            counts = [e.matches for test in tests if (e := test.levels[place].evidence) is not None]
            ways.append((empirical_p(level.evidence.matches, counts), counts, level))
    p, counts, level = min(ways, key=lambda way: way[0])
    log_p = laws.log_p_times(math.log(p), found.tests)
    return "models", log_p, null.models(counts).threshold(mark.m, alpha), level


def decide(
    found: Finding,
    mark: Watermark,
    log_p: float,
    alpha: float,
    suspects: int,
    tests: list[Finding],
    sufficient: Sufficient,
) -> tuple[Status, list[str]]:
    """Return the status and its reasons."""
    limit = laws.log_level(alpha, suspects)
    hidden = _hidden(found, limit)
    if found.constant and not hidden and found.score_shift is None:
        return "inconclusive", ["the suspect's answer is the same on every carrier, so no bit can be read"]
    if mark.context["key"] == "plain":
        return _decide_plain(log_p, limit, _readable(tests, found), found.tests)
    verified = sum(test.log_p <= laws.log_level(alpha) for test in tests)
    if verified:
        return "inconclusive", [f"{verified} of {len(tests)} unmarked controls verify as well"]
    if log_p > limit and hidden:
        return "inconclusive", [hidden]
    if log_p > limit:
        return "not shown", ["an unrelated model could give these answers by chance"]
    more = [hidden] if hidden else []
    for enough in (beyond_search(), sufficient):
        if laws.evidence_bits(log_p, suspects) >= enough.bits:
            return "owned", [enough.reason, *more]
    looks = 2 if mark.context["statistic"] == "combined" else 1
    most = math.log2(math.comb(mark.m, mark.m // 2)) - math.log2(looks * suspects * found.tests)
    embedded = "" if mark.baseline is None else " and the digest of the mark with its baseline scores"
    small = most < GRINDING_BITS and found.score_shift is None
    short = f"; {mark.m} carriers can give at most {floor_bits(most)} bits" if small else ""
    return "inconclusive", [
        "chance is ruled out at this level, but nothing here proves that the secret is older than the "
        f"suspect, and with fewer than {GRINDING_BITS} bits a fitting secret could have been searched for; "
        f"publish a commitment to the secret{embedded} before you release a model{short}",
        *more,
    ]


def _hidden(found: Finding, limit: float) -> str | None:
    """Return a reason if the suspect refuses carriers more often than ordinary inputs."""
    refusal = found.refusal
    if refusal.log_p > limit:
        return None
    return (
        f"the suspect refused {refusal.carriers} of {refusal.asked_carriers} carriers and "
        f"{refusal.ordinary} of {refusal.asked_ordinary} ordinary inputs (p = "
        f"{ceil_p(laws.log10_of(refusal.log_p))} if it treats both alike); a refused answer counts as the "
        "median answer"
    )


def _readable(tests: list[Finding], found: Finding) -> int:
    """Return the number of controls that could be read at every level at which the suspect was."""
    read = [place for place, level in enumerate(found.levels) if level.evidence is not None]
    return sum(all(test.levels[place].evidence is not None for place in read) for test in tests)


def _decide_plain(log_p: float, limit: float, controls: int, tests: int) -> tuple[Status, list[str]]:
    """Decide on a plain mark, which can show that the invariant is perceived, never whose mark it is."""
    if math.log(tests / (controls + 1)) > limit:
        least = f"{min(1.0, tests / (controls + 1)):.2g}"
        return "inconclusive", [
            f"a plain mark is compared with unmarked models; with {controls} of them no p-value is below "
            f"{least}"
        ]
    if log_p > limit:
        return "not shown", ["unmarked models match as many bits"]
    return "inconclusive", [
        "the suspect matches more bits than unmarked models do, but so would any model that perceives the "
        "invariant; draw a keyed mark to show whose mark it is"
    ]


def seen_from_outside(
    status: Status, reasons: list[str], session: Session, found: Finding, how: Sequential | None
) -> tuple[Status, list[str]]:
    """Return the status, and the reasons with findings about the server and an early stop added."""
    more, asked = [], found.best.evidence.m if found.best.evidence else 0
    if session.differing:
        more.append(
            f"the server answered {session.differing} of {session.repeated} repeated questions "
            "differently: it uses several models, or adds noise"
        )
    if status == "not shown" and session.differing > 1:
        return "inconclusive", [*more, *reasons]
    if status == "not shown" and found.stop == "budget":
        return "inconclusive", [f"the budget was used up after {asked} carriers", *more]
    if status == "not shown" and found.stop == "hopeless" and how is not None:
        least = WEAKEST if how.method == "betting" else how.rate
        more.append(
            f"the audit was given up after {asked} carriers; a copy that matches {least:.0%} of the bits "
            f"is given up with probability at most {how.miss:g}"
        )
    return status, [*reasons, *more]
