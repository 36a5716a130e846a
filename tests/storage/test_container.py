import hashlib
import json
import os
import runpy
import stat
import subprocess
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import safetensors
import torch
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.kdf.argon2 import Argon2id
from hypothesis import given
from hypothesis import strategies as st

from invgnn.concealed import conceal
from invgnn.errors import ExistingFileError, FileError, ParameterError, PassphraseError
from invgnn.secret import Secret
from invgnn.storage import container, packing

ABUSE = Path(__file__).parents[1] / "abuse"
GOLDEN = Path(__file__).parents[1] / "golden"
QUICK = container.Kdf(64, 1, 4)
BODY = {"name": "Zoë", "m": 128, "alpha": 1e-6, "plain": True, "none": None, "list": [1, [2.5]]}
DTYPES = ["f8", "f4", "f2", "c8", "i8", "i4", "i2", "i1", "u8", "u4", "u2", "u1", "?"]
TENSORS = {f"t.{d}": np.arange(6).reshape(2, 3).astype(d) for d in DTYPES} | {
    "scalar": np.array(3.5),
    "nothing": np.zeros((0, 4), np.float32),
}


def names(folder):
    return sorted(p.name for p in folder.iterdir())


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


# --- canonical JSON


def test_canonical_json_is_the_only_form():
    value = {"b": [1, 2.0, 1e-6, -0.0, True, None], "a": "Zoë\n", "ä": {}}
    expected = '{"a":"Zoë\\n","b":[1,2.0,1e-06,-0.0,true,null],"ä":{}}'
    assert container.canonical_json(value) == expected.encode()


@pytest.mark.parametrize(
    "value",
    [
        float("nan"),
        {"a": [-float("inf")]},
        {1: 2},
        {"a": 1, 2: 3},
        {"a": (1,)},
        {1, 2},
        b"bytes",
        "\ud800",
        np.int64(3),
    ],
    ids=repr,
)
def test_canonical_json_refuses(value):
    with pytest.raises(ParameterError, match="advice"):
        container.canonical_json(value)


def test_canonical_json_refuses_what_never_ends():
    value = []
    value.append(value)
    with pytest.raises(ParameterError):
        container.canonical_json(value)


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda leaf: st.lists(leaf) | st.dictionaries(st.text("abcäø"), leaf),
    max_leaves=8,
)


@given(JSON)
def test_canonical_json_reads_back(value):
    data = container.canonical_json(value)
    assert json.loads(data) == value
    assert container.canonical_json(json.loads(data)) == data


# --- there and back


@pytest.mark.parametrize("kind", ["secret", "mark", "model", "claim-opening"])
@pytest.mark.parametrize("passphrase", [None, "correct horse"])
def test_round_trip(tmp_path, kind, passphrase):
    path = tmp_path / "file"
    digest = container.write(path, kind, BODY, TENSORS, passphrase=passphrase, _kdf=QUICK)
    found = container.read(path, kind, passphrase=passphrase)
    assert (found.kind, found.version, found.digest) == (kind, 2, digest)
    assert found.body == BODY
    assert found.tensors.keys() == TENSORS.keys()
    for name, array in TENSORS.items():
        assert found.tensors[name].dtype == array.dtype
        assert found.tensors[name].flags.writeable
        np.testing.assert_array_equal(found.tensors[name], array)
    assert digest == container.digest_of(kind, 2, BODY, TENSORS)
    assert names(tmp_path) == ["file"]


@pytest.mark.parametrize("passphrase", [None, "correct horse"])
def test_torch_round_trip_is_exact(tmp_path, passphrase):
    odd = torch.tensor([1.1, -0.0, float("nan"), float("inf"), 3e38])
    tensors = {str(d): odd.to(d) for d in (torch.bfloat16, torch.float16, torch.float64)}
    tensors |= {"slice": torch.arange(12).reshape(3, 4).t()[1:], "flag": torch.tensor(True)}
    tensors["parameter"] = torch.nn.Parameter(torch.ones(2, 0, 3, dtype=torch.bfloat16))
    path = tmp_path / "a.model"
    digest = container.write(path, "model", {}, tensors, passphrase=passphrase, _kdf=QUICK)
    found = container.read(path, "model", passphrase=passphrase, framework="torch")
    for name, tensor in tensors.items():
        torch.testing.assert_close(found.tensors[name], tensor, rtol=0, atol=0, equal_nan=True)
    assert found.digest == digest == container.digest_of("model", 2, {}, found.tensors)


