"""Documents: one form, every byte signed, schemas published, and nothing but typed errors for the rest."""

from __future__ import annotations

import base64
import copy
import json
import os
from pathlib import Path

import numpy as np
import pytest
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from _helpers.court import resigned
from invgnn.court.bound import Token
from invgnn.court.challenge import Challenge
from invgnn.court.claim import Claim
from invgnn.court.document_schemas import KINDS, media_type, schema, validate
from invgnn.court.documents import Document, load_document, parse_document
from invgnn.court.identity import Identity, load_public
from invgnn.court.judgement import Judgement
from invgnn.court.opening import load_opening, open_fully
from invgnn.court.revocation import Revocation
from invgnn.court.signatures import SMALL_ORDER, verify_signature
from invgnn.errors import FileError, InvgnnError, ParameterError, PassphraseError
from invgnn.secret import Secret
from invgnn.storage.encryption import Kdf

DOCS = Path(__file__).parents[2] / "docs" / "reference" / "schemas"


@pytest.fixture(scope="module")
def files(house, people, decide, tmp_path_factory):
    """One file of every kind, and how it is opened."""
    folder = tmp_path_factory.mktemp("files")
    house.claim.save(folder / "claim")
    decide().save(folder / "judgement")
    people.judge.public().save(folder / "identity")
    Revocation.make(people.owner, "superseded", claim=house.claim).save(folder / "revocation")
    open_fully(folder / "opening", house.claim, house.mark, people.owner, people.judge.public(), "case 7")
    Challenge.draw(house.claim, people.judge, "case 7", 9).save(folder / "challenge")
    house.token.save(folder / "token")
    people.owner.save(folder / "key", None, insecure_no_passphrase=True)
    opens = {
        "challenge": Challenge.load,
        "token": Token.load,
        "key": Identity.load,
        "claim": Claim.load,
        "judgement": Judgement.load,
        "identity": load_public,
        "revocation": Revocation.load,
        "opening": lambda path: load_opening(path, people.judge),
    }
    return {name: ((folder / name).read_bytes(), read) for name, read in opens.items()}


FILES = ("claim", "judgement", "identity", "revocation", "opening", "challenge", "token", "key")


@pytest.mark.parametrize("name", FILES)
def test_every_byte_counts(files, name, tmp_path):
    """Flip one bit in each of many bytes, all of them in short files: nothing altered is opened."""
    data, read = files[name]
    path = tmp_path / "file"
    path.write_bytes(data)
    read(path)
    step = max(1, len(data) // 150)
    for place in range(0, len(data), step):
        path.write_bytes(data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :])
        assert refused(read, path), f"byte {place} of a {name} is not covered"


def refused(read, path):
    """Whether a file is refused with a typed error; any other error fails the test."""
    try:
        read(path)
    except InvgnnError:
        return True
    return False


def mutated(data, rng):
    """A file with some bytes changed, cut out, repeated or taken from elsewhere."""
    found = bytearray(data)
    for _ in range(int(rng.integers(1, 5))):
        at, size = int(rng.integers(0, len(found) + 1)), int(rng.integers(0, 9))
        how = rng.integers(0, 5)
        if how == 0 and at < len(found):
            found[at] = int(rng.integers(0, 256))
        elif how == 1:
            del found[at : at + size]
        elif how == 2:
            found[at:at] = rng.bytes(size)
        elif how == 3:
            found[at : at + size] = found[:size]
        else:
            digits = rng.choice([b"0", b"-1", b"1e999", b"null", b"{}", b'"', b"\\ud800", b"9" * 5000])
            found[at:at] = bytes(digits)
    return bytes(found)


def abuse(files, count, folder, seed):
    rng = np.random.default_rng(seed)
    path = folder / "abused"
    for number in range(count):
        name = FILES[number % len(FILES)]
        data, read = files[name]
        changed = mutated(data, rng)
        if changed == data:
            continue
        path.write_bytes(changed)
        assert refused(read, path), f"seed {seed}, number {number}: an altered {name} was opened"


