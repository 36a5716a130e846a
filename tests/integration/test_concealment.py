"""No secret and no passphrase shows in the local variables of a traceback, in a log, or in a repr."""

import base64
import hashlib
import json
import logging
import os
import reprlib
import traceback
import unicodedata
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import rich.pretty
import torch

import invgnn
from invgnn.concealed import SHOWN, ConcealedBytes, ConcealedDict, ConcealedText, conceal
from invgnn.court import commitment, leaves, opening, sealing
from invgnn.court.bound import Token
from invgnn.court.claim import Claim
from invgnn.court.identity import Identity
from invgnn.court.opening import load_opening
from invgnn.court.regeneration import regenerate
from invgnn.errors import InvgnnError, ParameterError, PassphraseError
from invgnn.secret import Secret, Stream
from invgnn.storage import atomic, container, encryption, packing
from invgnn.watermark.mark import Watermark
from invgnn.watermark.reference import Reference

LIBRARY = str(Path(invgnn.__file__).parent)
QUICK = container.Kdf(64, 1, 4)
NEEDLE = hashlib.sha256(b"needle").digest()
PASSPHRASE = "Zoe\u0308 keeps 7 grey needles"  # decomposed: what is derived from it is spelled otherwise
OPENED = object()


# --- what is looked for


def spellings(data):
    """The ways in which a window of eight bytes might be written."""
    for start in range(0, len(data) - 7, 4):
        part = data[start : start + 8]
        array = np.frombuffer(part, np.uint8)
        yield from (part.hex(), part.hex().upper(), part.hex(":"), part.hex(" "), repr(part)[2:-1])
        yield from (str(list(part))[1:-1], " ".join(map(str, part)), ",".join(map(str, part)))
        yield str(np.frombuffer(data, np.uint8)[start : start + 8])[1:-1]  # numpy pads to one width
        yield " ".join(f"{byte:3d}" for byte in part).strip()
        yield ", ".join(f"{byte:3d}" for byte in part).strip()
        yield from (str(array.view("<u8")[0]), str(array.view(">u8")[0]), str(array.view("<i8")[0]))
        yield from (repr(part.decode("latin-1"))[1:-1], part.decode("utf-8", "replace"))
    for code in (base64.b64encode, base64.urlsafe_b64encode, base64.b32encode, base64.b85encode):
        yield code(data).decode()[:16]
    yield from (str(int.from_bytes(data, order)) for order in ("little", "big"))


def spelled(text):
    """The ways in which a passphrase might be written."""
    for form in ("NFC", "NFD"):
        words = unicodedata.normalize(form, text)
        yield from (words, ascii(words)[1:-1], words[5:])
        yield from spellings(words.encode())


KEY = Secret(NEEDLE).derive("needle")._key  # the key of a stream, as bad to lose as the secret
FORMS = sorted({*spellings(NEEDLE), *spelled(PASSPHRASE), *spellings(bytes(KEY))})


def found_in(text):
    return [form for form in FORMS if form in text]


def test_the_spellings_find_what_they_should():
    array, words = np.frombuffer(NEEDLE, np.uint8), unicodedata.normalize("NFC", PASSPHRASE)
    for shown in (
        NEEDLE,
        bytearray(NEEDLE),
        list(NEEDLE),
        array,
        {"a": [array]},
        NEEDLE.hex(),
        NEEDLE[3:24],
    ):
        assert found_in(repr(shown))
    for shown in (PASSPHRASE, words, words.encode(), [PASSPHRASE], PASSPHRASE[4:]):
        assert found_in(repr(shown))
    assert found_in(str(array))
    assert not found_in(repr(hashlib.sha256(b"haystack").digest()))


# --- where it is looked for


def chain(error, seen=()):
    """An error and all that it came from."""
    if error is None or error in seen:
        return
    yield error
    for other in (error.__cause__, error.__context__):
        yield from chain(other, (*seen, error))