@pytest.mark.parametrize("version", [1, 2])
def test_digest_is_the_same_from_either_framework(version):
    tensors = {n: torch.from_numpy(a) for n, a in TENSORS.items()}
    swapped = {n: a.astype(a.dtype.newbyteorder(">")) for n, a in TENSORS.items()}
    digests = {container.digest_of("mark", version, BODY, t) for t in (TENSORS, tensors, swapped)}
    assert len(digests) == 1


def item(tag, content):
    return tag + len(content).to_bytes(8, "little") + content


def test_digest_is_frozen():
    # by hand: typed, length-prefixed items, keys in order; a change here breaks every file ever written
    number, text = partial(item, b"i"), partial(item, b"s")
    tensor = text(b"data") + item(b"b", b"\1\0\2\0") + text(b"dtype") + text(b"U16")
    tensor += text(b"shape") + item(b"l", number(b"1") + number(b"2"))
    content = text(b"body") + item(b"m", text(b"m") + number(b"2") + text(b"x") + item(b"d", bytes(8)))
    content += text(b"kind") + text(b"mark")
    content += text(b"tensors") + item(b"m", text(b"x") + item(b"m", tensor))
    content += text(b"version") + number(b"2")
    expected = hashlib.sha256(text(b"invgnn/file/2") + item(b"m", content)).hexdigest()
    digest = container.digest_of("mark", 2, {"m": 2, "x": 0.0}, {"x": np.array([[1, 2]], "<u2")})
    assert digest == expected
    assert digest == "c55dbc95346ad1dc9bb28824bf591def8196cb6f575c1f820c043fba20be0649"


def test_digest_of_version_1_is_frozen():
    # by hand: sha256 over length-prefixed fields
    body, array = {"m": 2}, np.array([[1, 2]], "<u2")
    fields = [b"invgnn/file", b"mark", b"1", b'{"m":2}', b"x", b"U16", b"[1,2]", b"\1\0\2\0"]
    text = b"".join(len(f).to_bytes(8, "little") + f for f in fields)
    digest = container.digest_of("mark", 1, body, {"x": array})
    assert digest == hashlib.sha256(text).hexdigest()
    assert digest == "f7ee608abd54f70a27263a2a01953e69456103b59bd3c943e7def3d6569b36aa"


@pytest.mark.parametrize("version", [0, 3, True, "2", 2.0])
def test_digest_of_an_unknown_version(version):
    with pytest.raises(ParameterError, match="format version"):
        container.digest_of("mark", version, {}, {})


def test_digest_tells_everything_apart():
    one = np.zeros(4, np.uint8)
    variants = [
        ("mark", 2, {}, {"a": one}),
        ("model", 2, {}, {"a": one}),
        ("mark", 1, {}, {"a": one}),
        ("mark", 2, {"a": 1}, {"a": one}),
        ("mark", 2, {"a": 1.0}, {"a": one}),
        ("mark", 2, {"a": True}, {"a": one}),
        ("mark", 2, {"a": "1"}, {"a": one}),
        ("mark", 2, {"a": 0.0}, {"a": one}),
        ("mark", 2, {"a": -0.0}, {"a": one}),
        ("mark", 2, {}, {"b": one}),
        ("mark", 2, {}, {"a": one.view(np.int8)}),
        ("mark", 2, {}, {"a": one.reshape(2, 2)}),
        ("mark", 2, {}, {"a": one + 1}),
        ("mark", 2, {}, {"a": one, "b": one}),
        ("mark", 2, {}, {}),
    ]
    assert len({container.digest_of(*v) for v in variants}) == len(variants)


