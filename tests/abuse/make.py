"""Writes the bad files beside it, each named by its one defect: python tests/abuse/make.py

They are committed: a reader that starts to accept one of them fails the tests. Names that begin with v1
are files of the first format version, which readers still know.
"""

import json
from pathlib import Path
from unittest import mock

from invgnn.storage import container, packing

HERE = Path(__file__).parent
ONE = {"data": packing.Raw("U8", (4,), b"\1\2\3\4")}
SHORT = {"secret": ONE["data"]}
SEAL = {"kdf": "argon2id", "salt": "00" * 16, "nonce": "00" * 12, **container.Kdf(64, 1, 4)._asdict()}
BOX = {"sealed": packing.Raw("U8", (32,), bytes(32))}


def clear(kind="mark", version=container.FORMAT, body=None, tensors=ONE, **other):
    body = {} if body is None else body
    digest = container._digest(kind, version, body, tensors)
    return {"kind": kind, "version": version, "digest": digest, "body": body, **other}


def good(kind="mark", **about):
    return packing.pack(clear(kind, **about), ONE)


def sealed(tensors=BOX, version=container.FORMAT, **seal):
    meta = {"kind": "secret", "version": version, "sealed": {**SEAL, **seal}}
    return packing.pack(meta, tensors)


def raw(header, data=b""):
    """A file with exactly this header, well-formed or not."""
    head = header if isinstance(header, bytes) else json.dumps(header).encode()
    return len(head).to_bytes(8, "little") + head + data


def noted(notes):
    """A safetensors file without tensors and with this metadata."""
    return raw({"__metadata__": notes})


def inside(meta):
    """A correctly sealed file (passphrase "open") around a container with this metadata."""
    with mock.patch("os.urandom", bytes):  # zeros: the same file at every run
        return container._seal(packing.pack(meta, ONE), "secret", "open", container.Kdf(64, 1, 4))


def altered(version):
    """Files of which one part was changed after the digest was computed."""
    sound = clear("model", version)
    return {
        "altered-tensor.model": packing.pack(sound, ONE)[:-1] + b"\xff",
        "altered-digest.model": packing.pack({**sound, "digest": "0" * 64}, ONE),
        "altered-body.model": packing.pack({**sound, "body": {"classes": 3}}, ONE),
        "altered-number.model": packing.pack(
            {**clear("model", version, {"m": 2}), "body": {"m": 2.0}}, ONE
        ),
        "altered-kind.mark": packing.pack({**sound, "kind": "mark"}, ONE),
        "altered-version.model": packing.pack({**sound, "version": 3 - version}, ONE),
    }


def shaped(dtype, shape, data):
    """A file with one tensor whose header says exactly this."""
    about = {"dtype": dtype, "shape": shape, "data_offsets": [0, len(data)]}
    notes = {"invgnn": container.canonical_json(clear()).decode()}
    return raw({"__metadata__": notes, "data": about}, data)