def ours(error):
    """The frames of this library that an error left."""
    for frame, line in traceback.walk_tb(error.__traceback__):
        if frame.f_code.co_filename.startswith(LIBRARY):
            yield frame, line


def texts(error):
    """Everything that tools show of an error: its words, and the local variables of our frames."""
    for one in chain(error):
        yield from (str(one), repr(one), repr(one.args), repr(vars(one)))
        yield from traceback.StackSummary.extract(ours(one), capture_locals=True).format()
        for frame, _ in ours(one):
            for name, value in frame.f_locals.items():
                yield f"{name} = {rich.pretty.pretty_repr(value, max_string=80)}"
                yield f"{name} = {reprlib.repr(value)}"


def leaks(error):
    return [(form, text) for text in texts(error) for form in found_in(text)]


def raised(operation):
    """The error of an operation that must fail, and in our code."""
    with pytest.raises(BaseException) as caught:  # noqa: PT011 - each test looks at its type
        operation()
    error = caught.value
    assert any(True for one in chain(error) for _ in ours(one)), "no frame of ours was looked at"
    return error


def test_the_search_sees_locals_and_causes(tmp_path):
    def fail(words):
        try:
            container.read(tmp_path / words, "mark")
        except InvgnnError as error:
            raise KeyError("other") from error

    error = raised(partial(fail, PASSPHRASE))  # as a file name it is shown
    assert leaks(error)


# --- the values


@pytest.mark.parametrize("value", [PASSPHRASE, NEEDLE, {"secret": NEEDLE}])
def test_a_concealed_value_is_equal_and_not_shown(value, caplog):
    hidden = conceal(value)
    assert hidden == value
    assert conceal(hidden) is hidden
    with caplog.at_level(logging.DEBUG):
        logging.getLogger("test").info("%s %r %s", hidden, hidden, [hidden])
    shown = [repr(hidden), str(hidden), f"{hidden}", f"{hidden!r}", f"{hidden:>40}", "%s" % hidden]  # noqa: UP031
    shown += [repr([hidden]), repr({"x": hidden}), caplog.text, "".join(traceback.format_list([]))]
    shown += [rich.pretty.pretty_repr(hidden, max_string=4), reprlib.repr(hidden)]
    assert not found_in(" ".join(shown))
    assert all(SHOWN in text for text in shown[:8])


def test_a_slice_is_concealed_too():
    assert isinstance(conceal(PASSPHRASE)[1:], ConcealedText)
    assert isinstance(conceal(PASSPHRASE)[:], ConcealedText)
    assert isinstance(conceal(PASSPHRASE)[2], ConcealedText)
    assert isinstance(conceal(NEEDLE)[:], ConcealedBytes)
    assert conceal(NEEDLE)[4:9] == NEEDLE[4:9]
    assert conceal(NEEDLE)[3] == NEEDLE[3]
    assert conceal(PASSPHRASE)[:] == PASSPHRASE


def test_concealed_values_work_as_before():
    assert hash(conceal(PASSPHRASE)) == hash(PASSPHRASE)
    assert conceal(PASSPHRASE).encode() == PASSPHRASE.encode()
    assert type(bytes(conceal(NEEDLE))) is bytes
    assert bytes(conceal(NEEDLE)) == NEEDLE
    assert hashlib.sha256(conceal(NEEDLE)).digest() == hashlib.sha256(NEEDLE).digest()
    assert conceal(None) is None
    tensors = conceal({"a": 1})
    tensors |= {"b": 2}
    assert isinstance(tensors, ConcealedDict)
    assert json.dumps(tensors) == '{"a": 1, "b": 2}'


@pytest.mark.parametrize("value", [12345, [1, 2], object(), bytearray(NEEDLE), 0.5])
def test_a_value_of_another_type_leaves_no_trace(value):
    hidden = conceal(value)
    assert repr(hidden) == str(hidden) == SHOWN
    assert not isinstance(hidden, str | bytes | dict)


