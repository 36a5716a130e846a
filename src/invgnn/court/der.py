"""Take the two parts of a timestamp token that nobody but the authority can change."""

from __future__ import annotations

from collections.abc import Iterator

from invgnn.errors import TimestampError

_SEQUENCE, _SET, _OCTETS, _OBJECT, _TIME, _CONTEXT_0 = 0x30, 0x31, 0x04, 0x06, 0x18, 0xA0
_SHA2_OR_SHA3 = {bytes.fromhex("6086480165030402") + bytes([last]) for last in (1, 2, 3, 8, 9, 10)}


def signed_parts(token: bytes) -> tuple[bytes, bytes]:
    """Return the signed content of a token (TSTInfo) and the signature of the authority.

    Everything else in a token (unused certificates, unsigned attributes, status texts) may be changed by
    whoever holds it, so nothing may be derived from it.

    Args:
        token: The DER bytes of a CMS signed-data structure, as in an RFC 3161 token.

    Raises:
        TimestampError: If the bytes have another structure.
    """
    info, signer = _content_and_signer(token)
    signatures = [value for kind, value in signer if kind == _OCTETS]
    if len(signatures) != 1:
        raise TimestampError("the token is malformed: no single signature", "request another token")
    return info, signatures[0]


def check_signing(token: bytes) -> None:
    """Refuse a signature for which a second content could be found.

    Whoever finds collisions of the hash that is signed gets several contents, and thus several keys, from
    one request. MD5 has been broken in this way, and SHA-1 nearly so.

    Args:
        token: As in `signed_parts`.

    Raises:
        TimestampError: If the signature is over a hash other than SHA-2 or SHA-3 of 256 bits or more, or
            lacks the signed attributes that RFC 3161 demands.
    """
    _, signer = _content_and_signer(token)
    try:
        digest = next(_items(signer[2][1]))
    except (IndexError, StopIteration, ValueError):
        digest = (0, b"")
    if digest[0] != _OBJECT or digest[1] not in _SHA2_OR_SHA3:
        raise TimestampError("the token is signed with an outdated hash", "use another authority")
    if signer[3][0] != _CONTEXT_0:
        raise TimestampError("the token has no signed attributes", "use another authority")


def has_fraction(info: bytes) -> bool:
    """Return whether the time in the signed content of a token has a fraction of a second.

    Args:
        info: What `signed_parts` returned.
    """
    _, content = _only(info, _SEQUENCE)
    return any(tag == _TIME and b"." in value for tag, value in _items(content))


def _content_and_signer(token: bytes) -> tuple[bytes, list[tuple[int, bytes]]]:
    """Return the signed content, and the parts of what is said about its only signer."""
    try:
        _, outer = _only(token, _SEQUENCE)
        _, signed = _only(_named(outer, _CONTEXT_0), _SEQUENCE)
        parts = list(_items(signed))
        _, content = parts[2]
        _, info = _only(_named(content, _CONTEXT_0), _OCTETS)
        tag, signers = parts[-1]
        _, signer = _only(signers, _SEQUENCE)
        found = [(kind, bytes(value)) for kind, value in _items(signer)]
        if tag != _SET or len(found) < 5:
            raise ValueError("no single signer")
    except (IndexError, ValueError) as error:
        raise TimestampError(f"the token is malformed: {error}", "request another token") from None
    return bytes(info), found


def _items(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield tag and content of every element."""
    at = 0
    while at < len(data):
        tag, length, at = data[at], data[at + 1], at + 2
        if length & 0x80:
            size = length & 0x7F
            if not 1 <= size <= 4:
                raise ValueError("a length is malformed")
            length, at = int.from_bytes(data[at : at + size]), at + size
        if at + length > len(data):
            raise ValueError("it ends too early")
        yield tag, data[at : at + length]
        at += length


def _only(data: bytes, tag: int) -> tuple[int, bytes]:
    """Return the one element that the data consist of."""
    found = list(_items(data))
    if len(found) != 1 or found[0][0] != tag:
        raise ValueError(f"expected one element {tag:#x}")
    return found[0]


def _named(data: bytes, tag: int) -> bytes:
    """Return the content of the one element with this tag."""
    found = [value for kind, value in _items(data) if kind == tag]
    if len(found) != 1:
        raise ValueError(f"expected one element {tag:#x}")
    return found[0]
