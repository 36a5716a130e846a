"""Settle rival claims on one suspect: marks are read in both originals first, dates decide last.

A mark in an original counts for its owner only if nobody can have searched for a secret that fits this
original: a thief has the owner's. It counts against its owner as soon as it is significant.
"""

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
from invgnn.court.claim_checks import chosen_late
from invgnn.court.exhibits import Exhibits
from invgnn.court.grounds import OLDER, grounds_of, iso
from invgnn.court.opening import Opened
from invgnn.court.standing import Standing
from invgnn.errors import InvgnnError, SuspectError
from invgnn.readout.query import Suspect
from invgnn.stats import laws
from invgnn.watermark.mark import Watermark

READINGS = 4
"""Number of readings of two marks in two originals, for which the evidence is corrected."""
SHARED = 0.5
"""Share of equal weights in every tensor above which one of two models counts as made from the other."""
LACKING = frozenset({"reference", "transform"})
"""Checks of a rival that may fail because the judge lacks something, though the claim is sound."""


@dataclass(frozen=True, eq=False)
class Rival:
    """A rival's claim on the same suspect.

    Attributes:
        claim: The claim.
        opened: Its opening.
        original: The model that the claim commits to, as the rival shows it; None if it is not shown.
        data: The judge's own copy of the reference data that this claim names, if they are others; None for
            those of the claim that is judged.
    """

    claim: Claim
    opened: Opened
    original: nn.Module | str | Path | None = None
    data: Any = None


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
        exhibits: What the judge brings, with the reference data of this claim.
        why: Why there is no original.
    """

    standing: Standing
    original: Suspect | None
    exhibits: Exhibits
    why: str = ""

    def significant(self, bits: float) -> bool:
        """Return whether chance is ruled out for so much evidence, if the secret was not searched for."""
        return bits >= -math.log2(self.standing.alpha)

    def certain(self, bits: float, other: Party) -> list[str]:
        """Return the grounds on which nobody searched for a secret with so much evidence in an original.

        The age of a claim is a ground if it is older than the claim that commits to the original.

        Args:
            bits: The evidence for the mark of this side in the original of the other.
            other: The other side.
        """
        own, dated = self.standing, other.standing.stamp
        grounds = grounds_of(
            own.alpha,
            stamp=own.stamp,
            suspect_since=None if dated is None else dated.earliest,
            token=own.token,
            chosen=chosen_late(own.claim, own.opened),
            shared=own.shared,
            claims=self.exhibits.claims,
            requests=self.exhibits.requests,
        )
        return [one.ground for one in grounds if one.available and bits >= one.needed]


def party(standing: Standing, original: nn.Module | str | Path | None, exhibits: Exhibits) -> Party:
    """Return one side, with its original only if that is the model that the claim commits to."""
    if original is None:
        return Party(standing, None, exhibits, "its committed original was not shown")
    try:
        model = open_suspect(original, exhibits.architecture)
    except InvgnnError as error:
        return Party(standing, None, exhibits, f"its original cannot be read: {error.message[:200]}")
    wanted = standing.claim.payload["model"]["weights"]
    if not isinstance(model, nn.Module) or trace(model).tensors != wanted:
        why = "the model that it shows is not the one that its claim commits to"
        return Party(standing, None, exhibits, why)
    return Party(standing, model, exhibits)


def settle(ours: Party, theirs: Party) -> Settled:
    """Decide between two claims on one suspect, seen from ours.

    Guarantee: two claims on one suspect are never both favoured. If a model is independent of a secret, the
    mark of that secret counts as significant in it with probability at most alpha. A party that searches
    for a secret until its mark fits the original of another gains nothing, unless it makes 2^80 tries or as
    many requests as the judge states.

    Args:
        ours: The claim that is judged.
        theirs: The rival's.
    """
    failed = {check.check for check in theirs.standing.checks if check.fatal and not check.passed}
    if failed and failed <= LACKING:
        return Settled("not settled", f"the rival's claim cannot be examined: {theirs.standing.reason[1]}")
    if not theirs.standing.detected:
        return Settled("does not stand", f"on its own: {theirs.standing.reason[1]}")
    first, second = ours.standing, theirs.standing
    if first.opened.secret is not None and first.opened.secret == second.opened.secret:
        return _same_secret(first, second)
    if ours.original is None or theirs.original is None:
        return _without_originals(ours, theirs)
    return _with_originals(ours, theirs)


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


def _with_originals(ours: Party, theirs: Party) -> Settled:
    """Read both marks in both originals; if that does not decide, look for the ancestor of the suspect."""
    sides = (ours, theirs)
    (own, forth), (back, their_own) = [[_bits(one, other) for other in sides] for one in sides]
    numbers = (
        f"this mark in the rival's original: {floor_bits(forth)} bits; the rival's mark in this original: "
        f"{floor_bits(back)} bits"
    )
    if not ours.significant(own):
        return Settled("not settled", f"this claim's original does not carry its own mark; {numbers}")
    if not theirs.significant(their_own):
        return Settled("does not stand", f"the rival's original does not carry its own mark; {numbers}")
    alone = (not theirs.significant(back), not ours.significant(forth))
    if alone[0] and (grounds := ours.certain(forth, theirs)):
        says = f"the rival's original carries this mark ({', '.join(grounds)}); {numbers}"
        return Settled("descends from this claim", says, by_date=grounds == [OLDER])
    if alone[1] and (grounds := theirs.certain(back, ours)):
        says = f"this claim's original carries the rival's mark ({', '.join(grounds)}); {numbers}"
        return Settled("is the ancestor", says, by_date=grounds == [OLDER])
    return _by_weights(ours, theirs, alone, numbers)


def _by_weights(ours: Party, theirs: Party, alone: tuple[bool, bool], numbers: str) -> Settled:
    """Decide by the original whose weights the suspect still has, if its claim is the older one as well.

    Equal weights do not tell which of two models was made from the other. A thief can destroy the owner's
    mark in some of the weights of the suspect and show the rest as an original, but cannot claim it before
    the owner has claimed theirs.

    Args:
        ours: The claim that is judged.
        theirs: The rival's.
        alone: Whether the original of either side is free of the other's mark.
        numbers: The evidence for the marks in the originals, in words.
    """
    exhibits = ours.exhibits
    suspect = open_suspect(exhibits.suspect, exhibits.architecture)
    mine, other = (made_from(suspect, side.original) for side in (ours, theirs))
    earlier = _earlier(ours.standing, theirs.standing)
    whose = "both originals" if mine and other else "this original" if mine else "the rival's original"
    says = f"the suspect has the weights of {whose}; {_dates(ours.standing, theirs.standing)}; {numbers}"
    if earlier is ours.standing and mine and (other or alone[0]):
        return Settled("embedded later", says, by_date=True)
    if earlier is theirs.standing and other and (mine or alone[1]):
        return Settled("is the ancestor", says, by_date=True)
    return Settled(
        "not settled",
        "neither mark is shown to be older by the two originals (one of them has to carry both marks, on a "
        "ground, and the other its own alone), nor by weights of the suspect and the date of a claim; "
        f"{numbers}",
    )


def _bits(side: Party, other: Party) -> float:
    """Return the evidence for the mark of one side in an original, corrected for all readings."""
    mark: Watermark | None = side.standing.mark
    if mark is None or other.original is None:
        return 0.0
    channel = None if mark.score_channel is None else mark.channel(side.exhibits.data)
    try:
        found = examine(mark, other.original, channel=channel, forward=side.exhibits.forward)
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