def test_mutated_files_give_typed_errors(files, tmp_path):
    abuse(files, 300, tmp_path, 0)


@pytest.mark.slow
def test_ten_thousand_mutated_files_give_typed_errors(files, tmp_path):
    abuse(files, 10_000, tmp_path, 1)


@pytest.mark.parametrize("name", ["claim", "judgement", "revocation", "identity"])
def test_one_document_has_one_form(files, name, tmp_path):
    data, read = files[name]
    record, path = json.loads(data), tmp_path / "file"
    for form in (
        json.dumps(record, indent=1).encode(),
        data.rstrip(b"\n"),
        data + b"\n",
        b"\xef\xbb\xbf" + data,
        json.dumps({**record, "extra": 1}, sort_keys=True, separators=(",", ":")).encode() + b"\n",
        data[:-2] + b',"mediaType":' + json.dumps(record["mediaType"]).encode() + b"}\n",
    ):
        path.write_bytes(form)
        with pytest.raises(FileError):
            read(path)


@pytest.mark.parametrize(
    "data", [b"", b"[]", b"{}", b"null", b"[" * 10**5, b"9" * 10**5, b'{"mediaType":1}', b"\xff"]
)
def test_what_is_no_document(data):
    with pytest.raises(FileError):
        parse_document(data, None, "file")


@pytest.mark.parametrize("depth", [20, 400, 900, 960, 985, 992])
def test_values_that_are_nested_deeply(files, depth):
    """Just below the depth that the JSON parser refuses by itself, too."""
    data, _ = files["claim"]
    mark = json.loads(data)["payload"]["commitment"]["mark"]
    for name, found in (("label", ""), ("mark", mark)):
        for start, end in (("[", "]"), ('{"a":', "}")):
            value = f'"{name}":{start * depth}1{end * depth}'
            deep = data.replace(f'"{name}":"{found}"'.encode(), value.encode())
            assert deep != data
            with pytest.raises(FileError):
                parse_document(deep, "claim", "file")


