"""Read a public file of any kind with all checks of its kind."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from invgnn.court.challenge import Challenge
from invgnn.court.claim import Claim
from invgnn.court.identity import load_public
from invgnn.court.judgement import Judgement
from invgnn.court.revocation import Revocation
from invgnn.storage.atomic import AnyPath

_READERS: dict[str, Callable[[AnyPath], Any]] = {
    "claim": Claim.load,
    "challenge": Challenge.load,
    "identity": load_public,
    "judgement": Judgement.load,
    "revocation": Revocation.load,
}


def read_public(path: AnyPath, kind: str) -> Any:
    """Return what a public file holds.

    Args:
        path: The file.
        kind: Its kind.

    Raises:
        FileError: If the file is of another kind, was altered, or contradicts itself.
    """
    return _READERS[kind](path)