def test_bytes_on_disk_are_canonical(tmp_path):
    container.write(tmp_path / "a", "mark", BODY, TENSORS)
    container.write(
        tmp_path / "b",
        "mark",
        dict(reversed(BODY.items())),
        {n: torch.from_numpy(a) for n, a in reversed(TENSORS.items())},
    )
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_sealing_twice_gives_different_bytes_and_shows_nothing(tmp_path):
    for name in "ab":
        container.write(tmp_path / name, "mark", {"n": "needle"}, {}, passphrase="x", _kdf=QUICK)
    one, two = (tmp_path / "a").read_bytes(), (tmp_path / "b").read_bytes()
    assert one != two
    assert b"needle" not in one


def test_bytes_on_disk_are_frozen(tmp_path):
    container.write(tmp_path / "a", "mark", BODY, TENSORS)
    assert hashlib.sha256((tmp_path / "a").read_bytes()).hexdigest() == (
        "eb91913d0d0fc3e5f4c604a9b0730760ab412937c91919b252db826f24eb88ea"
    )


def test_sealed_by_the_book(tmp_path):
    # docs/reference/file-format.md, followed without container.py
    container.write(tmp_path / "clear", "mark", BODY, TENSORS)
    container.write(tmp_path / "sealed", "mark", BODY, TENSORS, passphrase="Zoë", _kdf=QUICK)
    data = (tmp_path / "sealed").read_bytes()
    start = 8 + int.from_bytes(data[:8], "little")
    header = json.loads(data[8:start])
    text = header["__metadata__"]["invgnn"]
    how = json.loads(text)["sealed"]
    assert header["sealed"]["dtype"] == "U8"
    assert header["sealed"]["data_offsets"] == [0, len(data) - start]
    key = Argon2id(
        salt=bytes.fromhex(how["salt"]),
        length=32,
        iterations=how["iterations"],
        lanes=how["lanes"],
        memory_cost=how["memory_kib"],
    ).derive("Zoë".encode())
    cipher, nonce = ChaCha20Poly1305(key), bytes.fromhex(how["nonce"])
    plain = cipher.decrypt(nonce, data[start:], text.encode())
    assert plain == (tmp_path / "clear").read_bytes()


def test_safetensors_itself_reads_our_files(tmp_path):
    container.write(tmp_path / "a.mark", "mark", BODY, TENSORS)
    with safetensors.safe_open(tmp_path / "a.mark", framework="np") as file:
        assert file.metadata().keys() == {"invgnn"}
        np.testing.assert_array_equal(file.get_tensor("t.f8"), TENSORS["t.f8"])
    data = (tmp_path / "a.mark").read_bytes()
    assert int.from_bytes(data[:8], "little") % 8 == 0  # aligned


def test_container_shows_nothing_private(tmp_path):
    container.write(tmp_path / "a", "mark", {"word": "needle"}, {"x": np.full(3, 77)})
    shown = repr(container.read(tmp_path / "a", "mark"))
    assert "needle" not in shown
    assert "77" not in shown.replace(container.read(tmp_path / "a", "mark").digest, "")


# --- files of version 1, which are in the field


FIRST = ["gin.model", "graph.mark", "kept-features.mark", "negative-zero.mark", "node.mark"]
FIRST += ["plain-key.mark", "score-channel.mark", "score-channel-of-two.mark", "sealed.mark"]
FIRST += ["sealed.secret", "whole-numbers.mark"]


@pytest.mark.parametrize("name", FIRST)
def test_files_of_version_1_open(name):
    path, passphrase = GOLDEN / f"v1-{name}", "open sesame" if "sealed" in name else None
    seen = container.peek(path)
    assert (seen["version"], seen["sealed"]) == (1, passphrase is not None)
    found = container.read(path, seen["kind"], passphrase=passphrase)
    assert found.version == 1
    assert found.digest == container.digest_of(found.kind, 1, found.body, found.tensors)
    if passphrase is None:
        assert found.digest == seen["digest"]
        assert container.read_tensors(path).keys() == found.tensors.keys()


def test_a_secret_of_version_1_opens():
    fingerprint = Secret.load(GOLDEN / "v1-sealed.secret", "open sesame").fingerprint
    assert fingerprint == "3b943a3a"


def test_a_file_of_version_1_is_written_anew_as_version_2(tmp_path):
    old = container.read(GOLDEN / "v1-gin.model", "model")
    container.write(tmp_path / "new", old.kind, old.body, old.tensors)
    new = container.read(tmp_path / "new", "model")
    assert new.version == 2
    assert new.body == old.body
    assert new.digest != old.digest


