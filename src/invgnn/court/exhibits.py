"""What a judge brings to a case, and the checks that a judge makes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from invgnn.checks import check_whole
from invgnn.court.grounds import CLAIMS, REQUESTS, iso
from invgnn.court.revocation import Revocation
from invgnn.court.timestamp import Roots
from invgnn.errors import ParameterError
from invgnn.nn.forward import Forward
from invgnn.nn.model_file import Architecture
from invgnn.readout.query import Suspect
from invgnn.stats import laws
from invgnn.watermark.transforms import Transform

CLOCKS = timedelta(minutes=10)
"""How far the clocks of a judge and of an authority may disagree."""


@dataclass(frozen=True, eq=False)
class Exhibits:
    """What a judge examines, all from sources that the judge trusts and not from the claimant.

    Attributes:
        suspect: The suspect: a module, a file, or a function that queries an endpoint.
        data: The judge's own copy of the reference data.
        architecture: For a file of weights alone: the judge's own architecture.
        forward: How to call a model with an unusual signature; the judge's own code.
        transform: For a mark drawn with a transform: the judge's own, which has to give the inputs that the
            claimant shows; None to take them as they were claimed, which the judgement then states.
        controls: Unmarked models, which must not verify.
        roots: Root certificates of the trusted time-stamping authorities.
        suspect_since: A time before which the suspect did not exist, as the judge finds from other
            evidence; None if there is none.
        now: The judge's clock.
        revocations: Revocations that the judge knows of.
        alpha: The largest false-positive rate that the judge accepts, whatever the claim declares.
        suspects: Number of suspects tested with this mark.
        claims: Largest number of claims that the claimant may have filed before the suspect existed.
        requests: Largest number of timestamp tokens that the claimant may have requested.
    """

    suspect: Suspect | str | Path
    data: Any
    architecture: Architecture | None = None
    forward: Forward | None = None
    transform: Transform | None = None
    controls: Sequence[Suspect | str | Path] = ()
    roots: Roots = ()
    suspect_since: datetime | None = None
    now: datetime = field(default_factory=lambda: datetime.now(UTC))
    revocations: Sequence[Revocation] = ()
    alpha: float = 1e-6
    suspects: int = 1
    claims: int = CLAIMS
    requests: int = REQUESTS

    def __post_init__(self) -> None:
        laws.check_alpha(self.alpha)
        for name in ("suspects", "claims", "requests"):
            check_whole(name, getattr(self, name), 1, 2**62)
        for time in (self.now, self.suspect_since):
            if time is not None and time.tzinfo is None:
                raise ParameterError("a time has no time zone", "use times in UTC")
        if self.suspect_since is not None and self.suspect_since > self.now + CLOCKS:
            raise ParameterError(
                f"the suspect cannot have appeared later than now ({iso(self.now)})",
                "correct the date of the suspect",
            )


@dataclass(frozen=True)
class Check:
    """One check of a judge.

    Attributes:
        check: Its name, which is also the code of the reason if it decides.
        passed: Whether it passed.
        says: What was found.
        fatal: Whether nothing can be owned if it fails.
    """

    check: str
    passed: bool
    says: str
    fatal: bool = True

    def record(self) -> dict[str, Any]:
        """Return the check as JSON values."""
        return {**asdict(self), "says": self.says[:2000]}
