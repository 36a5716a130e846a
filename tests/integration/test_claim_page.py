"""docs/reference/claim.md, taken at its word: a claim checked with hashlib, json and one signature scheme.

Nothing in the first part imports the library. The second part compares it with what the library says.
"""

from __future__ import annotations

import base64
import hashlib
import json
from pathlib import Path

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

GOLDEN = Path(__file__).parents[1] / "golden" / "court"


def item(tag, content):
    return tag + len(content).to_bytes(8, "little") + content


def enc(value):
    match value:
        case None:
            return item(b"n", b"")
        case int():
            return item(b"i", f"{value:x}".encode())
        case float():
            return item(b"d", np.float64(value).tobytes())
        case str():
            return item(b"s", value.encode())
        case bytes():
            return item(b"b", value)
        case np.ndarray():
            return item(b"a", enc(value.dtype.str) + enc(list(value.shape)) + value.tobytes())
        case list():
            return item(b"l", b"".join(map(enc, value)))
        case dict():
            pairs = sorted((key.encode(), part) for key, part in value.items())
            return item(b"m", b"".join(item(b"s", key) + enc(part) for key, part in pairs))
    raise TypeError(type(value))


def digest(domain, value):
    return hashlib.sha256(enc(domain) + enc(value)).hexdigest()


def canonical(value):
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def stream(secret, label, *parts):
    """The first block of a stream: enough here."""
    key = hashlib.shake_256(b"".join(map(enc, ("invgnn/1", secret, label, *parts)))).digest(32)
    return hashlib.shake_256(key + (0).to_bytes(8, "little")).digest(4096)


def root(hashes):
    if len(hashes) == 1:
        return hashes[0]
    split = 1
    while 2 * split < len(hashes):
        split *= 2
    sides = root(hashes[:split]) + root(hashes[split:])
    return hashlib.sha256(b"invgnn/merkle/1/node\0" + sides).digest()


@pytest.fixture(scope="module")
def claim():
    data = (GOLDEN / "v1-claim.json").read_bytes()
    record = json.loads(data)
    assert canonical(record) + b"\n" == data
    return record


def test_signatures(claim):
    key = Ed25519PublicKey.from_public_bytes(bytes.fromhex(claim["signature"]["key"]))
    value, media, payload = claim["signature"]["value"], claim["mediaType"], canonical(claim["payload"])
    key.verify(bytes.fromhex(value), enc(["invgnn/signed/1", media, payload]))
    token = base64.b64decode(claim["timestamp"]["token"])
    counter = bytes.fromhex(claim["timestamp"]["signature"])
    key.verify(counter, enc(["invgnn/countersigned/1", value, token]))
    dated = enc(["invgnn/dated/1", media, payload, value])
    assert hashlib.sha256(dated).digest() in token  # the imprint


def test_commitment_and_token(claim):
    said, secret = claim["payload"], bytes(range(32))
    salt = bytes.fromhex(said["commitment"]["salt"])
    nonce = stream(secret, "court/nonce", "secret", salt)[:32]
    assert digest("invgnn/commitment/1", [nonce, secret]) == said["commitment"]["secret"]
    context = {name: value for name, value in said["context"].items() if name != "token"}
    labels = said["reference"]["labels"]
    message = enc(["invgnn/before-drawing/1", said["commitment"]["secret"], context, labels])
    assert hashlib.sha256(message).digest() in base64.b64decode(said["token"])
    assert labels == digest("invgnn/labels/1", None)


def test_against_the_library(claim):
    from _helpers.court import golden_rings
    from invgnn.court.claim import Claim
    from invgnn.court.leaves import Leaves
    from invgnn.court.regeneration import regenerate
    from invgnn.secret import Secret
    from invgnn.watermark.reference import Reference

    held, said, secret = Claim.load(GOLDEN / "v1-claim.json"), claim["payload"], bytes(range(32))
    parts = [claim["mediaType"], canonical(said), claim["signature"]["value"]]
    dated = enc(["invgnn/dated/1", *parts])
    assert held.digest == hashlib.sha256(enc("invgnn/document/1") + dated).hexdigest()
    mark = regenerate(Secret(secret), Reference.of(golden_rings()), said["context"], None)
    leaves = Leaves(mark, held.salt)
    salts = stream(secret, "court/salts", mark.bound, held.salt)
    hashes = []
    for number in range(said["tree"]["leaves"]):
        salt = salts[32 * number : 32 * number + 32]
        content = bytes(leaves.content(number))
        hashes.append(hashlib.sha256(b"invgnn/merkle/1/leaf\0" + salt + content).digest())
    assert root(hashes).hex() == said["tree"]["root"]
    carriers = mark.questions.decoded[0]
    order = mark.secret.derive("court/order", mark.bound).permutation(mark.m)
    first = {"carrier": carriers.take(order[:1]).record(), "bit": int(mark.bits[order[0]])}
    assert enc(first) == leaves.content(0)
    nonce = stream(secret, "court/nonce", "mark", held.salt)[:32]
    assert digest("invgnn/mark-commitment/1", [nonce, mark.digest]) == said["commitment"]["mark"]