# --- peek, read_tensors, write_text


def test_peek(tmp_path):
    digest = container.write(tmp_path / "clear", "mark", BODY, {"x": np.zeros((2, 3), np.float32)})
    container.write(tmp_path / "sealed", "mark", BODY, {}, passphrase="x", _kdf=QUICK)
    assert container.peek(tmp_path / "clear") == {
        "kind": "mark",
        "version": 2,
        "sealed": False,
        "digest": digest,
        "body": BODY,
        "tensors": {"x": {"dtype": "F32", "shape": [2, 3]}},
    }
    assert container.peek(tmp_path / "sealed") == {"kind": "mark", "version": 2, "sealed": True}


def test_read_tensors_of_anyone(tmp_path):
    from safetensors.torch import save_file

    weights = {"w": torch.ones(2, dtype=torch.bfloat16)}
    save_file(weights, tmp_path / "theirs")
    container.write(tmp_path / "ours", "model", {}, weights)
    container.write(tmp_path / "sealed", "model", {}, weights, passphrase="x", _kdf=QUICK)
    assert torch.equal(container.read_tensors(tmp_path / "theirs")["w"], weights["w"])
    assert torch.equal(container.read_tensors(tmp_path / "ours")["w"], weights["w"])
    with pytest.raises(PassphraseError, match="sealed"):
        container.read_tensors(tmp_path / "sealed")
    with pytest.raises(FileError, match="altered"):
        container.read_tensors(ABUSE / "altered-tensor.model")


def test_write_text(tmp_path):
    path = tmp_path / "claim.json"
    container.write_text(path, "Zoë\n")
    assert path.read_bytes() == "Zoë\n".encode()
    with pytest.raises(ExistingFileError, match="exists already"):
        container.write_text(path, "other")
    container.write_text(path, "other", overwrite=True, private=True)
    assert path.read_text() == "other"
    assert mode(path) == 0o600


# --- passphrases


def test_passphrase_missing_wrong_or_empty(tmp_path):
    path = tmp_path / "a.mark"
    container.write(path, "mark", {}, {}, passphrase="caf\u00e9", _kdf=QUICK)
    with pytest.raises(PassphraseError, match="sealed"):
        container.read(path, "mark")
    wrong = {"cafe": "does not open", "": "empty", "\ud800": "not text", b"caf\xc3\xa9": "not text"}
    wrong |= {12345: "not text", str(conceal("caf\u00e9")): "stand-in"}
    for words, why in wrong.items():
        with pytest.raises(PassphraseError, match=why):
            container.read(path, "mark", passphrase=words)
    with pytest.raises(PassphraseError, match="empty"):
        container.write(tmp_path / "b", "mark", {}, {}, passphrase="")
    assert container.read(path, "mark", passphrase="cafe\u0301").body == {}  # the same é, decomposed
    assert names(tmp_path) == ["a.mark"]


def test_label_of_a_sealed_file_cannot_be_changed(tmp_path):
    path = tmp_path / "a.mark"
    container.write(path, "mark", {}, {}, passphrase="x", _kdf=QUICK)
    path.write_bytes(path.read_bytes().replace(rb"\"kind\":\"mark\"", rb"\"kind\":\"mask\""))
    with pytest.raises(PassphraseError, match="altered"):
        container.read(path, "mask", passphrase="x")


def test_the_default_is_strong(tmp_path):
    assert container.STRONG == (65536, 3, 4)
    container.write(tmp_path / "a", "mark", {}, {}, passphrase="x")
    assert rb"\"memory_kib\":65536" in (tmp_path / "a").read_bytes()
    assert container.read(tmp_path / "a", "mark", passphrase="x").kind == "mark"


# --- the disk


@pytest.mark.parametrize("private", [False, True])
@pytest.mark.parametrize("passphrase", [None, "x"])
def test_mode(tmp_path, private, passphrase):
    path, old = tmp_path / "a", os.umask(0o022)
    try:
        container.write(path, "mark", {}, {}, private=private, passphrase=passphrase, _kdf=QUICK)
    finally:
        os.umask(old)
    assert mode(path) == (0o600 if private or passphrase else 0o644)


