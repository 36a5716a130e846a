"""Check a claim and its opening before the suspect is asked: signature, dates, data, the key itself."""

from __future__ import annotations

import math
from dataclasses import replace

from invgnn.court.claim import Claim
from invgnn.court.commitment import commit_mark, commit_secret, digest_labels, same
from invgnn.court.exhibits import CLOCKS, Check, Exhibits
from invgnn.court.grounds import iso
from invgnn.court.leaves import Leaves
from invgnn.court.opening import Opened
from invgnn.court.partial import Revealed, reveal
from invgnn.court.regeneration import ROUNDING, difference, flaws, regenerate
from invgnn.court.revocation import why_revoked
from invgnn.court.timestamp import Stamp
from invgnn.errors import CarrierError, DataError, InvgnnError, ParameterError, TimestampError
from invgnn.watermark.mark import Watermark
from invgnn.watermark.reference import Reference
from invgnn.watermark.transforms import Transform


def check_dates(claim: Claim, exhibits: Exhibits) -> tuple[list[Check], Stamp | None, Stamp | None]:
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
    stamp, token = found
    if stamp is not None and token is not None and stamp.time < token.earliest:
        says = (
            f"not counted: dated {iso(stamp.time)}, but the claim contains a token that did not exist "
            f"before {iso(token.earliest)}, so one of the two authorities is wrong"
        )
        checks[1] = Check("timestamp", False, says, fatal=False)
        return checks, None, token
    return checks, stamp, token


def check_revocations(claim: Claim, stamp: Stamp | None, exhibits: Exhibits) -> Check:
    """Check that the owner has not withdrawn the claim."""
    why = why_revoked(claim, stamp, exhibits.revocations, exhibits.now + CLOCKS)
    known = f"none of {len(exhibits.revocations)} known revocations affects the claim"
    return Check("revocation", why is None, why or known)


def check_address(claim: Claim, opened: Opened, judge: str, case: str) -> Check:
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


def check_data(claim: Claim, reference: Reference) -> Check:
    """Check that the judge has the data that the claim names."""
    said = claim.payload["reference"]
    sound = said == {"graphs": reference.digest, "labels": digest_labels(reference.labels)}
    says = "the judge's copy is" if sound else "the judge's copy is not"
    return Check("reference", sound, f"{says} the reference data that the claim names")


def chosen_late(claim: Claim, opened: Opened) -> str | None:
    """Return what the claimant could choose after the token of a claim was issued, and get other bits."""
    if opened.baseline is not None:
        return "baseline scores"
    return "the output of a transform" if claim.transformed else None


def check_content(
    claim: Claim, opened: Opened, reference: Reference, exhibits: Exhibits
) -> tuple[Watermark | Revealed, list[Check]]:
    """Return what was opened, with the checks that it is what was claimed."""
    if opened.secret is None:
        shown = reveal(claim, opened)
        says = f"{len(shown.bits)} carriers with their bits are those that the claim committed to"
        wrong = flaws(claim.context, shown.questions.decoded[0], reference)
        return shown, [
            Check("leaves", True, says),
            Check("key", not wrong, "; ".join(wrong) or "distinct, not in the data, like the data"),
        ]
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
    wrong = flaws(mark.context, mark.carriers, reference, mark.bits)
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


def code_of(error: InvgnnError) -> str:
    """Return the name of the check that an error belongs to."""
    if isinstance(error, _Refused):
        return error.code
    return "regeneration" if isinstance(error, CarrierError | DataError) else "opening"
