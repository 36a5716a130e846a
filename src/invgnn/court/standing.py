"""Examine one claim: check it and its opening, ask the suspect, and weigh the answers."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
from torch import nn

from invgnn.audit.provenance import trace
from invgnn.audit.verdict import Verdict, floor_bits
from invgnn.audit.verify import open_suspect, verify
from invgnn.court.claim import Claim
from invgnn.court.claim_checks import (
    check_address,
    check_content,
    check_data,
    check_dates,
    check_revocations,
    chosen_late,
    code_of,
)
from invgnn.court.exhibits import Check, Exhibits
from invgnn.court.grounds import Ground, ceil_bits, grounds_of, sufficient
from invgnn.court.opening import Opened
from invgnn.court.partial import Revealed, as_good, read_partial
from invgnn.court.regeneration import reference_for
from invgnn.court.timestamp import Stamp
from invgnn.errors import InvgnnError, SuspectError
from invgnn.graphs.disjoint_union import Bools, Ints
from invgnn.stats import laws
from invgnn.stats.evidence import decode
from invgnn.watermark.mark import Watermark

DECOYS = 9999
"""Number of random keys that the answers are compared with, besides the claimed one."""


@dataclass(frozen=True, eq=False)
class Standing:
    """What one claim is worth against a suspect, before rival claims are heard.

    Attributes:
        claim: The claim.
        opened: Its opening.
        alpha: The false-positive rate: that of the claim, but not more than the judge accepts.
        checks: The checks that were made.
        stamp: What its timestamp proves here.
        token: What the token proves that its bits are bound to.
        grounds: The grounds on which evidence is enough.
        status: `owned`, `not shown` or `inconclusive`.
        reason: Code and text of the decisive reason.
        mark: The regenerated mark, after a full opening that fits the claim.
        verdict: The public part of the verdict.
        decoys: How the answers compare with random keys.
        shared: The most evidence in bits that a control has for the mark; None if none was read at every
            level at which the suspect was.
    """

    claim: Claim
    opened: Opened
    alpha: float
    checks: tuple[Check, ...]
    stamp: Stamp | None
    token: Stamp | None
    grounds: tuple[Ground, ...]
    status: str
    reason: tuple[str, str]
    mark: Watermark | None = field(default=None, repr=False)
    verdict: dict[str, Any] | None = None
    decoys: dict[str, int] | None = None
    shared: float | None = None

    @property
    def detected(self) -> bool:
        """Whether every fatal check passed and the mark, fully opened, is significant in the suspect."""
        sound = all(check.passed for check in self.checks if check.fatal)
        found = self.mark is not None and self.verdict is not None and self.status != "not shown"
        return sound and found and self.bits >= -math.log2(self.alpha)

    @property
    def bits(self) -> float:
        """Evidence in bits; 0 without a verdict."""
        return 0.0 if self.verdict is None else float(self.verdict["evidence_bits"])


def examine_claim(claim: Claim, opened: Opened, exhibits: Exhibits, judge: str, case: str) -> Standing:
    """Check a claim and its opening, and read the suspect.

    Args:
        claim: The claim.
        opened: Its opening.
        exhibits: What the judge brings.
        judge: The signing key of the judge, in hex.
        case: The name of the case.
    """
    reference = reference_for(exhibits.data, claim.context["reference"], claim.tensors)
    checks, stamp, token = check_dates(claim, exhibits)
    checks += [check_revocations(claim, stamp, exhibits), check_address(claim, opened, judge, case)]
    checks.append(check_data(claim, reference))
    shown: Watermark | Revealed | None = None
    if all(check.passed for check in checks if check.fatal):
        try:
            shown, more = check_content(claim, opened, reference, exhibits)
            checks += more
        except InvgnnError as error:
            checks.append(Check(code_of(error), False, error.message))
    alpha = min(float(claim.rule["alpha"]), exhibits.alpha)
    weigh = partial(
        grounds_of,
        alpha,
        stamp=stamp,
        suspect_since=exhibits.suspect_since,
        token=token,
        chosen=chosen_late(claim, opened),
        claims=exhibits.claims,
        requests=exhibits.requests,
    )
    about: dict[str, Any] = {
        "claim": claim,
        "opened": opened,
        "alpha": alpha,
        "stamp": stamp,
        "token": token,
        "grounds": weigh(shared=0.0 if exhibits.controls else None),
    }
    failed = next((check for check in checks if check.fatal and not check.passed), None)
    if failed is not None or shown is None:
        reason = ("opening", "nothing was opened") if failed is None else (failed.check, failed.says)
        return Standing(**about, checks=tuple(checks), status="inconclusive", reason=reason)
    try:
        if isinstance(shown, Revealed):
            return _partly(about, checks, shown, exhibits)
        return _fully(about, checks, shown, exhibits, weigh)
    except SuspectError as error:
        checks.append(Check("suspect", False, error.message))
        reason = ("suspect", error.message)
        return Standing(**about, checks=tuple(checks), status="inconclusive", reason=reason)


def _fully(
    about: dict[str, Any],
    checks: list[Check],
    mark: Watermark,
    exhibits: Exhibits,
    weigh: Callable[..., tuple[Ground, ...]],
) -> Standing:
    """Read the suspect with the whole mark."""
    alpha, enough = about["alpha"], sufficient(about["grounds"])
    verdict = verify(
        exhibits.suspect,
        mark,
        alpha,
        data=None if mark.score_channel is None else exhibits.data,
        architecture=exhibits.architecture,
        forward=exhibits.forward,
        controls=exhibits.controls,
        suspects=exhibits.suspects,
        with_answers=True,
        sufficient=enough,
    )
    answers, bits = np.array(verdict.answers), np.array(verdict.bits)
    binary = verdict.access in {"perception", "labels"}
    said = decode(answers, 0.5 if binary else None)
    level = -math.log2(alpha)
    shared = [one["evidence_bits"] for one in verdict.controls if "evidence_bits" in one]
    verified = [one for one in shared if one >= level]
    most = max(shared) if any(_compares(one, verdict) for one in verdict.controls) else None
    about = {**about, "grounds": weigh(shared=most), "shared": most}
    checks = [*checks, _controls(len(verdict.controls), len(verified))]
    if verdict.status == "owned" and not _held(about["grounds"], verdict.evidence_bits):
        why = _ungrounded(about["grounds"])  # controls have a part of the evidence, too
        verdict = replace(verdict, status="inconclusive", reasons=(why,))
    code = _reason(verdict.status, bool(verified), verdict.evidence_bits >= level)
    says = _words(code, verdict, about["grounds"])
    return Standing(
        **about,
        checks=tuple(checks),
        status=verdict.status,
        reason=(code, says),
        mark=mark,
        verdict=json.loads(json.dumps(verdict.to_json(private=False))),
        decoys=_decoys(said, bits),
    )


def _compares(control: dict[str, Any], verdict: Verdict) -> bool:
    """Return whether a control was read at every level at which the suspect was."""
    read = {one["access"] for one in verdict.levels if one["read"]}
    return "evidence_bits" in control and read <= set(control["read_at"])


def _held(grounds: tuple[Ground, ...], bits: float) -> list[str]:
    """Return the grounds on which so much evidence is enough."""
    return [one.ground for one in grounds if one.available and bits >= one.needed]


def _words(code: str, verdict: Verdict, grounds: tuple[Ground, ...]) -> str:
    """Return the decisive reason in words."""
    if code == "grinding":
        return _ungrounded(grounds)
    if code != "evidence":
        return verdict.reasons[0]
    held = _held(grounds, verdict.evidence_bits)
    return f"{floor_bits(verdict.evidence_bits)} bits of evidence are enough: {'; '.join(held)}"


def _ungrounded(grounds: tuple[Ground, ...]) -> str:
    """Say why significant evidence is not enough."""
    least = min(one.needed for one in grounds if one.available)
    missing = "; ".join(f"{one.ground}: {one.says.rstrip('.')}" for one in grounds if not one.available)
    return (
        "chance is ruled out for one secret, but a secret that fits the suspect could have been searched "
        f"for; {ceil_bits(least)} bits would be enough here. {missing}"
    )


def _controls(count: int, verified: int) -> Check:
    """Check that no control verifies."""
    if not count:
        return Check("controls", False, "no unmarked model was read for comparison", fatal=False)
    return Check("controls", not verified, f"{verified} of {count} unmarked models verify")


def _reason(status: str, control: bool, significant: bool) -> str:
    """Return the code of the reason of a verdict."""
    if status == "owned":
        return "evidence"
    if status == "not shown":
        return "chance"
    if control:
        return "controls"
    return "grinding" if significant else "verdict"


def _partly(about: dict[str, Any], checks: list[Check], shown: Revealed, exhibits: Exhibits) -> Standing:
    """Read the suspect with a part of the mark; never enough for `owned`."""
    claim: Claim = about["claim"]
    rng = np.random.default_rng(int.from_bytes(os.urandom(16)))
    order = rng.permutation(len(shown.bits) + len(shown.questions.decoded[1]))
    suspect = open_suspect(exhibits.suspect, exhibits.architecture)
    found = read_partial(shown, claim, suspect, order, exhibits.forward)
    level = laws.log_level(about["alpha"], exhibits.suspects)
    others = [open_suspect(one, exhibits.architecture) for one in exhibits.controls]
    tests = [read_partial(shown, claim, one, order, exhibits.forward) for one in others]
    verified = sum(one.log_p <= level for one in tests)
    checks = [*checks, _controls(len(tests), verified)]
    code = trace(suspect) if isinstance(suspect, nn.Module) else None
    verdict = found.record() | {
        "digests": {
            "suspect": "function" if code is None else code.digest,
            "weights": "function" if code is None else code.tensors,
        },
        "code": {"foreign": []} if code is None else code.record(),
        "suspects": exhibits.suspects,
        "alpha": about["alpha"],
        "controls": [
            {"digest": trace(other).digest if isinstance(other, nn.Module) else "function"}
            | {"matches": one.matches, "evidence_bits": laws.evidence_bits(one.log_p)}
            for other, one in zip(others, tests, strict=True)
        ],
    }
    if found.log_p > level:
        status, reason = "not shown", ("chance", "an unrelated model could give these answers by chance")
    else:
        status = "inconclusive"
        reason = (
            "partial",
            "the revealed bits match beyond chance, but only a full opening shows that the bits were drawn "
            "at random and not chosen to fit every model of the task",
        )
    return Standing(
        **about,
        checks=tuple(checks),
        status=status,
        reason=reason,
        verdict=json.loads(json.dumps(verdict)),
        decoys=_decoys(found.decoded, shown.bits),
    )


def _decoys(decoded: Bools, bits: Ints) -> dict[str, int]:
    """Compare the answers with random keys that have as many ones as the claimed key."""
    rng = np.random.default_rng(int.from_bytes(os.urandom(16)))
    keys = rng.permuted(np.tile(bits, (DECOYS, 1)), axis=1)
    most, equal = as_good(decoded, bits, list(keys))
    return {"count": DECOYS, "most": most, "as_good": equal}
