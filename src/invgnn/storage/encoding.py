"""A canonical, invertible encoding of every value that is hashed, and the digest of the encoding.

Every value is written as one byte for its type, the length of its content in 8 bytes (little-endian) and
the content. The encoding is unambiguous, and `decode(encode(value))` returns the value: two values with
equal bytes are equal. Changing this breaks every mark in the field; golden vectors in the tests guard it.
"""

from __future__ import annotations

import hashlib
import math
import operator
import re
import struct
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from invgnn.errors import ParameterError

_KINDS = ("f8", "f4", "f2", "c16", "c8", "i8", "i4", "i2", "u8", "u4", "u2")
DTYPES = frozenset([*(f"<{kind}" for kind in _KINDS), "|i1", "|u1", "|b1"])
"""The array types that can be encoded, by their little-endian numpy names."""
DEEPEST = 32
"""Largest nesting depth of lists and maps."""
LONGEST_INT = 64
"""Largest number of hexadecimal digits of an integer."""

_HEAD = 9  # bytes before each content: type and length
_INT = re.compile(rb"0|-?[1-9a-f][0-9a-f]*")


def encode(value: Any) -> bytes:
    """Return the canonical bytes of a value.

    Args:
        value: None, a bool, an int, a float, text, bytes, a numpy array of one of `DTYPES`, or a list, a
            tuple or a map with text keys of such values. Tuples are written as lists, numpy integers as
            ints.

    Returns:
        Bytes from which `decode` restores the value exactly: the sign of a zero, the payload of a NaN, and
            the type and shape of an array are kept. Equal bytes mean equal values.

    Raises:
        ParameterError: If the value, or a part of it, is of another type or nested too deeply.
    """
    return _encode(value, DEEPEST)


def decode(data: bytes) -> Any:
    """Return the value that `encode` wrote. The arrays in it are new and writable.

    Raises:
        ParameterError: If the bytes are not exactly what `encode` writes for some value.
    """
    value, end = _decode(memoryview(data), 0, len(data), DEEPEST)
    if end != len(data):
        raise _malformed("there are bytes after its end")
    return value


def digest(domain: str, value: Any) -> str:
    """Return the SHA-256 digest, in hex, of the encoding of a value.

    Args:
        domain: The purpose of the digest. Values hashed for different purposes never share a digest.
        value: The value.
    """
    return digest_encoded(domain, encode(value))


def digest_encoded(domain: str, data: bytes) -> str:
    """Return the digest of a value that is already encoded.

    Args:
        domain: The purpose of the digest.
        data: The encoding of the value.
    """
    total = hashlib.sha256(encode(domain))
    total.update(data)
    return total.hexdigest()


# -- writing ---------------------------------------------------------------------------------------


def _item(tag: bytes, content: bytes) -> bytes:
    """Return a type byte, the length of a content and the content."""
    return b"".join((tag, len(content).to_bytes(8, "little"), content))


def _encode(value: Any, depth: int) -> bytes:
    """Return the canonical bytes of a value that may contain `depth` further levels."""
    if depth < 0:
        raise ParameterError(f"a value is nested more than {DEEPEST} levels deep", "flatten it")
    if value is None:
        return _item(b"n", b"")
    if isinstance(value, bool):
        return _item(b"o", b"\1" if value else b"\0")
    if isinstance(value, str):
        return _item(b"s", _utf8(value))
    if isinstance(value, bytes):
        return _item(b"b", value)
    if isinstance(value, float):
        return _item(b"d", struct.pack("<d", value))
    if isinstance(value, np.ndarray):
        return _item(b"a", _array(value))
    if isinstance(value, Mapping):
        return _item(b"m", _map(value, depth))
    if isinstance(value, list | tuple):
        return _item(b"l", b"".join(_encode(part, depth - 1) for part in value))
    if hasattr(value, "__index__"):  # includes numpy integers
        return _item(b"i", _int(operator.index(value)))
    raise ParameterError(
        f"a value of type {type(value).__name__} cannot be encoded",
        "use None, booleans, numbers, text, bytes, arrays, and lists and maps of them",
    )


def _utf8(text: str) -> bytes:
    """Return text as UTF-8."""
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise ParameterError("text with a lone surrogate cannot be encoded", "use valid text") from None


def _int(value: int) -> bytes:
    """Return an integer in hexadecimal digits."""
    digits = format(value, "x").encode()
    if len(digits) > LONGEST_INT:
        raise ParameterError(
            "an integer is too long to be encoded", f"use at most {LONGEST_INT - 1} hex digits"
        )
    return digits


