"""Revocations: an owner withdraws a claim, or a key, and may name a successor."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime

from invgnn.court.claim import Claim
from invgnn.court.documents import Document, load_checked
from invgnn.court.grounds import iso
from invgnn.court.identity import Identity
from invgnn.court.signatures import verify_signature
from invgnn.court.timestamp import Stamp
from invgnn.errors import ParameterError
from invgnn.storage import encoding
from invgnn.storage.atomic import AnyPath

REASONS = ("superseded", "key compromised", "secret leaked", "issued in error", "licence ended")
"""The reasons of a revocation."""


@dataclass(frozen=True)
class Revocation:
    """A signed revocation.

    Attributes:
        document: The signed document.

    Raises:
        ParameterError: If it revokes a key that did not sign it, or a successor did not agree.
    """

    document: Document

    def __post_init__(self) -> None:
        said = self.document.payload
        parse_time(said["since"])
        if said["target"]["kind"] == "key" and said["target"]["value"] != self.document.key:
            raise ParameterError("a key can be revoked by itself only", "sign with the revoked key")
        successor = said["successor"]
        if successor is not None:
            agreed = _agreement(self.document.key, said["target"]["value"])
            verify_signature(successor["key"], successor["signature"], agreed, "the successor")

    @classmethod
    def make(
        cls,
        owner: Identity,
        reason: str,
        *,
        claim: Claim | None = None,
        since: datetime | None = None,
        successor: Identity | None = None,
    ) -> Revocation:
        """Revoke a claim, or the key of an identity.

        Args:
            owner: Who signed the claim, or whose key is revoked.
            reason: One of `REASONS`.
            claim: The claim; None to revoke the key.
            since: From when on it counts; by default from now on.
            successor: The identity that replaces this one.

        Raises:
            ParameterError: If the claim was signed by somebody else, or the reason is unknown.
        """
        if claim is not None and claim.document.key != owner.key:
            raise ParameterError("the claim was signed by another identity", "use the one that signed it")
        if reason not in REASONS:
            raise ParameterError(f"unknown reason {reason!r}", f"choose one of: {', '.join(REASONS)}")
        kind, value = ("key", owner.key) if claim is None else ("claim", claim.digest)
        agreed = None
        if successor is not None:
            signature = successor.sign(_agreement(owner.key, value)).hex()
            agreed = {"key": successor.key, "signature": signature}
        said = {
            "format": 1,
            "owner": owner.name,
            "target": {"kind": kind, "value": value},
            "since": iso(since or datetime.now(UTC)),
            "reason": reason,
            "successor": agreed,
        }
        return cls(Document.sign("revocation", said, owner))

    def affects(self, claim: Claim, stamp: Stamp | None, now: datetime | None = None) -> str | None:
        """Return why a claim does not count any more; None if it still does.

        A claim that is dated before its key was revoked still counts, and so does one that is revoked from
        a later time on.

        Args:
            claim: The claim.
            stamp: What its timestamp proves.
            now: The judge's clock; by default that of this machine.
        """
        said = self.document.payload
        kind, value = said["target"]["kind"], said["target"]["value"]
        words = f"by its owner from {said['since']} on ({said['reason']})"
        if self.document.key != claim.document.key:
            return None
        since = parse_time(said["since"])
        if kind == "claim" and value == claim.digest and since <= (now or datetime.now(UTC)):
            return f"the claim was revoked {words}"
        if kind == "key" and (stamp is None or not stamp.time < since):
            return f"the key that signed the claim was revoked {words}, and the claim is not dated before"
        return None

    def save(self, path: AnyPath, *, overwrite: bool = False) -> None:
        """Write the revocation to a public file."""
        self.document.save(path, overwrite=overwrite)

    @classmethod
    def load(cls, path: AnyPath) -> Revocation:
        """Read a revocation, and check its form and its signatures.

        Raises:
            FileError: If the file is no revocation, or was altered.
        """
        return load_checked(path, "revocation", cls)


def why_revoked(
    claim: Claim, stamp: Stamp | None, revocations: Sequence[Revocation], now: datetime
) -> str | None:
    """Return why a claim does not count any more; None if no revocation affects it."""
    return next((why for one in revocations if (why := one.affects(claim, stamp, now)) is not None), None)


def parse_time(text: str) -> datetime:
    """Return a date (its first moment in UTC) or a time with a time zone.

    Raises:
        ParameterError: If the text is neither.
    """
    try:
        if len(text) == len("2026-01-31"):
            day = date.fromisoformat(text)
            return datetime(day.year, day.month, day.day, tzinfo=UTC)
        found = datetime.fromisoformat(text)
        if found.tzinfo is None:
            raise ValueError("no time zone")
        return found.astimezone(UTC)
    except (ValueError, OverflowError):
        raise ParameterError(
            f"{text!r} is not a date", "write 2026-01-31, or a time with its zone: 2026-01-31T12:00:00Z"
        ) from None


def _agreement(key: str, target: str) -> bytes:
    """Return what a successor signs."""
    return encoding.encode(["invgnn/successor/1", key, target])