def test_bytes_of_a_secret_are_plain():
    assert type(bytes(Secret(NEEDLE))) is bytes
    assert bytes(Secret(NEEDLE)) == NEEDLE
    assert repr(bytes(Secret(NEEDLE))) == repr(NEEDLE)


def test_stand_ins_are_no_passphrases(tmp_path):
    with pytest.raises(PassphraseError, match="stand-in"):
        container.write(tmp_path / "a", "mark", {}, {}, passphrase=str(conceal(PASSPHRASE)), _kdf=QUICK)


def test_what_was_read_is_not_shown(tmp_path):
    path = tmp_path / "a.secret"
    Secret(NEEDLE).save(path, None, insecure_no_passphrase=True)
    held = container.read(path, "secret")
    shown = [repr(held), repr(held.tensors), str(held.tensors), repr(atomic.read_bytes(path))]
    shown += [repr(packing.unpack(atomic.read_bytes(path), path)), rich.pretty.pretty_repr(held)]
    shown += [repr(Secret.load(path)), repr(Secret.load(path).derive("needle"))]
    assert not found_in(" ".join(shown))


# --- failing operations


@dataclass
class Case:
    """Files of every sort, in a folder of their own."""

    folder: Path
    body: dict
    tensors: dict = field(repr=False)
    patch: pytest.MonkeyPatch

    def file(self, data, name="a.file"):
        path = self.folder / name
        path.write_bytes(data)
        return path

    def packed(self, kind, body=None, tensors=None, *, sealed=False, name="a.file"):
        """A sound container with this content, which may be unsound."""
        path = self.folder / name
        passphrase = PASSPHRASE if sealed else None
        body, tensors = (
            body or {},
            {"secret": np.frombuffer(NEEDLE, np.uint8)} if tensors is None else tensors,
        )
        container.write(path, kind, body, tensors, passphrase=passphrase, overwrite=True, _kdf=QUICK)
        return path

    def mark(self, *, sealed=False, **changes):
        """A mark of which some tensors or parts of the body are replaced, or left out if None."""
        body = {name: value for name, value in {**self.body, **changes}.items() if name in self.body}
        tensors = {
            name: value for name, value in {**self.tensors, **changes}.items() if name not in self.body
        }
        tensors = {name: value for name, value in tensors.items() if value is not None}
        body = {name: value for name, value in body.items() if value is not None}
        return self.packed("mark", body, tensors, sealed=sealed, name="a.mark")


def raw(header, data):
    head = json.dumps(header).encode()
    return len(head).to_bytes(8, "little") + head + data


def label(kind, version=2):
    return container.canonical_json({"kind": kind, "version": version, "digest": "", "body": {}}).decode()


def odd_tensor(kind, dtype, shape):
    about = {"dtype": dtype, "shape": shape, "data_offsets": [0, 32]}
    return raw({"__metadata__": {"invgnn": label(kind)}, "secret": about}, NEEDLE)


def boxed(data, kind="secret"):
    """Any bytes, correctly sealed."""
    return container._seal(ConcealedBytes(data), kind, ConcealedText(PASSPHRASE), QUICK)


def unhashable(kind, body):
    meta = {"kind": kind, "version": 2, "digest": "0" * 64, "body": body}
    return packing.pack(meta, {"secret": packing.Raw("U8", (32,), ConcealedBytes(NEEDLE))})


def flipped(path, place):
    data = bytearray(path.read_bytes())
    data[place] ^= 1
    return bytes(data)


def longer_header(path, by):
    """The length of the header reaches into the tensors."""
    data = path.read_bytes()
    return (int.from_bytes(data[:8], "little") + by).to_bytes(8, "little") + data[8:]


def refuse(error):
    def fail(*_, **__):
        raise error

    return fail


def lacking(module, name, error):
    """An operation of the system that fails in the middle."""

    def prepared(case):
        case.patch.setattr(module, name, refuse(error))

    return prepared


def deep():
    value = []
    for _ in range(50):
        value = [value]
    return {"deep": value}


