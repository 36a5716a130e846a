"""Judge a claim on a suspect: every check, the evidence, rival claims, and a signed judgement."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import nn

from invgnn.court.challenge import check_case
from invgnn.court.claim import Claim
from invgnn.court.documents import Document
from invgnn.court.exhibits import Exhibits
from invgnn.court.grounds import OLDER, iso
from invgnn.court.identity import Identity
from invgnn.court.judgement import LOST, Judgement
from invgnn.court.opening import PROVES, Opened
from invgnn.court.rivals import Rival, Settled, party, settle
from invgnn.court.standing import Standing, examine_claim
from invgnn.version import __version__


def judge(
    claim: Claim,
    opened: Opened,
    exhibits: Exhibits,
    identity: Identity,
    case: str,
    *,
    original: nn.Module | str | Path | None = None,
    rivals: Sequence[Rival] = (),
    recheck: str = "",
) -> Judgement:
    """Judge a claim and sign the judgement. Needs no network.

    Guarantee: for a suspect that is independent of the secret, `owned` has probability at most alpha, if
    the claimant tried no more often than the grounds state, and if the date of the suspect is right.

    Args:
        claim: The claim.
        opened: Its opening, decrypted.
        exhibits: The suspect, and the judge's own data, architecture, controls and trusted authorities.
        identity: The judge.
        case: The name of the case, as in the opening.
        original: The model that the claim commits to, as the claimant shows it. Needed against rivals.
        rivals: Other claims on the same suspect.
        recheck: The exact command that repeats the judgement.

    Returns:
        The signed judgement. It is inconclusive if a check fails or the suspect cannot be read.

    Raises:
        FileError: If the suspect is a file that cannot be read.
    """
    check_case(case)
    own = examine_claim(claim, opened, exhibits, identity.key, case)
    heard = [(one, _heard(own, original, one, exhibits, identity, case)) for one in rivals]
    status, reasons = _decision(own, heard)
    payload = {
        "format": 1,
        "case": case,
        "judge": {"name": identity.name, "signing": identity.key},
        "status": status,
        "reasons": [{"code": code, "says": says[:2000]} for code, says in reasons],
        "claim": {
            "digest": claim.digest,
            "owner": claim.owner,
            "signing": claim.document.key,
            "label": claim.payload["label"],
            "model": claim.payload["model"]["digest"],
            "weights": claim.payload["model"]["weights"],
        },
        "opening": {"form": opened.form, "digest": opened.digest, "proves": PROVES[opened.form]},
        "suspect": _suspect(own),
        "timeline": _timeline(own, exhibits),
        "grounds": [one.record(own.bits) for one in own.grounds] if own.verdict is not None else [],
        "checks": [one.record() for one in own.checks],
        "verdict": own.verdict,
        "decoys": own.decoys,
        "rivals": [
            {
                "claim": one.claim.digest,
                "owner": one.claim.owner,
                "outcome": how.outcome,
                "says": how.says[:2000],
            }
            for one, how in heard
        ],
        "voids": voids(own, exhibits, [how for _, how in heard]),
        "recheck": recheck[:4000],
        "software": f"invgnn {__version__}",
    }
    return Judgement(Document.sign("judgement", payload, identity))


def _heard(
    own: Standing,
    original: nn.Module | str | Path | None,
    rival: Rival,
    exhibits: Exhibits,
    identity: Identity,
    case: str,
) -> Settled:
    """Examine a rival's claim like the claim itself, and settle between the two."""
    held = exhibits if rival.data is None else replace(exhibits, data=rival.data)
    other = examine_claim(rival.claim, rival.opened, held, identity.key, case)
    return settle(party(own, original, exhibits), party(other, rival.original, held))


def _decision(own: Standing, heard: list[tuple[Rival, Settled]]) -> tuple[str, list[tuple[str, str]]]:
    """Return the status and its reasons, the decisive one first."""
    against = [(one, how) for one, how in heard if how.outcome in LOST]
    told = [(how.outcome, f"rival {one.claim.owner}: {how.outcome}; {how.says}") for one, how in heard]
    if own.status == "owned" and against:
        first = [one for one in told if one[0] in LOST]
        return "inconclusive", [*first, own.reason]
    return own.status, [own.reason, *told]


def _suspect(own: Standing) -> dict[str, str] | None:
    """Return the digests of the suspect, if it was read."""
    if own.verdict is None:
        return None
    return {
        name: own.verdict["digests"][key] for name, key in (("digest", "suspect"), ("weights", "weights"))
    }


def _timeline(own: Standing, exhibits: Exhibits) -> dict[str, Any]:
    """Return the dates of a case; those that were not proven here are None or stated by the judge."""
    since = exhibits.suspect_since
    return {
        "drawn_after": None if own.token is None else iso(own.token.time),
        "claimed_by": None if own.stamp is None else iso(own.stamp.time),
        "suspect_not_before": None if since is None else iso(since),
        "judged_at": iso(exhibits.now),
        "authority": None if own.stamp is None else own.stamp.authority,
    }


def voids(own: Standing, exhibits: Exhibits, settled: Sequence[Settled] = ()) -> list[str]:
    """Return what would void a judgement, in plain words."""
    found = [
        "An older claim on the same secret, or a rival mark in the original of the claimant, is shown.",
        "Code that the judgement lists was not read by the judge, or does not come from where it says.",
        "The suspect that was read is not the suspect of the case: compare the digests.",
        "The reference data, the architecture or the controls came from the claimant unchecked.",
    ]
    rests = own.grounds if own.status == "owned" else ()
    used = {one.ground for one in rests if one.available and own.bits >= one.needed}
    if OLDER in used and own.bits < 80:
        found += [
            "The suspect existed before the date that the judge found.",
            "The controls were not trained for the task of the suspect.",
            f"The claimant had filed more than {exhibits.claims:,} claims before that date.",
            "The time-stamping authority dated the claim wrongly, or the claimant operates it.",
        ]
    if "bound to a token" in used and own.bits < 80:
        found += [
            f"The claimant requested more than {exhibits.requests:,} timestamp tokens.",
            "The claimant operates the authority that signed the token, or has its key.",
        ]
    if any(how.by_date for how in settled):
        found.append(
            "A date that settled a rival claim is wrong, or a party operates the authority, or had the "
            "original of the other before the other claimed it."
        )
    if own.claim.transformed:
        found.append("The inputs that the claimant shows are not what users of the model give to it.")
    if exhibits.suspects == 1:
        found.append("The mark was tested on other suspects, and this one was chosen afterwards.")
    return found
