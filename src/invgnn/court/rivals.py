"""Settle rival claims on one suspect: marks are read in both originals first, dates decide last."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from invgnn.audit.examine import examine
from invgnn.audit.provenance import trace
from invgnn.audit.verdict import floor_bits
from invgnn.audit.verify import open_suspect
from invgnn.court.claim import Claim
from invgnn.court.exhibits import Exhibits
from invgnn.court.grounds import iso
from invgnn.court.opening import Opened
from invgnn.court.standing import Standing
from invgnn.errors import InvgnnError, SuspectError
from invgnn.readout.query import Suspect
from invgnn.stats import laws
from invgnn.watermark.mark import Watermark

READINGS = 4
"""Number of readings of two marks in two originals, for which the evidence is corrected."""
SHARED = 0.5
"""Share of equal weights in every tensor above which a model counts as made from another."""


@dataclass(frozen=True, eq=False)
class Rival:
    """A rival's claim on the same suspect.

    Attributes:
        claim: The claim.
        opened: Its opening.
        original: The model that the claim commits to, as the rival shows it; None if it is not shown.
    """

    claim: Claim
    opened: Opened
    original: nn.Module | str | Path | None = None


@dataclass(frozen=True)
class Settled:
    """How a rival claim was settled, seen from the claim that is judged.

    Attributes:
        outcome: One of the outcomes in the schema of a judgement.
        says: Why.
        by_date: Whether it rests on the dates of the claims.
    """

    outcome: str
    says: str
    by_date: bool = False


@dataclass(frozen=True, eq=False)
class Party:
    """One side: its claim as examined, and the original that it shows.

    Attributes:
        standing: The examined claim.
        original: The committed original; None if it was not shown or is another model.
        why: Why there is none.
    """

    standing: Standing
    original: Suspect | None
    why: str = ""


def party(standing: Standing, original: nn.Module | str | Path | None, exhibits: Exhibits) -> Party:
    """Return one side, with its original only if that is the model that the claim commits to."""
    if original is None:
        return Party(standing, None, "its committed original was not shown")
    try:
        model = open_suspect(original, exhibits.architecture)
    except InvgnnError as error:
        return Party(standing, None, f"its original cannot be read: {error.message[:200]}")
    wanted = standing.claim.payload["model"]["weights"]
    if not isinstance(model, nn.Module) or trace(model).tensors != wanted:
        return Party(standing, None, "the model that it shows is not the one that its claim commits to")
    return Party(standing, model)


def settle(ours: Party, theirs: Party, exhibits: Exhibits) -> Settled:
    """Decide between two claims on one suspect, seen from ours.

    Guarantee: two claims on one suspect are never both favoured. If a model is independent of a secret,
    the mark of that secret is read in it with probability at most alpha.

    Args:
        ours: The claim that is judged.
        theirs: The rival's.
        exhibits: What the judge brings.
    """
    if not theirs.standing.detected:
        return Settled("does not stand", f"on its own: {theirs.standing.reason[1]}")
    first, second = ours.standing, theirs.standing
    if first.opened.secret is not None and first.opened.secret == second.opened.secret:
        return _same_secret(first, second)
    if ours.original is None or theirs.original is None:
        return _without_originals(ours, theirs)
    return _with_originals(ours, theirs, exhibits)


def _same_secret(first: Standing, second: Standing) -> Settled:
    """Decide between two claims on one secret: whoever committed to it first."""
    earlier, dates = _earlier(first, second), _dates(first, second)
    if earlier is first:
        return Settled("replays this secret", f"both claims are on the same secret; {dates}", by_date=True)
    if earlier is second:
        return Settled(
            "is older on the same secret", f"both claims are on the same secret; {dates}", by_date=True
        )
    return Settled("not settled", "both claims are on the same secret, and no date tells which is older")


def _without_originals(ours: Party, theirs: Party) -> Settled:
    """Decide where a side does not show the model that it committed to."""
    if ours.original is not None:
        return Settled("does not stand", theirs.why)
    return Settled("not settled", f"this claim cannot be compared with the rival's: {ours.why}")


def _with_originals(ours: Party, theirs: Party, exhibits: Exhibits) -> Settled:
    """Read both marks in both originals; if that does not decide, look for the ancestor of the suspect."""
    sides = (ours, theirs)
    bits = [[_bits(one.standing, other.original, exhibits) for other in sides] for one in sides]
    limits = [-math.log2(side.standing.alpha) for side in sides]
    (own, forth), (back, their_own) = [
        [found >= limit for found in row] for row, limit in zip(bits, limits, strict=True)
    ]
    numbers = (
        f"this mark in the rival's original: {floor_bits(bits[0][1])} bits; the rival's mark in this "
        f"original: {floor_bits(bits[1][0])} bits"
    )
    if not own:
        return Settled("not settled", f"this claim's original does not carry its own mark; {numbers}")
    if not their_own:
        return Settled("does not stand", f"the rival's original does not carry its own mark; {numbers}")
    if forth and not back:
        return Settled("descends from this claim", f"the rival's original carries this mark; {numbers}")
    if back and not forth:
        return Settled("is the ancestor", f"this claim's original carries the rival's mark; {numbers}")
    return _by_weights(ours, theirs, exhibits, both=forth and back, numbers=numbers)


def _by_weights(ours: Party, theirs: Party, exhibits: Exhibits, *, both: bool, numbers: str) -> Settled:
    """Decide by the original whose weights the suspect still has, and between two of them by date."""
    suspect = open_suspect(exhibits.suspect, exhibits.architecture)
    mine, other = (made_from(suspect, side.original) for side in (ours, theirs))
    if mine and other:
        earlier = _earlier(ours.standing, theirs.standing)
        says = f"the suspect has the weights of both; {_dates(ours.standing, theirs.standing)}; {numbers}"
        if earlier is ours.standing:
            return Settled("embedded later", says, by_date=True)
        if earlier is theirs.standing:
            return Settled("is the ancestor", says, by_date=True)
    elif mine and not both:
        return Settled("embedded later", f"the suspect has the weights of this original alone; {numbers}")
    elif other and not both:
        return Settled("is the ancestor", f"the suspect has the weights of the rival's original; {numbers}")
    return Settled(
        "not settled",
        f"neither original carries only its own mark and is shown to be the suspect's ancestor; {numbers}",
    )


def _bits(standing: Standing, model: Any, exhibits: Exhibits) -> float:
    """Return the evidence for a mark in an original, corrected for all readings."""
    mark: Watermark | None = standing.mark
    if mark is None:
        return 0.0
    channel = None if mark.score_channel is None else mark.channel(exhibits.data)
    try:
        found = examine(mark, model, channel=channel, forward=exhibits.forward)
    except SuspectError:  # a model that cannot be read shows no mark
        return 0.0
    return laws.evidence_bits(found.log_p, READINGS)


def _earlier(first: Standing, second: Standing) -> Standing | None:
    """Return the claim that is shown to be older. One with a date prevails over one without."""
    if first.stamp is None or second.stamp is None:
        return first if second.stamp is None and first.stamp else second if second.stamp else None
    if first.stamp.precedes(second.stamp):
        return first
    return second if second.stamp.precedes(first.stamp) else None


def _dates(first: Standing, second: Standing) -> str:
    """Return the dates of two claims in words."""
    ours, theirs = (
        "has no date that counts" if one.stamp is None else f"is dated {iso(one.stamp.time)}"
        for one in (first, second)
    )
    return f"this claim {ours}, the rival's {theirs}"


def made_from(suspect: Any, original: Any) -> bool:
    """Return whether a model has more than half of the weights of another, bit for bit, in every tensor.

    Two models trained separately share no weight but zeros, which do not count. Two originals that differ
    in every weight cannot both share more than half with one suspect.

    Args:
        suspect: The suspect.
        original: The model that it may be made from.
    """
    if not (isinstance(suspect, nn.Module) and isinstance(original, nn.Module)):
        return False
    ours, theirs = suspect.state_dict(), original.state_dict()
    if ours.keys() != theirs.keys() or any(ours[name].shape != theirs[name].shape for name in ours):
        return False
    floats = [name for name in ours if ours[name].is_floating_point() and ours[name].dim() > 1]
    shares = [_share(ours[name], theirs[name]) for name in floats]
    return bool(shares) and min(shares) > SHARED


def _share(ours: torch.Tensor, theirs: torch.Tensor) -> float:
    """Return the share of entries that are equal and not zero."""
    equal = (ours == theirs.to(ours)) & (theirs != 0).to(ours.device)
    return float(equal.double().mean())
