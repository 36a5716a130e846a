"""Encrypt bytes with a passphrase (Argon2id and ChaCha20-Poly1305), and decrypt them."""

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
    """The parameters of Argon2id, which set the cost of one guess of a passphrase.

    Attributes:
        memory_kib: Memory in KiB.
        iterations: Number of passes over the memory.
        lanes: Degree of parallelism.
    """

    memory_kib: int = 65536
    iterations: int = 3
    lanes: int = 4


STRONG = Kdf()
"""The parameters with which every file is sealed."""
MOST = Kdf(memory_kib=2**18, iterations=16, lanes=64)
"""The largest parameters that a reader accepts.

A file contains its own parameters. The limit prevents a file from blocking the program that opens it.
"""
MOST_WORK = 2**19
"""Largest product of memory and iterations that a reader accepts: 2.7 times `STRONG`, about a second."""


def require_passphrase(passphrase: str | None, insecure_no_passphrase: bool) -> None:
    """Check that there is a passphrase, or that its absence was requested explicitly.

    Args:
        passphrase: The passphrase, or None.
        insecure_no_passphrase: Whether to save without a passphrase.

    Raises:
        PassphraseError: If there is no passphrase and `insecure_no_passphrase` is false.
        ParameterError: If both are given.
    """
    passphrase = conceal(passphrase)
    if insecure_no_passphrase and passphrase is not None:
        raise ParameterError("a passphrase and insecure_no_passphrase exclude each other", "Pass only one.")
    if not passphrase and not insecure_no_passphrase:
        raise PassphraseError(
            "a secret is not saved without a passphrase",
            "Pass a passphrase. If the file is protected by other means, pass insecure_no_passphrase=True.",
        )


def close(
    data: bytes, passphrase: str, kdf: Kdf, label: Callable[[dict[str, Any]], bytes]
) -> tuple[dict[str, Any], bytes]:
    """Encrypt data.

    Args:
        data: The data to encrypt.
        passphrase: The passphrase.
        kdf: The cost of a guess.
        label: Maps the parameters to the associated data, to which the ciphertext is bound.

    Returns:
        The parameters that `open_box` needs, and the ciphertext.

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
        advice = "Store large tensors in a separate file."
        raise ParameterError("more than 2 GiB of data cannot be sealed", advice) from None


def open_box(how: Any, box: bytes, passphrase: str | None, label: bytes, path: AnyPath) -> bytes:
    """Decrypt the output of `close`.

    Args:
        how: The parameters that `close` returned, as read from a file.
        box: The ciphertext.
        passphrase: The passphrase, or None.
        label: The associated data, to which the ciphertext is bound.
        path: The file, for error messages.

    Returns:
        The data, concealed.

    Raises:
        PassphraseError: If the passphrase is missing or wrong, or if ciphertext, parameters or label were
            altered.
        FileError: If the parameters are malformed or require too much work.
    """
    passphrase = conceal(passphrase)
    kdf, salt, nonce = _parse(how, path)
    work = kdf.memory_kib * kdf.iterations
    if work > MOST_WORK or any(cost > most for cost, most in zip(kdf, MOST, strict=True)):
        advice = "Do not trust this file: invgnn never writes such parameters. Use another copy."
        raise FileError(f"{path} requires more work for its key derivation than invgnn accepts", advice)
    if passphrase is None:
        raise PassphraseError(f"{path} is sealed with a passphrase", "Pass its passphrase.")
    try:
        return conceal(ChaCha20Poly1305(_key(passphrase, kdf, salt)).decrypt(nonce, box, label))
    except InvalidTag:
        advice = "Enter it again. If it is correct, the file was altered: use another copy."
        raise PassphraseError(f"the passphrase does not open {path}", advice) from None


def _parse(how: Any, path: AnyPath) -> tuple[Kdf, bytes, bytes]:
    """Return the key-derivation parameters, the salt and the nonce of a sealed file, checked."""
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
        advice = "Use another copy of the file, or create it again."
        raise FileError(f"{path} is damaged: its seal is malformed", advice)
    return kdf, salt, nonce


def _key(passphrase: str, kdf: Kdf, salt: bytes) -> bytes:
    """Return the key that belongs to a concealed passphrase."""
    if not isinstance(passphrase, str) or re.search("[\ud800-\udfff]", passphrase):
        raise PassphraseError("the passphrase is not text", "Check its encoding.")
    if not passphrase:
        raise PassphraseError("the passphrase is empty", "Choose a passphrase of several words.")
    if passphrase == SHOWN:  # the result of str() on a concealed passphrase
        raise PassphraseError(
            f"the passphrase {SHOWN} is a stand-in for a concealed one",
            "Pass the original value, not its text.",
        )
    memory, iterations, lanes = kdf
    function = Argon2id(salt=salt, length=32, iterations=iterations, lanes=lanes, memory_cost=memory)
    # NFC: the same text typed on another system gives the same passphrase
    return conceal(function.derive(unicodedata.normalize("NFC", passphrase).encode()))
