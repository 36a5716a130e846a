"""Challenges: a judge draws the carriers that a claimant has to reveal, after the claim is fixed."""

from __future__ import annotations

import os
from dataclasses import dataclass

from invgnn.court.claim import Claim
from invgnn.court.documents import Document, load_checked
from invgnn.court.identity import Identity
from invgnn.errors import ParameterError
from invgnn.secret import SIZE, public_stream
from invgnn.storage.atomic import AnyPath

LONGEST_CASE = 200
"""Largest number of characters of the name of a case."""


def check_case(case: str) -> None:
    """Raise `ParameterError` unless a text can name a case."""
    if type(case) is not str or not 1 <= len(case) <= LONGEST_CASE or not case.isprintable():
        raise ParameterError(
            f"the name of a case has 1 to {LONGEST_CASE} printable characters", "choose another name"
        )


@dataclass(frozen=True)
class Challenge:
    """A judge's signed request to reveal some carriers.

    Issue one challenge per claim: a claimant who may ask for another one chooses the carriers.

    Attributes:
        document: The signed document.
    """

    document: Document

    def __post_init__(self) -> None:
        check_case(self.case)

    @classmethod
    def draw(cls, claim: Claim, judge: Identity, case: str, carriers: int) -> Challenge:
        """Draw carriers at random.

        Args:
            claim: The claim.
            judge: Who signs the challenge.
            case: The name of the case.
            carriers: How many carriers to reveal.

        Raises:
            ParameterError: If the claim has fewer carriers.
        """
        if type(carriers) is not int or not 2 <= carriers <= claim.context["m"]:
            raise ParameterError(
                f"{carriers} carriers cannot be drawn", f"use 2 to {claim.context['m']} carriers"
            )
        said = {
            "format": 1,
            "claim": claim.digest,
            "case": case,
            "carriers": carriers,
            "seed": os.urandom(SIZE).hex(),
        }
        return cls(Document.sign("challenge", said, judge))

    @property
    def case(self) -> str:
        """The name of the case."""
        return str(self.document.payload["case"])

    def check(self, claim: Claim, judge: str) -> None:
        """Raise `ParameterError` unless the challenge is on a claim and signed by a judge.

        Args:
            claim: The claim.
            judge: The signing key of the judge, in hex.
        """
        said = self.document.payload
        if said["claim"] != claim.digest or self.document.key != judge:
            raise ParameterError(
                "the challenge is on another claim, or by another judge", "ask the judge for a challenge"
            )
        if said["carriers"] > claim.context["m"]:
            raise ParameterError("the challenge asks for more carriers than there are", "draw it again")

    def drawn(self, claim: Claim) -> list[int]:
        """Return the places of the carriers to reveal, in ascending order."""
        said = self.document.payload
        stream = public_stream("court/challenge", claim.digest, bytes.fromhex(said["seed"]))
        return sorted(stream.permutation(claim.context["m"])[: said["carriers"]].tolist())

    def save(self, path: AnyPath, *, overwrite: bool = False) -> None:
        """Write the challenge to a public file."""
        self.document.save(path, overwrite=overwrite)

    @classmethod
    def load(cls, path: AnyPath) -> Challenge:
        """Read a challenge, and check its form and its signature.

        Raises:
            FileError: If the file is no challenge, or was altered.
        """
        return load_checked(path, "challenge", cls)
