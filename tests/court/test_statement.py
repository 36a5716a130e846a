"""A claim as an in-toto statement."""

from __future__ import annotations

import hashlib
import json

import pytest

from invgnn.court.documents import parse_document
from invgnn.court.statement import as_statement
from invgnn.errors import FileError, ParameterError
from invgnn.storage.container import canonical_json


def test_the_claim_travels_inside_and_keeps_its_signature(house, tmp_path):
    (tmp_path / "a.model").write_bytes(b"weights")
    found = json.loads(json.dumps(as_statement(house.claim, [tmp_path / "a.model"])))
    assert found["_type"] == "https://in-toto.io/Statement/v1"
    assert found["subject"] == [
        {"name": "a.model", "digest": {"sha256": hashlib.sha256(b"weights").hexdigest()}}
    ]
    inside = parse_document(canonical_json(found["predicate"]) + b"\n", "claim", "inside")
    assert inside == house.claim.document
    with pytest.raises(ParameterError):
        as_statement(house.claim, [])
    with pytest.raises(FileError):
        as_statement(house.claim, [tmp_path / "none"])