def existing(case):
    return case.file(b"precious", "there")


def save(case, path, passphrase=PASSPHRASE, **options):
    Secret(NEEDLE).save(path, passphrase, _kdf=QUICK, **options)


ARRAY = np.frombuffer(NEEDLE, np.uint8)
SURROGATE = PASSPHRASE + "\ud800"

SECRETS = {
    "wrong passphrase": lambda c: Secret.load(c.packed("secret", sealed=True), PASSPHRASE + "!"),
    "no passphrase": lambda c: Secret.load(c.packed("secret", sealed=True)),
    "passphrase with a surrogate": lambda c: Secret.load(c.packed("secret", sealed=True), SURROGATE),
    "passphrase in bytes": lambda c: Secret.load(c.packed("secret", sealed=True), PASSPHRASE.encode()),
    "passphrase in a list": lambda c: Secret.load(c.packed("secret", sealed=True), [PASSPHRASE]),
    "passphrase for no file": lambda c: Secret.load(c.folder / "none", PASSPHRASE),
    "passphrase for a folder": lambda c: Secret.load(c.folder, PASSPHRASE),
    "passphrase for an odd framework": lambda c: container.read(
        "x", "mark", passphrase=PASSPHRASE, framework="jax"
    ),
    "sealed truncated": lambda c: Secret.load(
        c.file(c.packed("secret", sealed=True).read_bytes()[:-5]), PASSPHRASE
    ),
    "sealed flipped": lambda c: Secret.load(
        c.file(flipped(c.packed("secret", sealed=True), -5)), PASSPHRASE
    ),
    "sealed with absurd work": lambda c: Secret.load(
        c.file(
            c.packed("secret", sealed=True)
            .read_bytes()
            .replace(rb"\"iterations\":1", rb"\"iterations\":9e9")
        ),
        PASSPHRASE,
    ),
    "sealed nonsense": lambda c: Secret.load(c.file(boxed(bytes(8) + NEEDLE)), PASSPHRASE),
    "sealed header too long": lambda c: Secret.load(
        c.file(boxed(longer_header(c.packed("secret"), 16))), PASSPHRASE
    ),
    "sealed of another kind": lambda c: Secret.load(
        c.file(boxed(c.packed("mark").read_bytes())), PASSPHRASE
    ),
    "sealed with an unknown dtype": lambda c: Secret.load(
        c.file(boxed(odd_tensor("secret", "F8_E4M3", [32]))), PASSPHRASE
    ),
    "sealed with an altered digest": lambda c: Secret.load(
        c.file(boxed(odd_tensor("secret", "U8", [32]))), PASSPHRASE
    ),
    "sealed without a passphrase for tensors": lambda c: container.read_tensors(
        c.packed("secret", sealed=True)
    ),
    "clear truncated": lambda c: Secret.load(c.file(c.packed("secret").read_bytes()[:-3])),
    "clear flipped": lambda c: Secret.load(c.file(flipped(c.packed("secret"), -3))),
    "clear header too long": lambda c: Secret.load(c.file(longer_header(c.packed("secret"), 24))),
    "clear header of all the file": lambda c: Secret.load(c.file(longer_header(c.packed("secret"), 32))),
    "clear with more": lambda c: Secret.load(c.file(c.packed("secret").read_bytes() + NEEDLE)),
    "clear with an unknown dtype": lambda c: Secret.load(c.file(odd_tensor("secret", "F8_E4M3", [32]))),
    "clear with an impossible shape": lambda c: Secret.load(
        c.file(odd_tensor("secret", "U8", [1] * 40 + [32]))
    ),
    "clear with an impossible truth": lambda c: Secret.load(c.file(odd_tensor("secret", "BOOL", [32]))),
    "clear without a digest": lambda c: container.peek(c.file(odd_tensor("secret", "U8", [32]))),
    "clear without a digest, tensors": lambda c: container.read_tensors(
        c.file(odd_tensor("secret", "U8", [32]))
    ),
    "clear of a newer version": lambda c: Secret.load(
        c.file(odd_tensor("secret", "U8", [32]).replace(rb"\"version\":2", rb"\"version\":7"))
    ),
    "clear with a number too long": lambda c: Secret.load(c.file(unhashable("secret", {"m": 16**70}))),
    "clear nested too deep": lambda c: Secret.load(c.file(unhashable("secret", deep()))),
    "clear of bfloat16": lambda c: Secret.load(
        c.packed(
            "secret",
            tensors={"secret": __import__("torch").from_numpy(ARRAY.view("<i2").copy()).bfloat16()},
        )
    ),
    "too long": lambda c: Secret.load(
        c.packed("secret", tensors={"secret": np.concatenate([ARRAY, ARRAY])})
    ),
    "of another shape": lambda c: Secret.load(c.packed("secret", tensors={"secret": ARRAY.reshape(4, 8)})),
    "of another type": lambda c: Secret.load(c.packed("secret", tensors={"secret": ARRAY.view("<i8")})),
    "of another name": lambda c: Secret.load(c.packed("secret", tensors={"other": ARRAY})),
    "sealed, of another name": lambda c: Secret.load(
        c.packed("secret", tensors={"other": ARRAY}, sealed=True), PASSPHRASE
    ),
    "a mark": lambda c: Secret.load(c.packed("mark"), PASSPHRASE),
    "save over a file": lambda c: save(c, existing(c)),
    "save over a file in a race": lambda c: (
        c.patch.setattr(os.path, "lexists", lambda _: False),
        save(c, existing(c)),
    ),
    "save nowhere": lambda c: save(c, c.folder / "none" / "a"),
    "save nowhere in the clear": lambda c: save(
        c, c.folder / "no" / "a", None, insecure_no_passphrase=True
    ),
    "save over a folder": lambda c: save(c, c.folder, overwrite=True),
    "save without room": lambda c: (
        lacking(os, "fsync", OSError(28, "no room"))(c),
        save(c, c.folder / "a"),
    ),
    "save interrupted": lambda c: (lacking(os, "fsync", KeyboardInterrupt())(c), save(c, c.folder / "a")),
    "save with both": lambda c: save(c, c.folder / "a", insecure_no_passphrase=True),
    "save with neither": lambda c: save(c, c.folder / "a", None),
    "save with an empty passphrase": lambda c: save(c, c.folder / "a", ""),
    "save with a surrogate": lambda c: save(c, c.folder / "a", SURROGATE),
    "save with bytes": lambda c: save(c, c.folder / "a", PASSPHRASE.encode()),
    "save without memory": lambda c: (
        lacking(encryption, "Argon2id", MemoryError())(c),
        save(c, c.folder / "a"),
    ),
    "save without a cipher": lambda c: (
        lacking(encryption, "ChaCha20Poly1305", MemoryError())(c),
        save(c, c.folder / "a"),
    ),
    "load without memory": lambda c: Secret.load(
        (c.packed("secret", sealed=True), lacking(encryption, "Argon2id", MemoryError())(c))[0], PASSPHRASE
    ),
    "load without memory for tensors": lambda c: Secret.load(
        (c.packed("secret", sealed=True), lacking(container, "tensor_of", MemoryError())(c))[0], PASSPHRASE
    ),
    "load without memory for the digest": lambda c: Secret.load(
        (c.packed("secret"), lacking(container, "digest", MemoryError())(c))[0]
    ),
    "load interrupted": lambda c: Secret.load(
        (c.packed("secret"), lacking(packing, "deserialize", KeyboardInterrupt())(c))[0], PASSPHRASE
    ),
}