@pytest.mark.parametrize("race", [False, True])
def test_existing_file_is_kept(tmp_path, monkeypatch, race):
    path = tmp_path / "a.mark"
    path.write_text("precious")
    if race:  # it appears after the early look
        monkeypatch.setattr(os.path, "lexists", lambda path: False)
    with pytest.raises(ExistingFileError, match="exists already"):
        container.write(path, "mark", {}, {})
    assert path.read_text() == "precious"
    assert names(tmp_path) == ["a.mark"]
    container.write(path, "mark", {}, {}, overwrite=True)
    assert container.read(path, "mark").body == {}
    assert names(tmp_path) == ["a.mark"]


def test_dangling_link_is_kept(tmp_path):
    (tmp_path / "link").symlink_to("nowhere")
    with pytest.raises(ExistingFileError):
        container.write(tmp_path / "link", "mark", {}, {})
    assert names(tmp_path) == ["link"]


@pytest.mark.parametrize("name", ["a", "b"])
def test_without_hard_links(tmp_path, monkeypatch, name):
    def link(*_):
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", link)
    monkeypatch.setattr(os.path, "lexists", lambda path: False)
    (tmp_path / "b").write_text("precious")
    if name == "a":
        container.write(tmp_path / "a", "mark", {}, {}, private=True)
        assert container.read(tmp_path / "a", "mark").body == {}
        assert mode(tmp_path / "a") == 0o600
    else:
        with pytest.raises(ExistingFileError):
            container.write(tmp_path / "b", "mark", {}, {})
    assert (tmp_path / "b").read_text() == "precious"
    assert names(tmp_path) == sorted({name, "b"})


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()])
@pytest.mark.parametrize("call", ["fsync", "link", "replace"])
@pytest.mark.parametrize("overwrite", [False, True])
def test_nothing_is_left_of_a_failed_write(tmp_path, monkeypatch, error, call, overwrite):
    path = tmp_path / "a.mark"
    if overwrite:
        path.write_text("precious")

    def fail(*_):
        raise error

    monkeypatch.setattr(os, call, fail)
    if call != "fsync":  # without links, replace comes next
        monkeypatch.setattr(os, "replace", fail)
    expected = FileError if isinstance(error, OSError) else KeyboardInterrupt
    if call == "replace" and not overwrite:
        monkeypatch.setattr(os, "link", lambda *_: (_ for _ in ()).throw(OSError(1, "no links")))
    with pytest.raises(expected):
        container.write(path, "mark", {}, {}, overwrite=overwrite)
    assert names(tmp_path) == (["a.mark"] if overwrite else [])
    if overwrite:
        assert path.read_text() == "precious"


def test_places_that_cannot_be_used(tmp_path):
    with pytest.raises(FileError, match="no file"):
        container.read(tmp_path / "none", "mark")
    with pytest.raises(FileError, match="folder"):
        container.read(tmp_path, "mark")
    with pytest.raises(FileError, match="folder exists"):
        container.write(tmp_path / "none" / "a", "mark", {}, {})
    (tmp_path / "here").mkdir()
    with pytest.raises(ExistingFileError):
        container.write(tmp_path / "here", "mark", {}, {})
    with pytest.raises(FileError, match="cannot be written"):
        container.write(tmp_path / "here", "mark", {}, {}, overwrite=True)
    assert names(tmp_path) == ["here"]


@pytest.mark.parametrize(
    ("kind", "body", "tensors"),
    [
        ("Mark", {}, {}),
        ("", {}, {}),
        (None, {}, {}),
        ("mark", {"a": float("nan")}, {}),
        ("mark", {"a": 16**64}, {}),
        ("mark", {"a": b"bytes"}, {}),
        ("mark", {"a": (1,)}, {}),
        ("mark", {1: 2}, {}),
        ("mark", {}, {1: np.zeros(1)}),
        ("mark", {}, {"\ud800": np.zeros(1)}),
        ("mark", {}, {"": np.zeros(1)}),
        ("mark", {}, {"__metadata__": np.zeros(1)}),
        ("mark", {}, {"x": [1, 2]}),
        ("mark", {}, {"x": np.array(["text"])}),
        ("mark", {}, {"x": np.array([None])}),
        ("mark", {}, {"x": np.zeros(1, np.longdouble)}),
        ("mark", {}, {"x": torch.zeros(2).to_sparse()}),
        ("mark", {}, {"x": torch.zeros(2, dtype=torch.float8_e4m3fn)}),
    ],
)
def test_what_cannot_be_written(tmp_path, kind, body, tensors):
    with pytest.raises(ParameterError, match="advice"):
        container.write(tmp_path / "a", kind, body, tensors)
    assert names(tmp_path) == []


