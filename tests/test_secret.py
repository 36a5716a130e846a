import copy
import hashlib
import pickle
import random
import stat
from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chisquare

from invgnn.errors import ExistingFileError, FileError, ParameterError, PassphraseError
from invgnn.secret import Secret, Stream, public_stream
from invgnn.storage import container

SECRET = Secret(bytes(range(32)))
KEY = b"golden key"
BOUNDS = [1, 2, 3, 10, 2**32, 10**18, 2**62 + 1, 2**63 - 1]
QUICK = container.Kdf(64, 1, 4)


class Reference:
    """The stream of docs/reference/file-format.md, slowly and literally."""

    def __init__(self, key):
        self.key, self.position = key, 0

    def bytes(self, n):
        first, last = self.position, self.position + n
        blocks = range(first // 4096, last // 4096 + 1)
        text = b"".join(hashlib.shake_256(self.key + i.to_bytes(8, "little")).digest(4096) for i in blocks)
        self.position = last
        return text[first % 4096 :][:n]

    def word(self):
        return int.from_bytes(self.bytes(8), "little")

    def below(self, bounds):
        result, left = [None] * len(bounds), list(range(len(bounds)))
        while left:
            again = []
            for i in left:
                word = self.word()
                if word >= 2**64 // bounds[i] * bounds[i]:
                    again.append(i)
                else:
                    result[i] = word % bounds[i]
            left = again
        return result

    def permutation(self, n):
        order = list(range(n))
        drawn = self.below([i + 1 for i in range(n - 1, 0, -1)])
        for i, j in zip(range(n - 1, 0, -1), drawn, strict=True):
            order[i], order[j] = order[j], order[i]
        return order

    def signs(self, n):
        text = self.bytes((n + 7) // 8)
        return [1 if text[i // 8] >> (i % 8) & 1 else -1 for i in range(n)]

    def balanced(self, m):
        return [1 if place < m // 2 else 0 for place in self.permutation(m)]


def reference_key(secret, label, *parts):
    text = b""
    for item in ("invgnn/1", secret, label, *parts):
        if isinstance(item, int):
            tag, data = b"i", (f"{item:x}").encode()
        else:
            tag, data = (b"s", item.encode()) if isinstance(item, str) else (b"b", item)
        text += tag + len(data).to_bytes(8, "little") + data
    return hashlib.shake_256(text).digest(32)


# --- golden vectors: a change here loses every mark ever made

GOLDEN = {
    "bytes": (
        lambda s: list(s.bytes(12)),
        [44, 241, 231, 103, 140, 86, 144, 122, 84, 215, 145, 12],
    ),
    "below": (
        lambda s: list(s.below(BOUNDS)),
        [0, 0, 2, 0, 49223302, 95779783536296980, 633430609229676963, 4182021106642695702],
    ),
    "permutation": (lambda s: list(s.permutation(12)), [0, 8, 3, 11, 10, 2, 7, 6, 1, 5, 9, 4]),
    "signs": (lambda s: list(s.signs(11)), [-1, -1, 1, 1, -1, 1, -1, -1, 1, -1, -1]),
    "balanced": (lambda s: list(s.balanced(12)), [1, 0, 1, 0, 0, 1, 0, 0, 1, 1, 0, 1]),
    "mixed": (
        lambda s: [*s.bytes(4091), *s.below([10**6] * 3), *s.signs(3)][4089:],
        [131, 135, 688318, 554897, 636065, -1, 1, -1],
    ),
}


@pytest.mark.parametrize("name", GOLDEN)
def test_golden_stream(name):
    draw, frozen = GOLDEN[name]
    assert draw(Reference(KEY)) == frozen
    assert draw(Stream(KEY)) == frozen


PARTS = ("text", b"text", 5, -300, 0, 2**70, "")


def test_golden_derivation():
    frozen = "09187dff90c48e5679ea6d6b2d8e46bb"
    assert Reference(reference_key(bytes(range(32)), "bits", *PARTS)).bytes(16).hex() == frozen
    assert SECRET.derive("bits", *PARTS).bytes(16).hex() == frozen


def test_golden_public_stream():
    frozen = "b9f7e097b24fa2b586d401bbbfa0891b"
    assert Reference(reference_key(b"", "decoys", 7)).bytes(16).hex() == frozen
    assert public_stream("decoys", 7).bytes(16).hex() == frozen


def test_golden_fingerprint():
    assert SECRET.fingerprint == "4e65fe2d"


@given(st.binary(max_size=40), st.lists(st.integers(1, 2**63 - 1), max_size=20))
def test_below_agrees_with_the_reference(key, bounds):
    # bounds just above 2^62 reject one word in four, so the second round is common
    bounds = [*bounds, 2**62 + 1, 2**62 + 2**61, 2**63 - 1, 1, 2**62]
    ours, slow = Stream(key), Reference(key)
    assert ours.below(bounds).tolist() == slow.below(bounds)
    assert ours.bytes(5) == slow.bytes(5)  # and the same number of words was used


@given(st.lists(st.integers(0, 9000), max_size=6))
def test_bytes_do_not_depend_on_the_pieces(sizes):
    pieces = Stream(KEY)
    joined = b"".join(pieces.bytes(n) for n in sizes)
    assert joined == Stream(KEY).bytes(sum(sizes)) == Reference(KEY).bytes(sum(sizes))


# --- sampling


def test_rejected_words_are_drawn_again_in_order():
    last = 2**64 - 1  # 2^64 mod 3 is 1: of all words only this one is refused

    class Scripted(Stream):
        rounds = ([last, 4, last, 5], [last, 7], [8])

        def words(self, n):
            drawn, *self.rounds = self.rounds
            assert len(drawn) == n
            return np.array(drawn, np.uint64)

    assert Scripted(KEY).below([3, 3, 3, 3]).tolist() == [8 % 3, 1, 7 % 3, 2]


def test_the_longest_incomplete_run_is_rejected_from_its_first_word_on():
    """274177 divides 2^64 + 1, so all but one of as many numbers are missing from the last run."""
    bound = 274_177
    assert (2**64 + 1) % bound == 0
    first = 2**64 - bound + 1

    class Scripted(Stream):
        rounds = ([first - 1, first], [5])

        def words(self, n):
            drawn, *self.rounds = self.rounds
            assert len(drawn) == n
            return np.array(drawn, np.uint64)

    assert Scripted(KEY).below([bound, bound]).tolist() == [bound - 1, 5]


def test_powers_of_two_reject_nothing():
    class Highest(Stream):
        def words(self, n):
            return np.full(n, 2**64 - 1, np.uint64)

    bounds = 2 ** np.arange(63)
    assert (Highest(KEY).below(bounds) == bounds - 1).all()


def test_below_keeps_the_shape():
    assert Stream(KEY).below(np.full((2, 3), 5)).shape == (2, 3)
    assert Stream(KEY).below(5).shape == ()
    assert Stream(KEY).below([]).tolist() == []
    assert Stream(KEY).below(np.full(3, 7, np.uint8)).dtype == np.int64


@pytest.mark.parametrize("bounds", [[0], [3, -1], [2.0], [True], [2**63], ["3"]])
def test_below_refuses(bounds):
    with pytest.raises(ParameterError, match="bound"):
        Stream(KEY).below(bounds)


@pytest.mark.parametrize("n", [-1, 1.5, True, "3"])
@pytest.mark.parametrize("method", ["bytes", "words", "permutation", "signs", "balanced"])
def test_counts_are_checked(method, n):
    with pytest.raises(ParameterError, match="count"):
        getattr(Stream(KEY), method)(n)


@pytest.mark.parametrize("m", [0, 1, 7])
def test_balanced_needs_an_even_number(m):
    with pytest.raises(ParameterError, match="even"):
        Stream(KEY).balanced(m)


@given(st.binary(max_size=8), st.integers(0, 200))
def test_permutation_is_one(key, n):
    ours, slow = Stream(key), Reference(key)
    order = ours.permutation(n)
    assert order.tolist() == slow.permutation(n)
    assert sorted(order.tolist()) == list(range(n))
    assert ours.bytes(5) == slow.bytes(5)  # and the same number of words was used


@given(st.binary(max_size=8), st.integers(1, 100))
def test_balanced_is_balanced(key, half):
    bits = Stream(key).balanced(2 * half)
    assert bits.dtype == np.int64
    assert set(bits.tolist()) == {0, 1}
    assert bits.sum() == half


@given(st.binary(max_size=8), st.integers(0, 70))
def test_signs_are_signs(key, n):
    ours, slow = Stream(key), Reference(key)
    signs = ours.signs(n)
    assert signs.dtype == np.int8
    assert signs.tolist() == slow.signs(n)
    assert ours.bytes(5) == slow.bytes(5)  # and the same number of bytes was used


def pvalue(values):
    counts = np.unique(values, return_counts=True)[1]
    return chisquare(counts).pvalue


def test_draws_are_uniform():
    # the secret is fixed: this passes always or never
    draws = SECRET.derive("uniform")
    assert pvalue(draws.below(np.full(30_000, 10))) > 1e-3
    assert pvalue(np.frombuffer(draws.bytes(50_000), np.uint8)) > 1e-3
    assert pvalue(draws.signs(10_000)) > 1e-3
    assert pvalue(draws.below(np.full(9_000, 3 * 2**61)) // 2**61) > 1e-3  # a quarter rejected
    orders = [tuple(draws.permutation(4)) for _ in range(6_000)]
    assert len(set(orders)) == 24
    assert pvalue([hash(o) for o in orders]) > 1e-3
    bits = [int("".join(map(str, draws.balanced(4))), 2) for _ in range(3_000)]
    assert len(set(bits)) == 6
    assert pvalue(bits) > 1e-3


# --- derivation


def test_labels_and_parts_separate():
    inputs = [
        *[("a",), ("b",), ("a", ""), ("a", b""), ("a", 0), ("a", "0"), ("a", b"0"), ("a", 1)],
        *[("a", -1), ("ab",), ("a", "b"), ("a", "b", "c"), ("a", "bc"), ("ab", "c")],
        *[("a", 256), ("a", b"\0\1"), ("a", 1, 0), ("a", 10), ("a", 16)],
    ]
    first = {i: SECRET.derive(*i).bytes(16) for i in inputs}
    assert len(set(first.values())) == len(inputs)
    other = Secret(bytes(32))
    assert not {other.derive(*i).bytes(16) for i in inputs} & set(first.values())
    assert not {public_stream(*i).bytes(16) for i in inputs} & set(first.values())


def test_numpy_integers_are_integers():
    assert SECRET.derive("a", np.int32(5)).bytes(4) == SECRET.derive("a", 5).bytes(4)


def test_an_array_of_one_integer_is_that_integer():
    assert SECRET.derive("a", np.array(5)).bytes(4) == SECRET.derive("a", 5).bytes(4)


@pytest.mark.parametrize("part", [True, 1.5, None, (1,), np.float64(1), np.True_, np.arange(2), int])
def test_other_parts_are_refused(part):
    with pytest.raises(ParameterError, match="derive"):
        SECRET.derive("a", part)


def test_global_random_states_are_left_alone():
    before = random.getstate(), np.random.get_state()[1].tolist()  # noqa: NPY002 - the state itself
    stream = Secret.generate().derive("a")
    stream.balanced(10), stream.signs(3), stream.below([5])
    after = random.getstate(), np.random.get_state()[1].tolist()  # noqa: NPY002 - the state itself
    assert before == after


# --- the secret


def test_generate():
    one, two = Secret.generate(), Secret.generate()
    assert len(bytes(one)) == 32
    assert one != two


@pytest.mark.parametrize("data", [b"", bytes(31), bytes(33), "a" * 32, bytearray(32), None])
def test_only_32_bytes_are_a_secret(data):
    with pytest.raises(ParameterError, match="32 bytes"):
        Secret(data)


def test_equality():
    assert Secret(bytes(range(32))) == SECRET
    assert Secret(bytes(32)) != SECRET
    assert bytes(SECRET) != SECRET
    assert mock.ANY == SECRET == mock.ANY  # others may know better


def test_nothing_is_shown():
    assert repr(SECRET) == str(SECRET) == f"<Secret {SECRET.fingerprint}>"
    assert len(SECRET.fingerprint) == 8
    assert not hasattr(SECRET, "__dict__")
    assert SECRET.fingerprint != Secret(bytes(32)).fingerprint


@pytest.mark.parametrize("leak", [pickle.dumps, copy.copy, copy.deepcopy, hash])
def test_a_secret_cannot_be_copied_or_pickled(leak):
    with pytest.raises(TypeError):
        leak(SECRET)


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_no_pickle_of_any_protocol(protocol):
    with pytest.raises(TypeError, match="save"):
        pickle.dumps(SECRET, protocol)


def test_save_and_load(tmp_path):
    path = tmp_path / "a.secret"
    SECRET.save(path, "correct horse", _kdf=QUICK)
    assert Secret.load(path, "correct horse") == SECRET
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert bytes(SECRET) not in path.read_bytes()
    assert container.peek(path) == {"kind": "secret", "version": 2, "sealed": True}
    for wrong in (None, "", "wrong"):
        with pytest.raises(PassphraseError):
            Secret.load(path, wrong)


def test_save_keeps_what_is_there(tmp_path):
    path = tmp_path / "a.secret"
    SECRET.save(path, "x", _kdf=QUICK)
    with pytest.raises(ExistingFileError):
        Secret.generate().save(path, "x", _kdf=QUICK)
    assert Secret.load(path, "x") == SECRET
    other = Secret.generate()
    other.save(path, "x", overwrite=True, _kdf=QUICK)
    assert Secret.load(path, "x") == other


def test_without_passphrase_only_with_insecure_no_passphrase(tmp_path):
    path = tmp_path / "a.secret"
    with pytest.raises(PassphraseError, match="insecure_no_passphrase"):
        SECRET.save(path, None)
    with pytest.raises(PassphraseError):
        SECRET.save(path, "")
    with pytest.raises(ParameterError, match="exclude"):
        SECRET.save(path, "", insecure_no_passphrase=True)
    assert not path.exists()
    SECRET.save(path, None, insecure_no_passphrase=True)
    assert Secret.load(path) == SECRET
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert container.peek(path)["body"] == {}  # the bytes are in a tensor, which peek does not show


def test_a_mark_is_no_secret(tmp_path):
    container.write(tmp_path / "a.mark", "mark", {}, {})
    with pytest.raises(FileError, match="a secret file was expected"):
        Secret.load(tmp_path / "a.mark")


def test_the_traceback_of_a_refused_secret_does_not_hold_it():
    with pytest.raises(ParameterError) as caught:
        Secret(bytes(31))
    frame = caught.traceback[-1].frame
    assert frame.code.name == "__init__"
    assert "data" not in frame.f_locals


def test_a_file_of_another_content_is_no_secret(tmp_path):
    for number, held in enumerate(
        ({}, {"secret": np.zeros(31, np.uint8)}, {"secret": np.zeros(32, np.int8)})
    ):
        container.write(tmp_path / f"{number}", "secret", {}, held)
        with pytest.raises(FileError, match="contains no secret of 32 bytes"):
            Secret.load(tmp_path / f"{number}")
