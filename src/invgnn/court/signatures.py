"""Ed25519 signatures, and the keys with which everybody could sign."""

from __future__ import annotations

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from invgnn.errors import ParameterError

_ONES = b"\xff" * 30 + b"\x7f"
SMALL_ORDER = (
    bytes(32),
    b"\x01" + bytes(31),
    bytes.fromhex("26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05"),
    bytes.fromhex("c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a"),
    b"\xec" + _ONES,
    b"\xed" + _ONES,
    b"\xee" + _ONES,
)
"""Ed25519 keys of small order, without their sign: one signature fits every message, or one in eight."""
_ADVICE = "use another copy of the file, or ask its author for a new one"


def verify_signature(key: str, signature: str, message: bytes, what: str) -> None:
    """Check an Ed25519 signature.

    Args:
        key: The public key, in hex.
        signature: The signature, in hex.
        message: What is signed.
        what: Name of the message, for the error.

    Raises:
        ParameterError: If the signature does not fit.
    """
    try:
        if bytes.fromhex(key)[:31] + bytes([bytes.fromhex(key)[31] & 0x7F]) in SMALL_ORDER:
            raise ValueError("everybody can sign with this key")
        Ed25519PublicKey.from_public_bytes(bytes.fromhex(key)).verify(bytes.fromhex(signature), message)
    except (InvalidSignature, ValueError):
        raise ParameterError(f"the signature does not fit {what}, so it was altered", _ADVICE) from None