def test_body_too_large(tmp_path, monkeypatch):
    monkeypatch.setattr(packing, "MAX_HEADER", 1000)
    with pytest.raises(ParameterError, match="too large"):
        container.write(tmp_path / "a", "mark", {"text": "x" * 1000}, {})


def test_framework_is_checked(tmp_path):
    container.write(tmp_path / "a", "model", {}, {"x": torch.ones(2, dtype=torch.bfloat16)})
    with pytest.raises(ParameterError, match="bfloat16"):
        container.read(tmp_path / "a", "model")
    with pytest.raises(ParameterError, match="jax"):
        container.read(tmp_path / "a", "model", framework="jax")


def test_torch_is_not_imported():
    code = "import sys, invgnn.secret, invgnn.storage.container; sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


# --- bad files

DEFECTS = {
    "altered-body.model": (FileError, "altered"),
    "altered-digest.model": (FileError, "altered"),
    "altered-kind.mark": (FileError, "altered"),
    "altered-number.model": (FileError, "altered"),
    "altered-tensor.model": (FileError, "altered"),
    "altered-version.model": (FileError, "altered"),
    "body-a-list.mark": (FileError, "malformed"),
    "body-nested-deep.mark": (FileError, "cannot be hashed"),
    "body-number-too-long.mark": (FileError, "cannot be hashed"),
    "empty.bin": (FileError, "empty"),
    "foreign.safetensors": (FileError, "not one that invgnn wrote"),
    "garbage.bin": (FileError, "not a safetensors file"),
    "header-a-list.bin": (FileError, "not a valid safetensors"),
    "header-empty.bin": (FileError, "truncated"),
    "header-nested-deep.bin": (FileError, "not a safetensors file"),
    "header-not-json.bin": (FileError, "not a safetensors file"),
    "header-too-long.bin": (FileError, "too long"),
    "huge-kdf-iterations.secret": (FileError, "more work"),
    "huge-kdf-lanes.secret": (FileError, "more work"),
    "huge-kdf-memory.secret": (FileError, "more work"),
    "huge-kdf-work.secret": (FileError, "more work"),
    "kdf-memory-below-lanes.secret": (FileError, "malformed"),
    "kdf-memory-text.secret": (FileError, "malformed"),
    "kdf-unknown.secret": (FileError, "malformed"),
    "kdf-zero-iterations.secret": (FileError, "malformed"),
    "kind-malformed.mark": (FileError, "kind and version"),
    "metadata-a-list.mark": (FileError, "kind and version"),
    "metadata-field-too-many.mark": (FileError, "malformed"),
    "metadata-nan.mark": (FileError, "canonical"),
    "metadata-not-json.mark": (FileError, "not JSON"),
    "metadata-of-others-too.mark": (FileError, "canonical"),
    "metadata-with-spaces.mark": (FileError, "canonical"),
    "metadata-without-body.mark": (FileError, "malformed"),
    "newer-version-of-other-form.mark": (FileError, "Use a newer version"),
    "newer-version.mark": (FileError, "Use a newer version"),
    "no-metadata.safetensors": (FileError, "not one that invgnn wrote"),
    "seal-a-list.secret": (FileError, "malformed"),
    "seal-a-number.secret": (FileError, "malformed"),
    "seal-field-too-many.secret": (FileError, "malformed"),
    "seal-short-salt.secret": (FileError, "malformed"),
    "seal-without-box.secret": (FileError, "malformed"),
    "sealed-nonsense.secret": (PassphraseError, "does not open"),
    "sealed-other-kind.secret": (FileError, "label"),
    "sealed-other-version.secret": (FileError, "label"),
    "sealed-twice.secret": (FileError, "label"),
    "secret-of-other-name.secret": (FileError, "no secret"),
    "secret-too-short.secret": (FileError, "no secret"),
    "shape-of-many-axes.mark": (FileError, "impossible shape"),
    "shape-too-long.mark": (FileError, "impossible shape"),
    "three-bytes.bin": (FileError, "truncated"),
    "trailing-bytes.mark": (FileError, "not a valid safetensors"),
    "truth-value-two.mark": (FileError, "boolean"),
    "truncated-header.mark": (FileError, "truncated"),
    "truncated.mark": (FileError, "truncated"),
    "unknown-dtype.mark": (FileError, "F8_E4M3"),
    "v1-altered-body.model": (FileError, "altered"),
    "v1-altered-digest.model": (FileError, "altered"),
    "v1-altered-kind.mark": (FileError, "altered"),
    "v1-altered-number.model": (FileError, "altered"),
    "v1-altered-tensor.model": (FileError, "altered"),
    "v1-altered-version.model": (FileError, "altered"),
    "v1-metadata-field-too-many.mark": (FileError, "malformed"),
    "v1-sealed-nonsense.secret": (PassphraseError, "does not open"),
    "v1-secret-too-short.secret": (FileError, "no secret"),
    "v1-truncated.mark": (FileError, "truncated"),
    "version-absurd.mark": (FileError, "kind and version"),
    "version-true.mark": (FileError, "kind and version"),
    "version-zero.mark": (FileError, "kind and version"),
    "wrong-kind.mark": (FileError, "is a model file; a mark file was expected"),
}


