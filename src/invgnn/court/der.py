"""Take the two parts of a timestamp token that nobody but the authority can change."""

from __future__ import annotations

from collections.abc import Iterator

from invgnn.errors import TimestampError

_SEQUENCE, _SET, _OCTETS, _CONTEXT_0 = 0x30, 0x31, 0x04, 0xA0


def signed_parts(token: bytes) -> tuple[bytes, bytes]:
    """Return the signed content of a token (TSTInfo) and the signature of the authority.

    Everything else in a token (unused certificates, unsigned attributes, status texts) may be changed by
    whoever holds it, so nothing may be derived from it.

    Args:
        token: The DER bytes of a CMS signed-data structure, as in an RFC 3161 token.

    Raises:
        TimestampError: If the bytes have another structure.
    """
    try:
        _, outer = _only(token, _SEQUENCE)
        wrapped = _named(outer, _CONTEXT_0)
        _, signed = _only(wrapped, _SEQUENCE)
        parts = list(_items(signed))
        _, content = parts[2]
        _, info = _only(_named(content, _CONTEXT_0), _OCTETS)
        tag, signers = parts[-1]
        _, signer = _only(signers, _SEQUENCE)
        signatures = [value for kind, value in _items(signer) if kind == _OCTETS]
        if tag != _SET or len(signatures) != 1:
            raise ValueError("no single signature")
    except (IndexError, ValueError) as error:
        raise TimestampError(f"the token is malformed: {error}", "request another token") from None
    return bytes(info), bytes(signatures[0])


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