def _map(value: Mapping[Any, Any], depth: int) -> bytes:
    """Return the content of a map: keys and values, sorted by key."""
    if not all(isinstance(key, str) for key in value):
        raise ParameterError("a map has a key that is not text", "use text keys")
    pairs = sorted(((_utf8(key), part) for key, part in value.items()), key=lambda pair: pair[0])
    return b"".join(_item(b"s", key) + _encode(part, depth - 1) for key, part in pairs)


def _array(value: NDArray[Any]) -> bytes:
    """Return the content of an array: type, shape and little-endian data in C order."""
    little = value.astype(value.dtype.newbyteorder("<"), order="C", copy=False)
    name = little.dtype.str
    if name not in DTYPES:
        raise ParameterError(
            f"an array of type {value.dtype} cannot be encoded", "convert it to another type first"
        )
    return b"".join((_encode(name, 0), _encode(list(value.shape), 1), little.tobytes()))


# -- reading ---------------------------------------------------------------------------------------


def _malformed(why: str) -> ParameterError:
    """Return the error to raise for bytes that `encode` did not write."""
    return ParameterError(
        f"these bytes are not a canonical encoding: {why}", "use another copy of the data"
    )


def _decode(data: memoryview, start: int, end: int, depth: int) -> tuple[Any, int]:
    """Return the value at `start` and the position of its end, which is at most `end`."""
    if depth < 0:
        raise _malformed(f"it is nested more than {DEEPEST} levels deep")
    first = start + _HEAD
    if first > end:
        raise _malformed("it is truncated")
    tag, last = bytes(data[start : start + 1]), first + int.from_bytes(data[start + 1 : first], "little")
    if last > end:
        raise _malformed("a part is longer than the value that contains it")
    if tag == b"l":
        return _parts(data, first, last, depth - 1), last
    if tag == b"m":
        return _read_map(_parts(data, first, last, depth - 1)), last
    if tag == b"a":
        return _read_array(data, first, last), last
    return _read_plain(tag, bytes(data[first:last])), last


def _parts(data: memoryview, start: int, end: int, depth: int) -> list[Any]:
    """Return the values from `start` to `end`."""
    found = []
    while start < end:
        value, start = _decode(data, start, end, depth)
        found.append(value)
    return found


def _read_plain(tag: bytes, content: bytes) -> Any:
    """Return a value that has no parts."""
    if tag == b"n" and not content:
        return None
    if tag == b"o" and content in (b"\0", b"\1"):
        return content == b"\1"
    if tag == b"b":
        return content
    if tag == b"d" and len(content) == 8:
        return struct.unpack("<d", content)[0]
    if tag == b"i" and len(content) <= LONGEST_INT and _INT.fullmatch(content):
        return int(content, 16)
    if tag == b"s":
        try:
            return content.decode()
        except UnicodeDecodeError:
            raise _malformed("a text is not UTF-8") from None
    raise _malformed("a part has an unknown type or invalid content")


def _read_map(parts: list[Any]) -> dict[str, Any]:
    """Return the map of a list of alternating keys and values."""
    keys, values = parts[::2], parts[1::2]
    if len(keys) != len(values) or not all(isinstance(key, str) for key in keys):
        raise _malformed("a map is not made of pairs")
    raw = [key.encode() for key in keys]
    if any(a >= b for a, b in pairwise(raw)):
        raise _malformed("the keys of a map are not sorted, or one occurs twice")
    return dict(zip(keys, values, strict=True))


def _read_array(data: memoryview, start: int, end: int) -> NDArray[Any]:
    """Return the array in the content from `start` to `end`."""
    name, start = _decode(data, start, end, 0)
    shape, start = _decode(data, start, end, 1)
    if not isinstance(name, str) or name not in DTYPES:
        raise _malformed("an array has an unknown type")
    sizes: list[Any] = shape if isinstance(shape, list) else [None]
    dtype = np.dtype(name)
    if len(sizes) > 32 or not all(type(size) is int and 0 <= size < 2**48 for size in sizes):
        raise _malformed("an array has an impossible shape")
    if math.prod(sizes) * dtype.itemsize != end - start:
        raise _malformed("the data of an array does not match its shape")
    if name == "|b1" and any(byte > 1 for byte in set(bytes(data[start:end]))):
        raise _malformed("a boolean is neither 0 nor 1")
    found = np.frombuffer(data[start:end], dtype).reshape(sizes)
    return found.astype(dtype.newbyteorder("="))
