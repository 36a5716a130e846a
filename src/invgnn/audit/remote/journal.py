"""The journal of an audit: one line of JSON for every request, chained by hashes.

A line is on the disk before the next request is sent.

The lines are part of a format that judges read: changing them breaks every transcript in the field.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections import defaultdict, deque
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from invgnn.audit.remote.journal_file import JournalFile
from invgnn.audit.remote.reply import Reply
from invgnn.errors import FileError, InvgnnError
from invgnn.graphs.attributed import Shown
from invgnn.storage import encoding
from invgnn.storage.container import canonical_json

MEDIA_TYPE = "application/vnd.invgnn.transcript.v1+jsonl"
LONGEST_LINE = 1 << 26
_ADVICE = "use another copy of the file, or start with a new file"


def question_digest(graphs: Shown, place: int) -> str:
    """Return the digest of one question, as it is asked."""
    return encoding.digest("invgnn/question/1", graphs.take([place]).record())


class Journal:
    """All requests and replies of an audit, in memory or in a file that only its owner may read.

    A line is written and flushed to the disk when a request has been answered. After a crash the next run
    reads them again and asks only what is missing. A last line that was cut off is dropped. Two audits at a
    time cannot write to one file: the one that notices ends.

    Args:
        path: The file; None to keep the journal in memory.

    Raises:
        FileError: If the file cannot be read or written, or was altered.
    """

    def __init__(self, path: str | os.PathLike[str] | None = None) -> None:
        self.file = None if path is None else JournalFile(Path(path))
        self.lines: list[dict[str, Any]] = []
        self._known: dict[str, deque[Reply]] = defaultdict(deque)
        self.chain = hashlib.sha256(MEDIA_TYPE.encode()).hexdigest()
        if self.file is not None and self.file.path.exists():
            self._resume(self.file)

    @property
    def path(self) -> Path | None:
        """The file, if there is one."""
        return None if self.file is None else self.file.path

    @property
    def plan(self) -> dict[str, Any] | None:
        """What the journal was begun for; None if it is empty."""
        return self.lines[0]["plan"] if self.lines else None

    @property
    def end(self) -> dict[str, Any] | None:
        """The last line of a finished audit, which may be signed; None before."""
        return self.lines[-1] if self.lines and self.lines[-1]["type"] == "end" else None

    @property
    def sent(self) -> int:
        """Number of graphs sent in all runs, repeated ones included."""
        return sum(line.get("sent", 0) for line in self.lines)

    @property
    def requests(self) -> int:
        """Number of requests sent in all runs, repeated ones included."""
        return sum(line.get("requests", 0) for line in self.lines)

    def begin(self, plan: dict[str, Any]) -> None:
        """Write what the audit is going to do, or compare it with what the journal was begun for.

        Raises:
            FileError: If the journal belongs to another audit.
        """
        if self.plan is None:
            self.append({"type": "plan", "mediaType": MEDIA_TYPE, "plan": plan})
        elif self.plan != json.loads(canonical_json(plan)):
            differ = sorted(k for k in {*plan, *self.plan} if plan.get(k) != self.plan.get(k))
            raise FileError(
                f"{self.path or 'this endpoint'} belongs to another audit; these settings differ: "
                f"{', '.join(differ)}",
                "repeat the command with the same settings, or give a new file (a new Endpoint)",
            )

    def take(self, digest: str) -> Reply | None:
        """Return the next recorded reply to a question, or None if it has to be asked."""
        held = self._known[digest]
        return held.popleft() if held else None

    def rewind(self) -> None:
        """Let every recorded reply be taken once more."""
        self._known.clear()
        for line in self.lines:
            self._learn(line)

    @property
    def untaken(self) -> int:
        """Number of recorded replies that nobody has taken."""
        return sum(map(len, self._known.values()))

    def append(self, line: dict[str, Any]) -> None:
        """Add a line and write it to the disk.

        Raises:
            FileError: If it cannot be written.
        """
        line = {**line, "at": datetime.now(UTC).isoformat(timespec="seconds")}
        line["chain"] = _chained(self.chain, line)
        if self.file is not None:
            self.file.append(canonical_json(line) + b"\n")
        self.chain = line["chain"]
        self.lines.append(line)

    def check(self) -> None:
        """Raise `FileError` if somebody else has written to the file: what is asked now would be lost."""
        if self.file is not None:
            self.file.check()

    def answered(
        self,
        digests: Sequence[str],
        replies: Sequence[Reply],
        *,
        sent: int,
        requests: int,
        body: bytes = b"",
    ) -> None:
        """Record the replies to one request.

        Args:
            digests: The questions.
            replies: Their replies.
            sent: Number of graphs sent for them, repeated ones included.
            requests: Number of requests sent for them, repeated ones included.
            body: The response.
        """
        record = [reply.record() for reply in replies]
        counts = {"sent": sent, "requests": requests, "sha256": hashlib.sha256(body).hexdigest()}
        self.append({"type": "replies", "questions": list(digests), "replies": record, **counts})

    def finish(self, signer: Any = None) -> None:
        """Write the last line, signed if there is a signer, unless there is one already.

        Args:
            signer: An object with a public `key` and a function `sign`, such as an identity.
        """
        if self.path is None or self.end is not None:
            return
        end: dict[str, Any] = {"type": "end", "head": self.chain, "key": None, "signature": None}
        if signer is not None:
            end |= {"key": signer.key, "signature": signer.sign(signed_message(self.chain)).hex()}
        self.append(end)

    def _resume(self, file: JournalFile) -> None:
        """Read the lines of an earlier run."""
        for line in checked_lines(file.read(), str(file.path)):
            self.lines.append(line)
            self._learn(line)
        if self.lines:
            self.chain = self.lines[-1]["chain"]
        file.drop_rest()  # a crash while writing; that line was never used

    def _learn(self, line: dict[str, Any]) -> None:
        """Keep the replies of a line."""
        if line["type"] == "replies":
            for digest, record in zip(line["questions"], line["replies"], strict=True):
                self._known[digest].append(Reply.recall(record))


def signed_message(head: str) -> bytes:
    """Return the bytes that the signature of a transcript covers."""
    return encoding.encode(["invgnn/transcript/1", MEDIA_TYPE, head])


def checked_lines(data: bytes, name: str) -> Iterator[dict[str, Any]]:
    """Yield the lines of a journal, and check form and chain.

    A line is the canonical JSON of its content, so that no two files with one chain read differently.

    Raises:
        FileError: If a line was altered, added, removed or moved.
    """
    chain, expected = hashlib.sha256(MEDIA_TYPE.encode()).hexdigest(), "plan"
    for number, raw in enumerate(data.removesuffix(b"\n").split(b"\n") if data else [], 1):
        try:
            line: Any = json.loads(raw) if len(raw) <= LONGEST_LINE else None
            sound = _is_line(line, expected) and line["chain"] == _chained(chain, line)
            sound = sound and raw == canonical_json(line)
        except (ValueError, KeyError, TypeError, RecursionError, InvgnnError):
            sound = False
        if not sound:
            raise FileError(f"{name} was altered, or is no journal: line {number}", _ADVICE)
        chain = line["chain"]
        expected = "nothing" if line["type"] == "end" else "more"
        yield line


def _is_line(line: Any, expected: str) -> bool:
    """Return whether a JSON value is a line of a journal."""
    kinds = {"plan": ("plan",), "more": ("replies", "failure", "end"), "nothing": ()}[expected]
    if not isinstance(line, dict) or line.get("type") not in kinds:
        return False
    if line["type"] == "plan":
        return line.get("mediaType") == MEDIA_TYPE and isinstance(line.get("plan"), dict)
    if line["type"] == "end":
        return isinstance(line.get("head"), str)
    counts = [line.get("sent"), line.get("requests")]
    if not all(type(count) is int and count >= 0 for count in counts):
        return False
    if line["type"] == "failure":
        return True
    for record in line["replies"]:
        Reply.recall(record)
    texts = all(isinstance(one, str) for one in line["questions"])
    return texts and len(line["questions"]) == len(line["replies"])


def _chained(before: str, line: dict[str, Any]) -> str:
    """Return the hash of a line and of all lines before it."""
    held = {name: value for name, value in line.items() if name != "chain"}
    return hashlib.sha256(before.encode() + canonical_json(held)).hexdigest()
