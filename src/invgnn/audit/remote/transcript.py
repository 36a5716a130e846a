"""A finished journal, which a judge can replay without asking the server again."""

from __future__ import annotations

from typing import Any

import numpy as np
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from invgnn.audit.remote.journal import Journal, question_digest, signed_message
from invgnn.audit.remote.reply import Reply
from invgnn.errors import BudgetError, FileError
from invgnn.graphs.attributed import Shown
from invgnn.graphs.disjoint_union import Ints
from invgnn.storage.atomic import AnyPath, read_bytes

_ADVICE = "use another copy of the file, or ask the auditor for a new one"


class Transcript:
    """The record of a remote audit: what was asked, what was answered, in which order, signed or not.

    It is a suspect like any other: `verify` takes the answers from it. The questions are derived from the
    mark again, so nobody can leave some out or choose others afterwards.

    Guarantee: a verdict from a transcript is the verdict of the audit, if the signer recorded what the
    server returned. It proves nothing to somebody who does not trust the signer.

    Attributes:
        journal: The lines of the record.
        key: The Ed25519 key of the signer, in hex; None if nobody signed.
        trusted: Whether this is the key of the auditor whom the reader trusts.
    """

    def __init__(self, journal: Journal, key: str | None, trusted: bool = False) -> None:
        self.journal, self.key, self.trusted = journal, key, trusted

    @classmethod
    def load(cls, path: AnyPath, signer: str | None = None) -> Transcript:
        """Read a transcript, and check its chain of hashes and its signature.

        Args:
            path: The file.
            signer: The Ed25519 key, in hex, of the auditor whom you trust. Without it a verdict from the
                transcript is never `owned`: whoever signs can invent answers.

        Raises:
            FileError: If the file does not exist, is unfinished, was altered, or has another signer.
        """
        read_bytes(path)  # explains a file that does not exist
        journal = Journal(path)
        end = journal.end
        if end is None:
            raise FileError(
                f"{path} is the journal of an audit that has not ended", "finish the audit first"
            )
        before = journal.lines[-2]["chain"]
        if end["head"] != before:
            raise FileError(f"the last line of {path} belongs to another transcript", _ADVICE)
        if end.get("key") is not None:
            _check(str(end["key"]), str(end.get("signature")), before, str(path))
        if signer is not None and end.get("key") != signer:
            raise FileError(
                f"{path} is not signed with the key {signer}", "ask the auditor for a signed one"
            )
        return cls(journal, end.get("key"), signer is not None)

    @property
    def plan(self) -> dict[str, Any]:
        """What the audit was going to do, written before the first question."""
        return self.journal.plan or {}

    @property
    def shown(self) -> str:
        """The address that was asked."""
        return str(self.plan.get("endpoint"))

    @property
    def digest(self) -> str:
        """The hash of all lines."""
        return self.journal.chain

    def in_parts(self, graphs: Shown) -> list[tuple[Ints, Any]]:
        """Return the recorded answers; refused questions are left out."""
        replies = self.replies(graphs)
        return [(np.array([n]), reply.rows) for n, reply in enumerate(replies) if reply.rows is not None]

    def replies(self, graphs: Shown) -> list[Reply]:
        """Return the recorded reply to every question.

        Raises:
            BudgetError: If a sequential audit ended before these questions.
            FileError: If a question is not in the transcript of a complete audit.
        """
        found = [self.journal.take(question_digest(graphs, place)) for place in range(len(graphs))]
        missing = sum(reply is None for reply in found)
        if missing and self.plan.get("method") != "fixed":
            raise BudgetError("the audit ended before these questions", "its evidence counts as it is")
        if missing:
            raise FileError(
                f"{missing} questions of this mark are not in the transcript",
                "replay it with the mark, the data and the settings of the audit",
            )
        return [reply for reply in found if reply is not None]


def _check(key: str, signature: str, head: str, name: str) -> None:
    """Raise `FileError` unless the signature fits."""
    try:
        known = Ed25519PublicKey.from_public_bytes(bytes.fromhex(key))
        known.verify(bytes.fromhex(signature), signed_message(head))
    except (InvalidSignature, ValueError):
        raise FileError(f"the signature of {name} does not fit, so it was altered", _ADVICE) from None
