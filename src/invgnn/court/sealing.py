"""Encrypt bytes to the X25519 key of one reader (HKDF-SHA-256 and ChaCha20-Poly1305)."""

from __future__ import annotations

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from invgnn.concealed import conceal
from invgnn.errors import FileError, ParameterError
from invgnn.storage import encoding

_NONCE = bytes(12)
"""Every key is used once, so the nonce may be constant."""


def seal_to(reader: str, data: bytes, label: bytes) -> tuple[str, bytes]:
    """Encrypt data so that one reader can decrypt it.

    Args:
        reader: The reader's public X25519 key, in hex.
        data: The data.
        label: What the ciphertext is bound to; the reader must know it.

    Returns:
        The public key of this message, in hex, and the ciphertext.

    Raises:
        ParameterError: If the reader's key is unusable.
    """
    data, once = conceal(data), X25519PrivateKey.generate()
    own = once.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw).hex()
    try:
        shared = conceal(once.exchange(X25519PublicKey.from_public_bytes(bytes.fromhex(reader))))
    except ValueError:
        raise ParameterError(
            "the reader's encryption key is not a usable X25519 key", "ask for another public identity"
        ) from None
    return own, ChaCha20Poly1305(_key(shared, own, reader)).encrypt(_NONCE, data, label)


def unseal(private: X25519PrivateKey, own: str, box: bytes, label: bytes) -> bytes:
    """Decrypt what `seal_to` returned.

    Args:
        private: The reader's private key.
        own: The public key of this message, in hex.
        box: The ciphertext.
        label: What the ciphertext is bound to.

    Returns:
        The data, concealed.

    Raises:
        FileError: If it was encrypted for another reader, or altered.
    """
    reader = private.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw).hex()
    try:
        shared = conceal(private.exchange(X25519PublicKey.from_public_bytes(bytes.fromhex(own))))
        return conceal(ChaCha20Poly1305(_key(shared, own, reader)).decrypt(_NONCE, box, label))
    except (InvalidTag, ValueError):
        raise FileError(
            "the opening was encrypted for another judge, or was altered",
            "ask the claimant for an opening to your public identity",
        ) from None


def _key(shared: bytes, own: str, reader: str) -> bytes:
    """Return the key of one message."""
    about = encoding.encode(["invgnn/sealed/1", own, reader])
    return conceal(HKDF(hashes.SHA256(), 32, salt=None, info=about).derive(shared))
