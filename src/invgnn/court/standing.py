"""Examine one claim: what was opened, whether it is what was claimed, and what the suspect answers."""

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
from invgnn.court.commitment import commit_mark, commit_secret, digest_labels, same
from invgnn.court.exhibits import CLOCKS, Check, Exhibits
from invgnn.court.grounds import Ground, ceil_bits, grounds_of, iso, sufficient
from invgnn.court.leaves import Leaves
from invgnn.court.opening import Opened
from invgnn.court.partial import Revealed, as_good, read_partial, reveal
from invgnn.court.regeneration import ROUNDING, difference, flaws, reference_for, regenerate
from invgnn.court.revocation import why_revoked
from invgnn.court.timestamp import Stamp
from invgnn.errors import CarrierError, DataError, InvgnnError, ParameterError, SuspectError, TimestampError
from invgnn.graphs.disjoint_union import Bools, Ints
from invgnn.stats import laws
from invgnn.stats.evidence import decode
from invgnn.watermark.mark import Watermark
from invgnn.watermark.reference import Reference
from invgnn.watermark.transforms import Transform

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
    checks, stamp, token = _dates(claim, exhibits)
    checks += [_revoked(claim, stamp, exhibits), _addressed(claim, opened, judge, case)]
    checks.append(_same_data(claim, reference))
    shown: Watermark | Revealed | None = None
    if all(check.passed for check in checks if check.fatal):
        try:
            shown, more = _content(claim, opened, reference, exhibits)
            checks += more
        except InvgnnError as error:
            checks.append(Check(_code(error), False, error.message))
    alpha = min(float(claim.rule["alpha"]), exhibits.alpha)
    weigh = partial(
        grounds_of,
        alpha,
        stamp=stamp,
        suspect_since=exhibits.suspect_since,
        token=token,
        chosen=_chosen_late(claim, opened),
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


# -- before the suspect is asked ---------------------------------------------------------------------


def _dates(claim: Claim, exhibits: Exhibits) -> tuple[list[Check], Stamp | None, Stamp | None]:
    """Check the signature and the dates of a claim."""
    checks = [Check("signature", True, f"signed by the key {claim.document.key[:16]}… of {claim.owner}")]
    found: list[Stamp | None] = []
    for name, what, read in (
        ("timestamp", "the claim existed", claim.stamp),
        ("token", "the secret was fixed before the token", claim.stamp_before_drawing),
    ):
        try:
            stamp = read(exhibits.roots)
        except TimestampError as error:
            checks.append(Check(name, False, f"not counted: {error.message}", fatal=False))
            found.append(None)
            continue
        if stamp is None:
            says = "the claim has no timestamp" if name == "timestamp" else "the bits are bound to no token"
            checks.append(Check(name, False, says, fatal=False))
        elif stamp.time > exhibits.now + CLOCKS:
            says = f"not counted: dated {iso(stamp.time)}, after the judge's clock ({iso(exhibits.now)})"
            checks.append(Check(name, False, says, fatal=False))
            stamp = None
        else:
            says = f"{what} on {iso(stamp.time)}, dated by {stamp.authority}"
            checks.append(Check(name, True, says, fatal=False))
        found.append(stamp)
    return checks, found[0], found[1]


def _revoked(claim: Claim, stamp: Stamp | None, exhibits: Exhibits) -> Check:
    """Check that the owner has not withdrawn the claim."""
    why = why_revoked(claim, stamp, exhibits.revocations)
    known = f"none of {len(exhibits.revocations)} known revocations affects the claim"
    return Check("revocation", why is None, why or known)


def _addressed(claim: Claim, opened: Opened, judge: str, case: str) -> Check:
    """Check that the opening is the claimant's, for this claim, this judge and this case."""
    wrong = [
        what
        for what, sound in (
            ("it opens another claim", opened.claim == claim.digest),
            ("it was signed by somebody else than the claimant", opened.signer == claim.document.key),
            ("it was made for another judge", opened.judge == judge),
            (f"it was made for the case {opened.case!r}", opened.case == case),
        )
        if not sound
    ]
    return Check("opening", not wrong, "; ".join(wrong) or "made by the claimant for this judge and case")


def _same_data(claim: Claim, reference: Reference) -> Check:
    """Check that the judge has the data that the claim names."""
    said = claim.payload["reference"]
    sound = said == {"graphs": reference.digest, "labels": digest_labels(reference.labels)}
    says = "the judge's copy is" if sound else "the judge's copy is not"
    return Check("reference", sound, f"{says} the reference data that the claim names")


def _chosen_late(claim: Claim, opened: Opened) -> str | None:
    """Return what the claimant could choose after the token of a claim was issued, and get other bits."""
    if opened.baseline is not None:
        return "baseline scores"
    return "the output of a transform" if claim.transformed else None


def _content(
    claim: Claim, opened: Opened, reference: Reference, exhibits: Exhibits
) -> tuple[Watermark | Revealed, list[Check]]:
    """Return what was opened, with the checks that it is what was claimed."""
    if opened.secret is None:
        shown = reveal(claim, opened)
        says = f"{len(shown.bits)} carriers with their bits are those that the claim committed to"
        return shown, [Check("leaves", True, says)]
    said = claim.payload
    if not same(commit_secret(opened.secret, claim.salt), said["commitment"]["secret"]):
        raise _Refused("commitment", "the opened secret is not the one that the claim committed to")
    drawn = regenerate(opened.secret, reference, claim.context, opened.baseline)
    if claim.transformed != (opened.shown is not None):
        raise _Refused("regeneration", "the opening and the claim differ about a transform of the inputs")
    mark = drawn if opened.shown is None else replace(drawn, shown=opened.shown)
    if not mark.complete:
        raise _Refused("regeneration", "the opening lacks the baseline scores of the score channel")
    if not same(commit_mark(opened.secret, claim.salt, mark.digest), said["commitment"]["mark"]):
        raise _Refused(
            "regeneration",
            "the mark that the secret gives is not the one that was claimed: carriers, ordinary inputs, "
            "labels or baseline scores were chosen in another way",
        )
    if mark.score_channel is not None:
        mark.channel(exhibits.data)  # raises if the baseline scores belong to other inputs
    leaves = Leaves(mark, claim.salt)
    if {"root": leaves.root, "leaves": len(leaves)} != said["tree"]:
        raise _Refused(
            "regeneration", "the tree of the claim does not hold the carriers and bits of the mark"
        )
    wrong = flaws(mark, reference)
    checks = [
        Check("commitment", True, "the opened secret is the one that the claim committed to"),
        Check("regeneration", True, f"all {mark.m} carriers and bits were regenerated, bit for bit"),
        *_transformed(opened, reference, claim, exhibits.transform),
        Check("key", not wrong, "; ".join(wrong) or "distinct, not in the data, like the data, balanced"),
    ]
    return mark, checks


def _transformed(
    opened: Opened, reference: Reference, claim: Claim, transform: Transform | None
) -> list[Check]:
    """Compare the inputs that a claimant shows with what the judge's own transform makes."""
    if opened.shown is None or opened.secret is None:
        return []
    if transform is None:
        says = (
            "not regenerated: the carriers were, but what a transform made of them is the claimant's. The "
            "claim fixed it and the bits derive from it; pass the transform of your own model to compare"
        )
        return [Check("transform", False, says, fatal=False)]
    own = regenerate(opened.secret, reference, claim.context, opened.baseline, transform).shown
    apart = math.inf if own is None else difference(own, opened.shown)
    if apart > ROUNDING:
        return [Check("transform", False, "the judge's transform makes other inputs of the carriers")]
    how = "exactly" if apart == 0 else f"up to rounding ({apart:.0e} of the largest value)"
    return [Check("transform", True, f"the judge's transform makes the same inputs of the carriers, {how}")]


class _Refused(ParameterError):
    """What was opened is not what was claimed."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message, "ask the claimant to explain")
        self.code = code


def _code(error: InvgnnError) -> str:
    """Return the name of the check that an error belongs to."""
    if isinstance(error, _Refused):
        return error.code
    return "regeneration" if isinstance(error, CarrierError | DataError) else "opening"


# -- the suspect is asked ----------------------------------------------------------------------------


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
    about = {**about, "grounds": weigh(shared=max(shared, default=None))}
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