WRITES = {
    "kind": lambda c: container.write(c.folder / "a", "Kind", {}, {"x": ARRAY}, passphrase=PASSPHRASE),
    "body": lambda c: container.write(c.folder / "a", "mark", {"x": float("nan")}, {"x": ARRAY}),
    "deep body": lambda c: container.write(c.folder / "a", "mark", deep(), {"x": ARRAY}),
    "large body": lambda c: (
        c.patch.setattr(packing, "MAX_HEADER", 100),
        container.write(c.folder / "a", "mark", {"x": "x" * 200}, {"x": ARRAY}),
    ),
    "an object": lambda c: container.write(c.folder / "a", "mark", {}, {"x": ARRAY.astype(object)}),
    "text": lambda c: container.write(c.folder / "a", "mark", {}, {"x": np.array([PASSPHRASE])}),
    "a list": lambda c: container.write(c.folder / "a", "mark", {}, {"x": list(NEEDLE)}),
    "bytes": lambda c: container.write(c.folder / "a", "mark", {}, {"x": NEEDLE}),
    "no name": lambda c: container.write(c.folder / "a", "mark", {}, {"": ARRAY}),
    "another is bad": lambda c: container.write(c.folder / "a", "mark", {}, {"x": ARRAY, "y": None}),
    "a digest": lambda c: container.digest_of("mark", 9, {}, {"x": ARRAY}),
    "a digest of a bad tensor": lambda c: container.digest_of("mark", 2, {}, {"x": list(NEEDLE)}),
}

