"""Argon2id and ChaCha20-Poly1305: bytes that only a passphrase opens."""

from __future__ import annotations

import os
import unicodedata
from collections.abc import Callable
from typing import Any, NamedTuple

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.kdf.argon2 import Argon2id

from invgnn.disk import AnyPath
from invgnn.errors import FileError, ParameterError, PassphraseError


class Kdf(NamedTuple):
    """What one guess of a passphrase costs: the parameters of Argon2id."""

    memory_kib: int = 65536
    iterations: int = 3
    lanes: int = 4


STRONG = Kdf()
# A file chooses what its reader has to compute, so the reader says how much is too much.
MOST = Kdf(memory_kib=2**20, iterations=16, lanes=64)


def require_passphrase(passphrase: str | None, insecure_no_passphrase: bool) -> None:
    """Refuse to go on without a passphrase, unless that was asked for by its ugly name."""
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
    """How the box was closed, and the box; `label` gives the bytes it is bound to."""
    salt, nonce = os.urandom(16), os.urandom(12)
    how = {"kdf": "argon2id", "salt": salt.hex(), **kdf._asdict(), "nonce": nonce.hex()}
    cipher = ChaCha20Poly1305(_key(passphrase, kdf, salt))
    try:
        return how, cipher.encrypt(nonce, data, label(how))
    except OverflowError:
        advice = "Keep large tensors in a file of their own."
        raise ParameterError("over 2 GiB cannot be sealed", advice) from None


def open_box(how: Any, box: bytes, passphrase: str | None, label: bytes, path: AnyPath) -> bytes:
    """What is in the box, if the passphrase is right and nothing was altered."""
    kdf, salt, nonce = _parse(how, path)
    if any(cost > most for cost, most in zip(kdf, MOST, strict=True)):
        advice = "Do not trust it: invgnn never writes this. Use another copy."
        raise FileError(f"{path} asks for absurd work before it opens: {kdf}", advice)
    if passphrase is None:
        raise PassphraseError(f"{path} is sealed", "Give its passphrase.")
    try:
        return ChaCha20Poly1305(_key(passphrase, kdf, salt)).decrypt(nonce, box, label)
    except InvalidTag:
        advice = "Type it again. If it is right, the file was altered: use another copy."
        raise PassphraseError(f"the passphrase does not open {path}", advice) from None


def _parse(how: Any, path: AnyPath) -> tuple[Kdf, bytes, bytes]:
    try:
        left = dict(how)
        salt, nonce = bytes.fromhex(left.pop("salt")), bytes.fromhex(left.pop("nonce"))
        sound = left.pop("kdf") == "argon2id" and (len(salt), len(nonce)) == (16, 12)
        kdf = Kdf(**{name: left.pop(name) for name in Kdf._fields})
        sound = sound and not left and all(type(cost) is int and cost > 0 for cost in kdf)
        sound = sound and kdf.memory_kib >= 8 * kdf.lanes
    except (KeyError, TypeError, ValueError):
        sound = False
    if not sound:
        advice = "Use another copy of it, or make it again."
        raise FileError(f"{path} is damaged: its seal is malformed", advice)
    return kdf, salt, nonce


def _key(passphrase: str, kdf: Kdf, salt: bytes) -> bytes:
    try:  # NFC: the same letters, typed on another system, are the same passphrase
        secret = unicodedata.normalize("NFC", passphrase).encode()
    except UnicodeEncodeError:
        raise PassphraseError("the passphrase is not text", "Check its encoding.") from None
    if not secret:
        raise PassphraseError("the passphrase is empty", "Choose one of several words.")
    memory, iterations, lanes = kdf
    function = Argon2id(salt=salt, length=32, iterations=iterations, lanes=lanes, memory_cost=memory)
    return function.derive(secret)