def test_the_bad_files_are_what_their_script_makes():
    made = runpy.run_path(str(ABUSE / "make.py"))["files_by_defect"]()
    kept = {p.name: p.read_bytes() for p in ABUSE.iterdir() if p.is_file() and p.suffix != ".py"}
    assert kept.keys() == DEFECTS.keys()
    assert made == kept


def load(path):
    if path.suffix == ".secret":
        return Secret.load(path, "open")
    return container.read(path, "model" if path.suffix == ".model" else "mark")


@pytest.mark.parametrize("name", DEFECTS)
def test_bad_file(name):
    error, word = DEFECTS[name]
    with pytest.raises(FileError, match=word) as caught:
        load(ABUSE / name)
    assert type(caught.value) is error
    assert caught.value.advice
    assert name in caught.value.message


@pytest.mark.parametrize("name", DEFECTS)
def test_peek_judges_only_what_it_can_see(name):
    if name == "wrong-kind.mark" or name.endswith(".secret"):
        assert container.peek(ABUSE / name)["kind"] in ("model", "secret")
    else:
        with pytest.raises(FileError, match=DEFECTS[name][1]):
            container.peek(ABUSE / name)


@pytest.mark.parametrize("passphrase", [None, "x"])
def test_cuts_and_flips_are_caught(tmp_path, passphrase):
    path = tmp_path / "a"
    container.write(path, "mark", {"m": 4}, {"x": np.arange(3)}, passphrase=passphrase, _kdf=QUICK)
    good = path.read_bytes()
    step = 3 if passphrase is None else 17
    bad = [good[:n] for n in range(0, len(good), step)]
    bad += [good[:n] + bytes([good[n] ^ 1]) + good[n + 1 :] for n in range(0, len(good), step)]
    survived = []
    for data in bad:
        path.write_bytes(data)
        try:
            container.read(path, "mark", passphrase=passphrase)
        except FileError:
            continue
        survived.append(data)
    assert survived == []


def test_truth_values_are_0_and_1_and_shapes_have_limits():
    assert packing.possible(packing.Raw("BOOL", (2,), b"\0\1"))
    assert not any(
        packing.possible(packing.Raw("BOOL", (2,), bytes([0, value]))) for value in range(2, 256)
    )
    assert packing.possible(packing.Raw("U8", (1,), b"\7"))
    assert packing.possible(packing.Raw("U8", (1,) * 32, b"\7"))
    assert not packing.possible(packing.Raw("U8", (1,) * 33, b"\7"))
    assert packing.possible(packing.Raw("U8", (0, 2**48 - 1), b""))
    assert not packing.possible(packing.Raw("U8", (0, 2**48), b""))