WRONG = {
    "hex": lambda c: Secret(NEEDLE.hex()),
    "a list of numbers": lambda c: Secret(list(NEEDLE)),
    "an array": lambda c: Secret(ARRAY),
    "bytearray": lambda c: Secret(bytearray(NEEDLE)),
    "too few bytes": lambda c: Secret(NEEDLE[:31]),
    "too many bytes": lambda c: Secret(NEEDLE + b"!"),
    "derive from a float": lambda c: Secret(NEEDLE).derive("needle", 1.5),
    "derive from nothing": lambda c: Secret(NEEDLE).derive(None),
    "derive from a surrogate": lambda c: Secret(NEEDLE).derive("\ud800"),
    "derive from an array": lambda c: Secret(NEEDLE).derive("needle", np.arange(3)),
    "derive from a number too long": lambda c: Secret(NEEDLE).derive("needle", 16**64),
    "a stream, no count": lambda c: Secret(NEEDLE).derive("needle").bytes(-1),
    "a stream, no bound": lambda c: Secret(NEEDLE).derive("needle").below([0]),
    "a stream, no balance": lambda c: Secret(NEEDLE).derive("needle").balanced(3),
    "a stream, interrupted": lambda c: (
        lacking(__import__("io"), "BytesIO", KeyboardInterrupt())(c),
        Secret(NEEDLE).derive("needle").words(3),
    ),
    "pickled": lambda c: __import__("pickle").dumps(Secret(NEEDLE)),
    "compared": lambda c: Secret(NEEDLE).derive("needle", Secret(NEEDLE)),
}

