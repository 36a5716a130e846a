"""A claim as a signed in-toto statement, so that it travels with the other attestations of a model."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from invgnn.court.claim import Claim
from invgnn.court.documents import Signer
from invgnn.errors import ParameterError
from invgnn.storage.atomic import read_bytes
from invgnn.storage.canonical_json import canonical_json

STATEMENT = "https://in-toto.io/Statement/v1"
"""The type of an in-toto statement."""
PREDICATE = "urn:invgnn:claim:v1"
"""The type of its predicate: a whole signed claim."""
PAYLOAD = "application/vnd.in-toto+json"
"""The type of the payload of an envelope with a statement."""


def as_statement(claim: Claim, files: Sequence[str | Path]) -> dict[str, Any]:
    """Return an in-toto statement about model files, with the claim as its predicate.

    The claim inside keeps its own signature and timestamp. `as_envelope` signs the statement.

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


def as_envelope(statement: dict[str, Any], signer: Signer) -> dict[str, Any]:
    """Return a statement in a signed DSSE envelope, which tools for in-toto attestations verify.

    Args:
        statement: What `as_statement` returned.
        signer: Whose Ed25519 key signs it; the key, in hex, is also its identifier.
    """
    payload = canonical_json(statement)
    signature = signer.sign(pre_authentication(PAYLOAD, payload))
    return {
        "payload": base64.b64encode(payload).decode(),
        "payloadType": PAYLOAD,
        "signatures": [{"keyid": signer.key, "sig": base64.b64encode(signature).decode()}],
    }


def pre_authentication(kind: str, payload: bytes) -> bytes:
    """Return the bytes that a DSSE signature covers. No other signature of invgnn starts with them.

    Args:
        kind: The type of the payload.
        payload: The payload.
    """
    name = kind.encode()
    return b"DSSEv1 %d %b %d %b" % (len(name), name, len(payload), payload)
