"""Seal bytes with a passphrase, by Argon2id and ChaCha20-Poly1305, and open them again."""

from __future__ import annotations

import os
import re
import unicodedata
from collections.abc import Callable
from typing import Any, NamedTuple

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.kdf.argon2 import Argon2id

from invgnn.concealed import SHOWN, conceal
from invgnn.errors import FileError, ParameterError, PassphraseError
from invgnn.storage.atomic import AnyPath


class Kdf(NamedTuple):
    """The parameters of Argon2id: what one guess of a passphrase costs."""

    memory_kib: int = 65536
    iterations: int = 3
    lanes: int = 4


STRONG = Kdf()
"""What every file is sealed with."""
MOST = Kdf(memory_kib=2**18, iterations=16, lanes=64)
"""The most that a reader accepts: a file names its own parameters, and must not stall who opens it."""
MOST_WORK = 2**19
"""The most memory times iterations that a reader accepts: 2.7 times that of `STRONG`, about a second."""


def require_passphrase(passphrase: str | None, insecure_no_passphrase: bool) -> None:
    """Check that there is a passphrase, or that its absence was asked for explicitly.

    Raises:
        PassphraseError: If there is no passphrase and `insecure_no_passphrase` is false.
        ParameterError: If both are given.
    """
    passphrase = conceal(passphrase)
    if insecure_no_passphrase and passphrase is not None:
        raise ParameterError("a passphrase and insecure_no_passphrase exclude each other", "Give only one.")
    if not passphrase and not insecure_no_passphrase:
        raise PassphraseError(
            "a secret is not saved without a passphrase",
            "Give one; or, if the file is safe by other means, insecure_no_passphrase=True.",
        )


def close(
    data: bytes, passphrase: str, kdf: Kdf, label: Callable[[dict[str, Any]], bytes]
) -> tuple[dict[str, Any], bytes]:
    """Encrypt data.

    Args:
        data: What to encrypt.
        passphrase: What opens it.
        kdf: The cost of a guess.
        label: Given the parameters, returns the bytes to which the result is bound.

    Returns:
        The parameters that `open_box` needs, and the encrypted data.

    Raises:
        PassphraseError: If the passphrase is empty or not text.
        ParameterError: If there is too much data.
    """
    data, passphrase = conceal(data), conceal(passphrase)
    salt, nonce = os.urandom(16), os.urandom(12)
    how = {"kdf": "argon2id", "salt": salt.hex(), **kdf._asdict(), "nonce": nonce.hex()}
    cipher = ChaCha20Poly1305(_key(passphrase, kdf, salt))
    try:
        return how, cipher.encrypt(nonce, data, label(how))
    except OverflowError:
        advice = "Keep large tensors in a file of their own."
        raise ParameterError("over 2 GiB cannot be sealed", advice) from None


def open_box(how: Any, box: bytes, passphrase: str | None, label: bytes, path: AnyPath) -> bytes:
    """Decrypt what `close` encrypted.

    Args:
        how: The parameters that `close` returned, as read from a file.
        box: The encrypted data.
        passphrase: What it was sealed with.
        label: The bytes to which it is bound.
        path: The file, for messages.

    Returns:
        The data, concealed.

    Raises:
        PassphraseError: If the passphrase is missing or wrong, or if box, parameters or label were altered.
        FileError: If the parameters are malformed or ask for too much work.
    """
    passphrase = conceal(passphrase)
    kdf, salt, nonce = _parse(how, path)
    work = kdf.memory_kib * kdf.iterations
    if work > MOST_WORK or any(cost > most for cost, most in zip(kdf, MOST, strict=True)):
        advice = "Do not trust it: invgnn never writes this. Use another copy."
        raise FileError(f"{path} asks for absurd work before it opens", advice)
    if passphrase is None:
        raise PassphraseError(f"{path} is sealed", "Give its passphrase.")
    try:
        return conceal(ChaCha20Poly1305(_key(passphrase, kdf, salt)).decrypt(nonce, box, label))
    except InvalidTag:
        advice = "Type it again. If it is right, the file was altered: use another copy."
        raise PassphraseError(f"the passphrase does not open {path}", advice) from None


def _parse(how: Any, path: AnyPath) -> tuple[Kdf, bytes, bytes]:
    try:
        left = how.copy()
        salt, nonce = bytes.fromhex(left.pop("salt")), bytes.fromhex(left.pop("nonce"))
        sound = left.pop("kdf") == "argon2id" and (len(salt), len(nonce)) == (16, 12)
        kdf = Kdf(**{name: left.pop(name) for name in Kdf._fields})
        sound = sound and not left and all(type(cost) is int and cost > 0 for cost in kdf)
        sound = sound and kdf.memory_kib >= 8 * kdf.lanes
    except (AttributeError, KeyError, TypeError, ValueError):
        sound = False
    if not sound:
        advice = "Use another copy of it, or make it again."
        raise FileError(f"{path} is damaged: its seal is malformed", advice)
    return kdf, salt, nonce


def _key(passphrase: str, kdf: Kdf, salt: bytes) -> bytes:
    """Return the key of a concealed passphrase."""
    if not isinstance(passphrase, str) or re.search("[\ud800-\udfff]", passphrase):
        raise PassphraseError("the passphrase is not text", "Check its encoding.")
    if not passphrase:
        raise PassphraseError("the passphrase is empty", "Choose one of several words.")
    if passphrase == SHOWN:  # somebody took str() of a concealed passphrase
        raise PassphraseError(
            f"the passphrase {SHOWN} is a stand-in for another", "Pass the one it stands for."
        )
    memory, iterations, lanes = kdf
    function = Argon2id(salt=salt, length=32, iterations=iterations, lanes=lanes, memory_cost=memory)
    # NFC: the same letters, typed on another system, are the same passphrase
    return conceal(function.derive(unicodedata.normalize("NFC", passphrase).encode()))