@pytest.mark.parametrize(
    ("tensor", "kind"), [(np.array([None]), "object"), (np.array(["a"]), "<U1"), ([1.0], "<class 'list'>")]
)
def test_the_kind_of_what_cannot_be_stored_is_named(tmp_path, tensor, kind):
    with pytest.raises(ParameterError, match="'odd' cannot be stored") as caught:
        container.write(tmp_path / "x", "mark", {}, {"odd": tensor})
    assert f"({kind})" in caught.value.message


def test_a_container_shows_its_kind_version_and_digest_and_no_more(tmp_path):
    digest = container.write(tmp_path / "a", "mark", {"word": 1}, {"x": np.zeros(3)})
    shown = repr(container.read(tmp_path / "a", "mark"))
    assert shown == f"Container(kind='mark', version=2, digest='{digest}')"


def test_a_header_has_at_most_a_hundred_million_bytes(tmp_path):
    """One more and the file is none of ours; as many and it only lacks its end."""
    path = tmp_path / "a"
    for size, word in ((10**8, "truncated"), (10**8 + 1, "header is too long"), (2**56, "is too long")):
        path.write_bytes(size.to_bytes(8, "little") + b"{")
        with pytest.raises(FileError, match=word):
            container.peek(path)


@pytest.mark.parametrize("length", range(9))
def test_tensors_start_at_a_multiple_of_eight_after_as_little_padding_as_that_takes(tmp_path, length):
    container.write(tmp_path / "a", "mark", {"text": "x" * length}, {})
    data = (tmp_path / "a").read_bytes()
    size = int.from_bytes(data[:8], "little")
    assert (size % 8, len(data)) == (0, 8 + size)
    assert len(data) - len(data.rstrip(b" ")) < 8


def test_a_file_that_lacks_the_last_byte_of_its_header_is_truncated(tmp_path):
    container.write(tmp_path / "a", "mark", {}, {})
    (tmp_path / "a").write_bytes((tmp_path / "a").read_bytes()[:-1])
    with pytest.raises(FileError) as caught:
        container.peek(tmp_path / "a")
    assert caught.value.message.endswith("is damaged: it is truncated")


def test_a_header_may_be_as_long_as_the_limit(tmp_path, monkeypatch):
    container.write(tmp_path / "a", "mark", BODY, {})
    size = int.from_bytes((tmp_path / "a").read_bytes()[:8], "little")
    monkeypatch.setattr(packing, "MAX_HEADER", size)
    container.write(tmp_path / "b", "mark", BODY, {})
    assert container.read(tmp_path / "b", "mark").body == BODY
    monkeypatch.setattr(packing, "MAX_HEADER", size - 1)
    with pytest.raises(ParameterError, match="too large"):
        container.write(tmp_path / "c", "mark", BODY, {})


@pytest.mark.parametrize(
    ("version", "word"), [(2**31 - 1, f"newer format version {2**31 - 1};"), (2**31, "kind and version")]
)
def test_a_version_is_a_number_below_two_to_the_31(tmp_path, version, word):
    notes = json.dumps({"kind": "mark", "version": version})
    header = json.dumps({"__metadata__": {"invgnn": notes}}).encode()
    (tmp_path / "a").write_bytes(len(header).to_bytes(8, "little") + header)
    with pytest.raises(FileError, match=word):
        container.peek(tmp_path / "a")


def test_a_file_that_is_there_is_noticed_before_any_work_is_done(tmp_path, monkeypatch):
    """Deriving a key takes a second and much memory."""
    (tmp_path / "a").write_text("precious")
    monkeypatch.setattr(container.encryption, "close", lambda *_: pytest.fail("sealed in vain"))
    with pytest.raises(ExistingFileError):
        container.write(tmp_path / "a", "mark", {}, {}, passphrase="x")


def test_a_file_is_for_everybody_unless_it_is_private(tmp_path):
    old = os.umask(0o022)
    try:
        container.write(tmp_path / "a", "mark", {}, {})
    finally:
        os.umask(old)
    assert mode(tmp_path / "a") == 0o644