def files_by_defect():
    mark = good()
    spaced = json.dumps(clear(), sort_keys=True)
    no_body = {k: v for k, v in clear().items() if k != "body"}
    pairs = [list(pair) for pair in SEAL.items()]
    deep = []
    for _ in range(40):
        deep = [deep]
    return {
        "empty.bin": b"",
        "garbage.bin": b"GIF89a, or so it says: no container\n" * 4,
        "three-bytes.bin": b"abc",
        "header-too-long.bin": (10**15).to_bytes(8, "little") + b"{}",
        "header-empty.bin": bytes(16),
        "header-not-json.bin": raw(b"{" * 64),
        "header-nested-deep.bin": raw(b"[" * 20_000),
        "header-a-list.bin": raw([1, 2]),
        "truncated.mark": mark[:-2],
        "truncated-header.mark": mark[:40],
        "trailing-bytes.mark": mark + b"more",
        "no-metadata.safetensors": raw({}),
        "foreign.safetensors": noted({"format": "pt"}),
        "metadata-not-json.mark": noted({"invgnn": "{kind:"}),
        "metadata-a-list.mark": noted({"invgnn": '["kind","version"]'}),
        "metadata-with-spaces.mark": noted({"invgnn": spaced}),
        "metadata-nan.mark": noted({"invgnn": '{"body":{"x":NaN},"digest":"","kind":"mark","version":2}'}),
        "metadata-of-others-too.mark": noted(
            {"format": "pt", "invgnn": container.canonical_json(clear(tensors={})).decode()}
        ),
        "metadata-field-too-many.mark": packing.pack(clear(extra=1), ONE),
        "metadata-without-body.mark": packing.pack(no_body, ONE),
        "body-a-list.mark": packing.pack({**clear(), "body": [1]}, ONE),
        "version-true.mark": packing.pack({**clear(), "version": True}, ONE),
        "version-zero.mark": good(version=0),
        "version-absurd.mark": packing.pack({**clear(), "version": 10**400}, ONE),
        "kind-malformed.mark": packing.pack({**clear(), "kind": "Mark" * 999}, ONE),
        "body-nested-deep.mark": packing.pack({**clear(), "body": {"deep": deep}}, ONE),
        "body-number-too-long.mark": packing.pack({**clear(), "body": {"m": 16**64}}, ONE),
        "newer-version.mark": good(version=3),
        "newer-version-of-other-form.mark": packing.pack({"kind": "mark", "version": 9, "new": [1]}, ONE),
        "wrong-kind.mark": good("model"),
        **altered(2),
        **{f"v1-{name}": data for name, data in altered(1).items()},
        "v1-metadata-field-too-many.mark": packing.pack(clear(version=1, extra=1), ONE),
        "v1-truncated.mark": good(version=1)[:-2],
        "v1-sealed-nonsense.secret": sealed(version=1),
        "v1-secret-too-short.secret": packing.pack(clear("secret", 1, tensors=SHORT), SHORT),
        "unknown-dtype.mark": shaped("F8_E4M3", [4], b"\1\2\3\4"),
        "shape-too-long.mark": shaped("U8", [0, 2**63], b""),
        "shape-of-many-axes.mark": shaped("U8", [1] * 70, b"\1"),
        "truth-value-two.mark": shaped("BOOL", [2], b"\1\2"),
        "huge-kdf-memory.secret": sealed(memory_kib=2**31),
        "huge-kdf-iterations.secret": sealed(iterations=10**9),
        "huge-kdf-lanes.secret": sealed(lanes=65, memory_kib=65536),
        "huge-kdf-work.secret": sealed(memory_kib=2**18, iterations=16),
        "kdf-zero-iterations.secret": sealed(iterations=0),
        "kdf-memory-below-lanes.secret": sealed(memory_kib=8),
        "kdf-memory-text.secret": sealed(memory_kib="64"),
        "kdf-unknown.secret": sealed(kdf="md5"),
        "seal-short-salt.secret": sealed(salt="00"),
        "seal-field-too-many.secret": sealed(pepper=1),
        "seal-without-box.secret": sealed(tensors={}),
        "seal-a-number.secret": packing.pack({"kind": "secret", "version": 2, "sealed": 7}, BOX),
        "seal-a-list.secret": packing.pack({"kind": "secret", "version": 2, "sealed": pairs}, BOX),
        "sealed-nonsense.secret": sealed(),
        "sealed-other-kind.secret": inside(clear("mark")),
        "sealed-other-version.secret": inside(clear("secret", 1)),
        "sealed-twice.secret": inside({"kind": "secret", "version": 2, "sealed": SEAL}),
        "secret-too-short.secret": packing.pack(clear("secret", tensors=SHORT), SHORT),
        "secret-of-other-name.secret": good("secret"),
    }


if __name__ == "__main__":
    for name, data in files_by_defect().items():
        (HERE / name).write_bytes(data)
