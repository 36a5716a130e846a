"""A secret of 32 bytes, and every choice derived from it under a label, bit for bit on any machine.

No global random state is read or written. `docs/reference/file-format.md` defines every byte.
"""

from __future__ import annotations

import builtins
import hashlib
import hmac
import io
import operator
import os
from typing import NoReturn

import numpy as np
from numpy.typing import ArrayLike, NDArray

from invgnn.concealed import conceal
from invgnn.errors import FileError, ParameterError
from invgnn.storage import container
from invgnn.storage.atomic import AnyPath
from invgnn.storage.encoding import encode
from invgnn.storage.encryption import STRONG, Kdf, require_passphrase

SIZE = 32
"""Bytes of a secret, and of the key of a stream."""
BLOCK = 4096
"""Bytes squeezed at once; part of the definition of a stream."""


class Stream:
    """An endless stream of bytes from SHAKE-256, and exact sampling from it.

    numpy's generators do not promise the same numbers in every version; this one does. What is drawn
    depends on what was drawn before: take a new stream, under its own label, for each use. The methods
    raise `ParameterError` for an argument out of range.
    """

    __slots__ = ("_block", "_key", "_rest")

    def __init__(self, key: bytes) -> None:
        self._key = key
        self._block = 0
        self._rest = b""

    def bytes(self, n: int) -> builtins.bytes:
        """Return the next `n` bytes."""
        size, drawn = _count(n), io.BytesIO()  # a buffer does not show its content
        have = drawn.write(self._rest)
        while have < size:
            index = self._block.to_bytes(8, "little")
            have += drawn.write(hashlib.shake_256(self._key + index).digest(BLOCK))
            self._block += 1
        self._rest = drawn.getvalue()[size:]
        return drawn.getvalue()[:size]

    def words(self, n: int) -> NDArray[np.uint64]:
        """Return the next `n` numbers of 64 bits, each from 8 bytes, little-endian."""
        return np.frombuffer(self.bytes(8 * _count(n)), "<u8").astype(np.uint64, copy=False)

    def below(self, bounds: ArrayLike) -> NDArray[np.int64]:
        """Return for each bound a number from 0 to bound - 1, exactly uniform, in an array of that shape.

        Every element takes one word, in order. Those whose word falls into the incomplete last run of
        `bound` numbers below 2^64 take another in the next round.
        """
        given = np.asarray(bounds)
        if given.size and (given.dtype.kind not in "iu" or given.min() < 1 or given.max() >= 2**63):
            raise ParameterError(
                "every bound must be a whole number from 1 to 2^63 - 1", "Check the bounds."
            )
        flat = given.astype(np.uint64).ravel()
        word = self.words(flat.size)
        result = (word % flat).astype(np.int64)
        left = _incomplete(word, flat)
        while left.size:
            bound, word = flat[left], self.words(left.size)
            result[left] = word % bound
            left = left[_incomplete(word, bound)]
        return result.reshape(given.shape)

    def permutation(self, n: int) -> NDArray[np.int64]:
        """Return the numbers 0 to n - 1 in uniformly random order (Fisher-Yates, from the top)."""
        order = list(range(_count(n)))
        tops = np.arange(n - 1, 0, -1)
        for i, j in zip(tops.tolist(), self.below(tops + 1).tolist(), strict=True):
            order[i], order[j] = order[j], order[i]
        return np.array(order, np.int64)

    def signs(self, n: int) -> NDArray[np.int8]:
        """Return `n` fair signs, +1 or -1: the bits of the next bytes, the lowest bit first."""
        packed = np.frombuffer(self.bytes((_count(n) + 7) // 8), np.uint8)
        return np.unpackbits(packed, bitorder="little", count=n).astype(np.int8) * np.int8(2) - 1

    def balanced(self, m: int) -> NDArray[np.int64]:
        """Return a vector of m/2 ones and m/2 zeros, each such vector equally likely."""
        if _count(m) % 2 or m == 0:
            raise ParameterError(f"{m} bits cannot be balanced", "Use an even number, at least 2.")
        return (self.permutation(m) < m // 2).astype(np.int64)


def _incomplete(words: NDArray[np.uint64], bounds: NDArray[np.uint64]) -> NDArray[np.int64]:
    """Return which words fall into the incomplete last run of `bound` numbers below 2^64."""
    top = np.flatnonzero(words > np.uint64(0) - bounds)  # it begins above 2^64 - bound: hardly ever
    bound = bounds[top]
    excess = (np.uint64(0) - bound) % bound  # 2^64 mod bound, without leaving 64 bits
    return top[words[top] > np.uint64(2**64 - 1) - excess]


class Secret:
    """The 32 bytes that make a mark yours.

    Whoever has them can prove, forge and remove the mark. They are never shown and never pickled. Keep them
    with `save`; `bytes(secret)` returns them.
    """

    __slots__ = ("_bytes",)

    def __init__(self, data: bytes) -> None:
        """Take the bytes of a secret.

        Raises:
            ParameterError: If they are not exactly 32 bytes.
        """
        if not isinstance(data, bytes) or len(data) != SIZE:
            del data  # a traceback may show it, and it may be a secret in another form
            raise ParameterError(f"a secret is exactly {SIZE} bytes", "Make one with Secret.generate().")
        self._bytes = conceal(data)

    @classmethod
    def generate(cls) -> Secret:
        """Return a new secret from the randomness of the operating system."""
        return cls(os.urandom(SIZE))

    @classmethod
    def load(cls, path: AnyPath, passphrase: str | None = None) -> Secret:
        """Read the secret in a file that `save` wrote.

        Args:
            path: The file.
            passphrase: What the file was sealed with. Ignored if it is not sealed.

        Raises:
            FileError: If there is no such file, or it is damaged or holds no secret.
            PassphraseError: If the passphrase is missing or wrong.
        """
        passphrase = conceal(passphrase)
        held = container.read(path, "secret", passphrase=passphrase).tensors
        form = {name: (array.dtype.name, array.shape) for name, array in held.items()}
        if form != {"secret": ("uint8", (SIZE,))}:
            raise FileError(f"{path} holds no secret of {SIZE} bytes", "Use another copy of it.")
        return cls(held["secret"].tobytes())

    def save(
        self,
        path: AnyPath,
        passphrase: str | None,
        *,
        insecure_no_passphrase: bool = False,
        overwrite: bool = False,
        _kdf: Kdf = STRONG,  # weaker only in tests
    ) -> None:
        """Write a file that only its owner may read, sealed with the passphrase.

        Args:
            path: Where to write it.
            passphrase: What opens the file; None only with `insecure_no_passphrase`.
            insecure_no_passphrase: Write the secret in the clear.
            overwrite: Replace what exists at `path`.

        Raises:
            PassphraseError: If there is no passphrase, or it is not text.
            ParameterError: If there is a passphrase and `insecure_no_passphrase` too.
            ExistingFileError: If something exists at `path` and `overwrite` is false.
            FileError: If the file cannot be written.
        """
        passphrase = conceal(passphrase)
        require_passphrase(passphrase, insecure_no_passphrase)
        container.write(
            path,
            "secret",
            {},
            {"secret": np.frombuffer(self._bytes, np.uint8)},
            passphrase=passphrase,
            private=True,
            overwrite=overwrite,
            _kdf=_kdf,
        )

    def derive(self, label: str, *parts: str | bytes | int) -> Stream:
        """Return the stream of this secret for one purpose, bound to the parts.

        Raises:
            ParameterError: If a part is neither text nor bytes nor a whole number.
        """
        return Stream(_hash("invgnn/1", self._bytes, label, *parts))

    @property
    def fingerprint(self) -> str:
        """Eight hex digits that tell secrets apart and give nothing away."""
        return _hash("invgnn/1/fingerprint", self._bytes)[:4].hex()

    def __bytes__(self) -> bytes:
        return bytes(self._bytes)  # plain: who asks for them may see them

    def __repr__(self) -> str:
        return f"<Secret {self.fingerprint if hasattr(self, '_bytes') else 'without bytes'}>"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Secret):
            return NotImplemented
        return hmac.compare_digest(self._bytes, other._bytes)

    __hash__ = None  # type: ignore[assignment]  # a look-up by hash takes a time that depends on the bytes

    def __reduce__(self) -> NoReturn:
        raise TypeError("a Secret is not pickled or copied; use save and load")


def public_stream(label: str, *parts: str | bytes | int) -> Stream:
    """Return the stream for a choice that is no secret: the same for everyone.

    Raises:
        ParameterError: If a part is neither text nor bytes nor a whole number.
    """
    return Stream(_hash("invgnn/1", b"", label, *parts))


def _hash(*items: str | bytes | int) -> bytes:
    """Return 32 bytes that bind the items, each with its type and length."""
    return conceal(hashlib.shake_256(b"".join([_encode(item) for item in items])).digest(SIZE))


def _encode(item: str | bytes | int) -> bytes:
    if isinstance(item, str | bytes):
        return encode(item)
    try:
        if not isinstance(item, bool):
            return encode(operator.index(item))  # numpy's integers too
    except TypeError:  # an array of several, say
        pass
    raise ParameterError(f"cannot derive from a {type(item).__name__}", "Use text, bytes or whole numbers.")


def _count(n: int) -> int:
    if isinstance(n, bool) or not hasattr(n, "__index__") or n < 0:
        raise ParameterError(f"{n!r} is no count", "Give a whole number, 0 or more.")
    return operator.index(n)