SCALE = [0.0, 1.0]
MARKS = {
    "wrong passphrase": lambda c: Watermark.load(c.mark(sealed=True), PASSPHRASE + "!"),
    "no passphrase": lambda c: Watermark.load(c.mark(sealed=True)),
    "passphrase in bytes": lambda c: Watermark.load(c.mark(sealed=True), PASSPHRASE.encode()),
    "no file": lambda c: Watermark.load(c.folder / "none", PASSPHRASE),
    "a secret": lambda c: Watermark.load(c.packed("secret", sealed=True), PASSPHRASE),
    "truncated": lambda c: Watermark.load(c.file(c.mark().read_bytes()[:-9])),
    "sealed truncated": lambda c: Watermark.load(c.file(c.mark(sealed=True).read_bytes()[:-9]), PASSPHRASE),
    "flipped": lambda c: Watermark.load(c.file(flipped(c.mark(), -9))),
    "a tensor too few": lambda c: Watermark.load(c.mark(**{"carriers.ptr": None})),
    "sealed, a tensor too few": lambda c: Watermark.load(
        c.mark(sealed=True, **{"carriers.ptr": None}), PASSPHRASE
    ),
    "a tensor too many": lambda c: Watermark.load(c.mark(sealed=True, more=ARRAY), PASSPHRASE),
    "no secret": lambda c: Watermark.load(c.mark(secret=None), PASSPHRASE),
    "a secret too long": lambda c: Watermark.load(c.mark(secret=np.tile(ARRAY, 2)), PASSPHRASE),
    "a secret too short": lambda c: Watermark.load(c.mark(secret=ARRAY[:24])),
    "a secret of text": lambda c: Watermark.load(
        c.mark(secret=ARRAY.astype("<i8"), sealed=True), PASSPHRASE
    ),
    "edges that are none": lambda c: Watermark.load(
        c.mark(sealed=True, **{"carriers.edges": c.tensors["carriers.edges"][::-1].copy()}), PASSPHRASE
    ),
    "another context": lambda c: Watermark.load(c.mark(context={**c.body["context"], "m": 10}), PASSPHRASE),
    "no context": lambda c: Watermark.load(c.mark(context=None), PASSPHRASE),
    "another recipe": lambda c: Watermark.load(c.mark(sealed=True, recipe={"weight": "x"}), PASSPHRASE),
    "another scale": lambda c: Watermark.load(c.mark(scale=["a", "b"]), PASSPHRASE),
    "another digest": lambda c: Watermark.load(c.mark(sealed=True, digest="0" * 64), PASSPHRASE),
    "save over a file": lambda c: sound(c).save(existing(c), PASSPHRASE),
    "save nowhere": lambda c: sound(c).save(c.folder / "none" / "a", PASSPHRASE),
    "save nowhere in the clear": lambda c: sound(c).save(
        c.folder / "no" / "a", insecure_no_passphrase=True
    ),
    "save with both": lambda c: sound(c).save(c.folder / "a", PASSPHRASE, insecure_no_passphrase=True),
    "save with neither": lambda c: sound(c).save(c.folder / "a"),
    "save with a surrogate": lambda c: sound(c).save(c.folder / "a", SURROGATE),
    "save without room": lambda c: sound(c, lacking(os, "fsync", OSError(28, "no room"))).save(
        c.folder / "a", insecure_no_passphrase=True
    ),
}


COURT = {
    "identity, wrong passphrase": lambda c: Identity.load(c.identity(), PASSPHRASE + "!"),
    "identity, no passphrase": lambda c: Identity.load(c.identity()),
    "identity over a file": lambda c: Identity("a", Secret(NEEDLE)).save(existing(c), PASSPHRASE),
    "identity of no name": lambda c: Identity("", Secret(NEEDLE)),
    "claim, other data": lambda c: Claim.make(sound(c), TINY, SELF, c.graphs.take(np.arange(30))),
    "claim, other token": lambda c: Claim.make(
        sound(c), TINY, SELF, c.graphs, token=Token(NEEDLE[:1] * 32, b"")
    ),
    "claim, no authority": lambda c: c.claim().dated("http://127.0.0.1:9/", SELF),
    "opening over a file": lambda c: c.open(existing(c)),
    "opening nowhere": lambda c: c.open(c.folder / "no" / "a"),
    "opening, no room": lambda c: c.open(c.folder / "a", lacking(os, "fsync", OSError(28, "no room"))),
    "opening, no cipher": lambda c: c.open(
        c.folder / "a", lacking(sealing, "ChaCha20Poly1305", MemoryError())
    ),
    "opening of another claim": lambda c: c.open(
        c.folder / "a", mark=Watermark.draw(Secret(bytes(32)), c.graphs, m=8)
    ),
    "opening for another judge": lambda c: load_opening(c.opened(), Identity("b", Secret(bytes(32)))),
    "opening, truncated": lambda c: load_opening(c.file(c.opened().read_bytes()[:-9]), SELF),
    "opening, flipped": lambda c: load_opening(c.file(flipped(c.opened(), -9)), SELF),
    "opening, undecodable": lambda c: (
        c.opened(),
        lacking(opening.encoding, "decode", KeyError(1))(c),
        load_opening(c.folder / "opened", SELF),
    ),
    "opening of no secret": lambda c: (
        c.opened(),
        lacking(opening, "Secret", ValueError("no"))(c),
        load_opening(c.folder / "opened", SELF),
    ),
    "regeneration from other data": lambda c: regenerate(
        Secret(NEEDLE), Reference.of(c.graphs.take(np.arange(30))), sound(c).context, None
    ),
    "leaves, interrupted": lambda c: (
        lacking(leaves.merkle, "hash_leaf", KeyboardInterrupt())(c),
        leaves.Leaves(sound(c), bytes(32)),
    ),
    "commitment, interrupted": lambda c: (
        lacking(commitment.encoding, "digest", KeyboardInterrupt())(c),
        commitment.commit_secret(Secret(NEEDLE), bytes(32)),
    ),
}


