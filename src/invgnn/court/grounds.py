"""The three grounds on which evidence is enough, each with its arithmetic."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

from invgnn.audit.decision import Sufficient, beyond_search
from invgnn.court.timestamp import Stamp
from invgnn.stats.evidence import GRINDING_BITS

CLAIMS = 2**20
"""How many claims one party is assumed to have filed at most, unless a judge knows better."""
REQUESTS = 2**30
"""How many tokens one party is assumed to have requested at most: 34 a second for a year."""


OLDER = "claim older than the suspect"
"""The name of the ground that rests on dates."""


@dataclass(frozen=True)
class Ground:
    """One reason why nobody searched for a secret that fits the suspect.

    Attributes:
        ground: Its name.
        available: Whether its condition is met, whatever the evidence.
        needed: Evidence in bits that is enough on this ground.
        says: The condition and the arithmetic.
    """

    ground: str
    available: bool
    needed: float
    says: str

    def record(self, found: float) -> dict[str, Any]:
        """Return the ground as JSON values, with the evidence that was found."""
        held = self.available and found >= self.needed
        return {**asdict(self), "found": found, "holds": held}


def grounds_of(
    alpha: float,
    *,
    stamp: Stamp | None,
    suspect_since: datetime | None,
    token: Stamp | None,
    chosen: str | None = None,
    shared: float | None = None,
    claims: int = CLAIMS,
    requests: int = REQUESTS,
) -> tuple[Ground, ...]:
    """Return the three grounds of a verdict.

    Guarantee: on an available ground, a party that may try as often as stated gets a verdict `owned` on a
    model that is independent of its secrets with probability at most alpha (2^-80 per try without a claim).
    A secret that was searched for before it was claimed, so that it fits what all models of a task answer
    alike, is not independent of a later model of this task. Such a search costs 2^80 tries on the first
    ground and as many requests on the third. On the second, controls show how far it went; this comparison
    is no test at a level.

    Args:
        alpha: The accepted false-positive rate.
        stamp: What the timestamp of the claim proves.
        suspect_since: When the suspect did not exist yet, as the judge finds.
        token: What the token proves that the bits are bound to.
        chosen: What the bits depend on that may have been chosen after the token; None if nothing.
        shared: Evidence in bits that unmarked models of the task have for the mark, at most; None if none
            was read at every level at which the suspect was.
        claims: Largest number of claims that the claimant may have filed.
        requests: Largest number of tokens that the claimant may have requested.
    """
    return (
        Ground(
            "80 bits",
            True,
            float(GRINDING_BITS),
            f"Whoever searches for a secret that fits a given model needs 2ᵇ tries for b bits; "
            f"{GRINDING_BITS} bits are out of reach, whenever the secret was made.",
        ),
        _older(alpha, stamp, suspect_since, shared, claims),
        _bound(alpha, token, chosen, requests),
    )


def sufficient(grounds: tuple[Ground, ...]) -> Sufficient:
    """Return the least evidence that is enough on an available ground, and why."""
    least = min((one for one in grounds if one.available), key=lambda one: one.needed)
    if least.ground == "80 bits":
        return beyond_search()
    return Sufficient(least.needed, f"{least.ground}: {least.says}")


def _needed(alpha: float, tries: int) -> float:
    """Return the evidence at which `tries` attempts reach the level alpha together, rounded up."""
    return math.nextafter(math.log2(tries) - math.log2(alpha), math.inf)


def _older(
    alpha: float, stamp: Stamp | None, since: datetime | None, shared: float | None, claims: int
) -> Ground:
    """Return the ground of a claim that precedes the suspect."""
    name, needed = OLDER, _needed(alpha, claims) + max(shared or 0.0, 0.0)
    if stamp is None:
        return Ground(name, False, needed, "The claim has no timestamp that counts here.")
    if since is None:
        return Ground(
            name, False, needed, "The judge found no date before which the suspect did not exist."
        )
    if not stamp.time < since:
        says = f"The claim is dated {iso(stamp.time)}, and the suspect may have existed since {iso(since)}."
        return Ground(name, False, needed, says)
    if shared is None:
        says = (
            "No unmarked model of the same task was read at every level at which the suspect was. A secret "
            "may have been searched for, before it was claimed, that fits what all models of the task "
            "answer alike."
        )
        return Ground(name, False, needed, says)
    says = (
        f"The claim existed on {iso(stamp.time)}, before the suspect ({iso(since)} or later). A claimant "
        f"who filed {claims:,} claims and opens the best reaches b bits by chance with probability "
        f"{claims:,} × 2⁻ᵇ, at most α = {alpha:g} from {ceil_bits(needed)} bits on. This includes "
        f"{ceil_bits(max(shared, 0.0))} bits that an unmarked model of the task has, in case the secret "
        "was fitted to what such models answer alike."
    )
    return Ground(name, True, needed, says)


def _bound(alpha: float, token: Stamp | None, chosen: str | None, requests: int) -> Ground:
    """Return the ground of bits that are bound to a token."""
    name, needed = "bound to a token", _needed(alpha, 2 * requests)
    if token is None:
        return Ground(name, False, needed, "The bits are not bound to a token that counts here.")
    if chosen is not None:
        says = f"The bits also depend on {chosen}, which could be chosen after the token was issued."
        return Ground(name, False, needed, says)
    says = (
        f"The secret was fixed before the token of {iso(token.time)}, and the bits derive from the token, "
        f"so every try costs a request. {requests:,} requests (two keys each, because a signature may have "
        f"two forms) reach b bits with probability 2 × {requests:,} × 2⁻ᵇ, at most α = {alpha:g} from "
        f"{ceil_bits(needed)} bits on."
    )
    return Ground(name, True, needed, says)


def ceil_bits(bits: float) -> str:
    """Return needed evidence as text, rounded up."""
    return f"{math.ceil(10 * bits) / 10:.1f}"


def iso(time: datetime) -> str:
    """Return a time as text, in seconds of UTC."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ")
