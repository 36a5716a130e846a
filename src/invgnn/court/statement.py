"""A claim as an in-toto statement, so that it travels with the other attestations of a model."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from invgnn.court.claim import Claim
from invgnn.errors import ParameterError
from invgnn.storage.atomic import read_bytes

STATEMENT = "https://in-toto.io/Statement/v1"
"""The type of an in-toto statement."""
PREDICATE = "urn:invgnn:claim:v1"
"""The type of its predicate: a whole signed claim."""


def as_statement(claim: Claim, files: Sequence[str | Path]) -> dict[str, Any]:
    """Return an in-toto statement about model files, with the claim as its predicate.

    Sign it like any other attestation, for example with OpenSSF model signing. The claim inside keeps its
    own signature and timestamp.

    Args:
        claim: The claim.
        files: The files of the claimed model.

    Raises:
        ParameterError: If there are no files.
        FileError: If a file cannot be read.
    """
    if not files:
        raise ParameterError("a statement is about at least one file", "pass the files of the model")
    subject = [
        {"name": Path(file).name, "digest": {"sha256": hashlib.sha256(read_bytes(file)).hexdigest()}}
        for file in files
    ]
    record = claim.document.record()
    return {"_type": STATEMENT, "subject": subject, "predicateType": PREDICATE, "predicate": record}
