"""A claim as a signed in-toto statement, read by the parser of another project."""

from __future__ import annotations

import hashlib
import json

import pytest
from securesystemslib.dsse import Envelope
from securesystemslib.exceptions import VerificationError
from securesystemslib.signer import SSlibKey

from invgnn.court.documents import _signed, parse_document
from invgnn.court.statement import as_envelope, as_statement, pre_authentication
from invgnn.errors import FileError, ParameterError
from invgnn.storage.canonical_json import canonical_json


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


def key_of(identity):
    return SSlibKey(identity.key, "ed25519", "ed25519", {"public": identity.key})


def test_the_envelope_verifies_elsewhere(house, people, tmp_path):
    (tmp_path / "a.model").write_bytes(b"weights")
    statement = as_statement(house.claim, [tmp_path / "a.model"])
    text = json.dumps(as_envelope(statement, people.owner))
    found = Envelope.from_dict(json.loads(text))
    assert list(found.verify([key_of(people.owner)], 1)) == [people.owner.key]
    assert found.payload_type == "application/vnd.in-toto+json"
    assert json.loads(found.payload) == json.loads(json.dumps(statement))
    with pytest.raises(VerificationError):
        found.verify([key_of(people.thief)], 1)
    found.payload = found.payload.replace(b"a.model", b"b.model")
    with pytest.raises(VerificationError):
        found.verify([key_of(people.owner)], 1)


def test_what_is_signed_is_as_the_specification_of_dsse_says(house):
    example = pre_authentication("http://example.com/HelloWorld", b"hello world")
    assert example == b"DSSEv1 29 http://example.com/HelloWorld 11 hello world"
    assert not _signed("claim", house.claim.payload).startswith(b"DSSEv1")
