"""Encryption of files: limits of the key-derivation work, and malformed parameters."""

from __future__ import annotations

import pytest

from invgnn.concealed import SHOWN
from invgnn.errors import FileError, ParameterError, PassphraseError
from invgnn.storage.encryption import MOST, MOST_WORK, STRONG, Kdf, close, open_box, require_passphrase

QUICK = Kdf(8, 1, 1)


def label(how):
    return b"label"


def sealed(**changes):
    how, box = close(b"data", "horse", QUICK, label)
    return how | changes, box


def test_what_is_sealed_opens_with_the_same_passphrase_and_label_only():
    how, box = sealed()
    assert set(how) == {"kdf", "salt", "memory_kib", "iterations", "lanes", "nonce"}
    assert bytes(open_box(how, box, "horse", b"label", "f")) == b"data"
    for passphrase, bound in (("horses", b"label"), ("horse", b"labels")):
        with pytest.raises(PassphraseError, match="does not open"):
            open_box(how, box, passphrase, bound, "f")
    with pytest.raises(PassphraseError, match="is sealed"):
        open_box(how, box, None, b"label", "f")


def test_the_costs_are_those_that_are_documented():
    assert STRONG == (65_536, 3, 4)
    assert MOST == (262_144, 16, 64)
    assert MOST_WORK == 524_288


@pytest.mark.parametrize("cost", [(8, 16, 1), (512, 1, 64), (16, 2, 2)])
def test_work_within_the_limits_is_done(cost):
    how, box = close(b"data", "horse", Kdf(*cost), label)
    assert bytes(open_box(how, box, "horse", b"label", "f")) == b"data"


def test_the_most_work_is_let_through_to_the_passphrase():
    """Without one nothing is computed, so the largest costs can be tried."""
    for cost in ((2**18, 2, 4), (2**15, 16, 64), (2**18, 1, 64)):
        with pytest.raises(PassphraseError, match="is sealed"):
            open_box(sealed(**Kdf(*cost)._asdict())[0], b"", None, b"label", "f")
    for cost in ((2**18, 3, 4), (2**15 + 1, 16, 4), (2**18 + 1, 1, 4), (8, 17, 1), (520, 1, 65)):
        with pytest.raises(FileError, match="more work"):
            open_box(sealed(**Kdf(*cost)._asdict())[0], b"", None, b"label", "f")


@pytest.mark.parametrize(
    "change",
    [
        {"kdf": "argon2i"},
        {"salt": "00" * 15},
        {"salt": "00" * 17},
        {"salt": "no"},
        {"nonce": "00" * 13},
        {"nonce": None},
        {"iterations": 0},
        {"iterations": 1.0},
        {"iterations": True},
        {"lanes": 0},
        {"memory_kib": 0},
        {"memory_kib": 7},
        {"memory_kib": 15, "lanes": 2},
        {"note": 1},
    ],
)
def test_a_malformed_seal_is_damage(change):
    with pytest.raises(FileError, match="malformed"):
        open_box(*sealed(**change), "horse", b"label", "f")


def test_a_seal_that_lacks_a_part_is_damage():
    for name in sealed()[0]:
        how, box = sealed()
        del how[name]
        with pytest.raises(FileError, match="malformed"):
            open_box(how, box, "horse", b"label", "f")
    for how in (None, [], "seal"):
        with pytest.raises(FileError, match="malformed"):
            open_box(how, b"", "horse", b"label", "f")


def test_the_same_letters_are_the_same_passphrase():
    how, box = close(b"data", "cafe\u0301", QUICK, label)
    assert bytes(open_box(how, box, "caf\u00e9", b"label", "f")) == b"data"


@pytest.mark.parametrize("passphrase", ["", "\ud800", "a\udfffb", b"horse", 7, SHOWN])
def test_what_is_no_passphrase_seals_nothing(passphrase):
    with pytest.raises(PassphraseError) as caught:
        close(b"data", passphrase, QUICK, label)
    assert caught.value.advice


def test_a_passphrase_is_needed_unless_its_absence_was_asked_for():
    require_passphrase("horse", False)
    require_passphrase(None, True)
    for missing in (None, ""):
        with pytest.raises(PassphraseError, match="not saved without"):
            require_passphrase(missing, False)
    with pytest.raises(ParameterError, match="exclude each other"):
        require_passphrase("horse", True)


def test_more_data_than_the_cipher_takes_is_refused(monkeypatch):
    class Full:
        def __init__(self, key):
            pass

        def encrypt(self, nonce, data, label):
            raise OverflowError("Data or associated data too long. Max 2**31 - 1 bytes")

    monkeypatch.setattr("invgnn.storage.encryption.ChaCha20Poly1305", Full)
    with pytest.raises(ParameterError, match="more than 2 GiB") as caught:
        close(b"data", "horse", QUICK, label)
    assert "separate file" in caught.value.advice