@pytest.mark.parametrize("name", COURT)
def test_court(court_case, name):
    error = check(COURT[name], court_case)
    assert isinstance(error, InvgnnError | MemoryError | KeyboardInterrupt)


SELF = Identity("Acme", Secret(NEEDLE))
TINY = torch.nn.Linear(2, 2)


class CourtCase(Case):
    """What the operations of a court start from."""

    def identity(self):
        SELF.save(self.folder / "identity", PASSPHRASE, _kdf=QUICK)
        return self.folder / "identity"

    def claim(self):
        return Claim.make(Watermark.load(self.mark()), TINY, SELF, self.graphs)

    def open(self, path, after=None, mark=None):
        held, made = mark or Watermark.load(self.mark()), self.claim()
        if after is not None:
            after(self)
        opening.open_fully(path, made, held, SELF, SELF.public(), "case")

    def opened(self):
        self.open(self.folder / "opened")
        return self.folder / "opened"


@pytest.fixture
def court_case(tmp_path, monkeypatch, stored, rings):
    made = CourtCase(tmp_path, *stored, monkeypatch)
    made.graphs = rings.take(np.arange(40))
    return made


def sound(case, after=None):
    mark = Watermark.load(case.mark())
    if after is not None:
        after(case)
    return mark


@pytest.fixture(scope="module")
def stored(rings, tmp_path_factory):
    """The content of a small mark with the needle for a secret."""
    path = tmp_path_factory.mktemp("stored") / "a.mark"
    Watermark.draw(Secret(NEEDLE), rings.take(np.arange(40)), m=8).save(path, insecure_no_passphrase=True)
    held = container.read(path, "mark")
    return held.body, dict(held.tensors)


@pytest.fixture
def case(tmp_path, monkeypatch, stored):
    return Case(tmp_path, *stored, monkeypatch)


def check(operation, case):
    error = raised(partial(operation, case))
    case.patch.undo()
    assert leaks(error) == []
    return error


@pytest.mark.parametrize("name", SECRETS)
def test_secrets(case, name):
    error = check(SECRETS[name], case)
    assert isinstance(error, InvgnnError | MemoryError | KeyboardInterrupt)


@pytest.mark.parametrize("name", WRITES)
def test_writes(case, name):
    assert isinstance(check(WRITES[name], case), ParameterError)


@pytest.mark.parametrize("name", WRONG)
def test_wrong_values(case, name):
    check(WRONG[name], case)


@pytest.mark.parametrize("name", MARKS)
def test_marks(case, name):
    assert isinstance(check(MARKS[name], case), InvgnnError)


def test_a_stream_shows_neither_key_nor_rest():
    stream = Secret(NEEDLE).derive("needle")
    drawn = stream.bytes(40)
    error = raised(lambda: stream.bytes("x"))
    text = " ".join(texts(error)) + repr(stream)
    assert not found_in(text)
    assert not [form for form in spellings(drawn + stream._rest[:64]) if form in text]
    assert isinstance(stream, Stream)