def test_an_exchanged_token_or_signature_is_noticed(house, people, authority, tmp_path):
    again = house.claim.dated(authority.url, people.owner)  # the same claim, dated once more
    assert again.digest == house.claim.digest
    ours, other = (json.loads(one.document.bytes) for one in (house.claim, again))
    for part in ("token", "signature"):
        mixed = copy.deepcopy(ours)
        mixed["timestamp"][part] = other["timestamp"][part]
        data = json.dumps(mixed, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode() + b"\n"
        with pytest.raises(FileError, match="token"):
            parse_document(data, "claim", "file")
    bare = {**ours, "timestamp": None}
    data = json.dumps(bare, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode() + b"\n"
    assert parse_document(data, "claim", "file").token is None  # a date may be left out, which helps nobody
    assert base64.b64decode(ours["timestamp"]["token"]) == house.claim.document.token


@pytest.mark.parametrize("kind", KINDS)
def test_schemas_are_published_and_closed(kind):
    from jsonschema import Draft202012Validator

    found = schema(kind)
    Draft202012Validator.check_schema(found)
    assert found["properties"]["mediaType"]["const"] == media_type(kind)
    assert not found["additionalProperties"]
    assert not found["properties"]["payload"]["additionalProperties"]
    assert json.loads((DOCS / f"{kind}.v1.schema.json").read_text()) == found
    with pytest.raises(ParameterError):
        validate(kind, {})


def test_a_float_is_no_integer(house, people):
    """A signed claim with 32.0 carriers would fail much later, and in a strange way."""
    for change in (
        lambda said: said["rule"].update(prefix=32.0),
        lambda said: said["tree"].update(leaves=67.0),
        lambda said: said.update(format=1.0),
        lambda said: said["context"].update(m=64.0),
        lambda said: said["context"].update(format=2.0),
        lambda said: said.update(format=True),
    ):
        with pytest.raises(ParameterError):
            resigned(house.claim, people.owner, change)


def test_an_unusable_key_of_a_judge_is_refused(house, people, tmp_path):
    said = {**people.judge.public().payload, "encryption": "0" * 64}
    weak = Document.sign("identity", said, people.judge)
    with pytest.raises(ParameterError, match="X25519"):
        open_fully(tmp_path / "a", house.claim, house.mark, people.owner, weak, "case 7")
    assert not list(tmp_path.iterdir())


def test_unknown_kinds():
    with pytest.raises(ParameterError):
        schema("letter")


def test_golden_signature():
    """Bytes that are signed are part of the format."""
    party = Identity("Acme", Secret(bytes(range(32))))
    assert party.key == "90cfc51d28f573abb830b556014d79932cace281a7cd258de03e40cc9f742d00"
    assert party.encryption_key == "2d6f094d9d3047e4bc4026cd7caa3e693b87dfa4925b2939e681aaa1fcbebe2a"
    assert party.public().signature[:32] == "524ff226a8e1680cb0190ef011bf7ff8"
    assert party.public().digest == "d11b77a514308bfdf1e3045d8b40d8ccefa015f1da5c085bfc1b2df1bdf839b6"


def test_identities_are_sealed_like_secrets(tmp_path):
    party, path = Identity.generate("Acme"), tmp_path / "acme.key"
    party.save(path, "a passphrase", _kdf=Kdf(64, 1, 1))
    assert path.stat().st_mode & 0o777 == 0o600
    assert Identity.load(path, "a passphrase") == party
    for wrong in ("another", None):
        with pytest.raises(PassphraseError):
            Identity.load(path, wrong)
    with pytest.raises(PassphraseError):
        party.save(tmp_path / "b", None)
    assert repr(party) == "Identity(name='Acme')"


@pytest.mark.parametrize("name", ["", "x" * 201, "a\nb", "a\x1b[2J"])
def test_names_are_printable(name):
    with pytest.raises(ParameterError):
        Identity(name, Secret(bytes(32)))


def test_nobody_exchanges_a_key_of_an_identity(people, tmp_path):
    said = {**people.judge.public().payload, "signing": people.thief.key}
    Document.sign("identity", said, people.judge).save(tmp_path / "a")
    with pytest.raises(FileError, match="another key"):
        load_public(tmp_path / "a")


@pytest.mark.parametrize("key", SMALL_ORDER)
def test_keys_with_which_everybody_can_sign_are_refused(key):
    """Without the check, one signature would fit some or all messages."""
    signature = b"\x01" + bytes(63)  # R is the neutral point, S is 0
    messages = [bytes([i]) for i in range(250)]
    assert any(_fits(key, signature, message) for message in messages)
    for sign in (0, 0x80):
        weak = (key[:31] + bytes([key[31] | sign])).hex()
        for message in messages:
            with pytest.raises(ParameterError, match="does not fit"):
                verify_signature(weak, signature.hex(), message, "it")


def _fits(key, signature, message):
    try:
        Ed25519PublicKey.from_public_bytes(key).verify(signature, message)
    except InvalidSignature:
        return False
    return True


@pytest.mark.parametrize("name", ["a\nOWNED", "a\x1b[31m", "\u202eeman", "a\u2028b", "\x00"])
def test_names_that_could_pass_for_other_output_are_refused(people, house, name):
    with pytest.raises(ParameterError, match="printed"):
        Document.sign("identity", {**people.owner.public().payload, "name": name}, people.owner)
    payload = copy.deepcopy(house.claim.payload)
    payload["label"] = name
    with pytest.raises(ParameterError, match="printed"):
        Document.sign("claim", payload, people.owner)


def test_pipes_and_files_without_end_are_refused(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "zero").symlink_to("/dev/zero")
    with open(tmp_path / "huge", "wb") as file:
        file.truncate(1 << 40)  # takes no space
    for name, told in (("pipe", "pipe"), ("zero", "device"), ("huge", "more than")):
        with pytest.raises(FileError, match=told):
            load_document(tmp_path / name, "claim")
    with pytest.raises(FileError, match="pipe"):
        load_opening(tmp_path / "pipe", Identity.generate("judge"))
