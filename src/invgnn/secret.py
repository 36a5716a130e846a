"""Secrets of 32 bytes, and the random streams derived from them.

A stream is derived under a label and gives the same bits on every machine. No global random state is read
or written. `docs/reference/file-format.md` defines every byte. Changing this breaks every mark in the
field; golden vectors in the tests guard it.
"""

from __future__ import annotations

import builtins
import hashlib
import hmac
import io
import operator
import os
from typing import Any, NoReturn

import numpy as np
from numpy.typing import ArrayLike, NDArray

from invgnn.concealed import conceal
from invgnn.errors import FileError, ParameterError
from invgnn.storage import container
from invgnn.storage.atomic import AnyPath
from invgnn.storage.encoding import encode
from invgnn.storage.encryption import STRONG, Kdf, require_passphrase

SIZE = 32
"""Number of bytes of a secret, and of the key of a stream."""
BLOCK = 4096
"""Number of bytes per call of SHAKE-256; part of the definition of a stream."""


class Stream:
    """An endless stream of bytes from SHAKE-256, with exact sampling from it.

    Unlike numpy's generators, a stream returns the same numbers in every version. The numbers depend on
    what was drawn before: use a separate stream, with its own label, for each purpose. The methods raise
    `ParameterError` for an argument out of range.

    Args:
        key: The key of the stream, 32 bytes.
    """

    __slots__ = ("_block", "_key", "_rest")

    def __init__(self, key: bytes) -> None:
        self._key = key
        self._block = 0
        self._rest = b""

    @property
    def key(self) -> builtins.bytes:
        """The key: whoever has it knows this stream and no other."""
        return self._key

    def bytes(self, n: int) -> builtins.bytes:
        """Return the next `n` bytes."""
        size, drawn = _count(n), io.BytesIO()  # the repr of a buffer does not show its content
        have = drawn.write(self._rest)
        while have < size:
            index = self._block.to_bytes(8, "little")
            have += drawn.write(hashlib.shake_256(self._key + index).digest(BLOCK))
            self._block += 1
        self._rest = drawn.getvalue()[size:]
        return drawn.getvalue()[:size]

    def words(self, n: int) -> NDArray[np.uint64]:
        """Return the next `n` unsigned 64-bit integers, each from 8 bytes in little-endian order."""
        return np.frombuffer(self.bytes(8 * _count(n)), "<u8").astype(np.uint64, copy=False)

    def below(self, bounds: ArrayLike) -> NDArray[np.int64]:
        """Draw an exactly uniform integer from 0 to bound - 1 for each bound.

        Every element takes one word, in order. Words in the incomplete last run of `bound` numbers below
        2^64 are rejected; their elements take another word in the next round.

        Args:
            bounds: Integers from 1 to 2^63 - 1.

        Returns:
            The integers, in an array with the shape of `bounds`.
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
        """Return the integers 0 to n - 1 in uniformly random order (Fisher-Yates, from the end)."""
        order = list(range(_count(n)))
        tops = np.arange(n - 1, 0, -1)
        for i, j in zip(tops.tolist(), self.below(tops + 1).tolist(), strict=True):
            order[i], order[j] = order[j], order[i]
        return np.array(order, np.int64)

    def signs(self, n: int) -> NDArray[np.int8]:
        """Return `n` uniform signs, +1 or -1, from the bits of the next bytes, lowest bit first."""
        packed = np.frombuffer(self.bytes((_count(n) + 7) // 8), np.uint8)
        return np.unpackbits(packed, bitorder="little", count=n).astype(np.int8) * np.int8(2) - 1

    def balanced(self, m: int) -> NDArray[np.int64]:
        """Draw a uniformly random vector of m/2 ones and m/2 zeros."""
        if _count(m) % 2 or m == 0:
            raise ParameterError(f"{m} bits cannot be balanced", "Use an even number, at least 2.")
        return (self.permutation(m) < m // 2).astype(np.int64)


def _incomplete(words: NDArray[np.uint64], bounds: NDArray[np.uint64]) -> NDArray[np.int64]:
    """Return which words fall into the incomplete last run of `bound` numbers below 2^64."""
    top = np.flatnonzero(
        words > np.uint64(0) - bounds
    )  # that run starts above 2^64 - bound, so this is rare
    bound = bounds[top]
    excess = (np.uint64(0) - bound) % bound  # 2^64 mod bound, within 64 bits
    return top[words[top] > np.uint64(2**64 - 1) - excess]


class Secret:
    """The 32 secret bytes from which a mark is derived.

    Anyone who has these bytes can prove, forge and remove the mark. They are never displayed and cannot be
    pickled. Store them with `save`; `bytes(secret)` returns them.

    Args:
        data: The 32 bytes.

    Raises:
        ParameterError: If `data` is not exactly 32 bytes.
    """

    __slots__ = ("_bytes",)

    def __init__(self, data: bytes) -> None:
        """Store the bytes of a secret, concealed."""
        if not isinstance(data, bytes) or len(data) != SIZE:
            del data  # a traceback may show it, and it may be a secret in another form
            raise ParameterError(
                f"a secret must have exactly {SIZE} bytes", "Create one with Secret.generate()."
            )
        self._bytes = conceal(data)

    @classmethod
    def generate(cls) -> Secret:
        """Generate a new secret from the randomness of the operating system."""
        return cls(os.urandom(SIZE))

    @classmethod
    def load(cls, path: AnyPath, passphrase: str | None = None) -> Secret:
        """Read a secret from a file that `save` wrote.

        Args:
            path: The file.
            passphrase: The passphrase of the file. Ignored if the file is not sealed.

        Returns:
            The secret.

        Raises:
            FileError: If the file does not exist, is damaged, or does not contain a secret.
            PassphraseError: If the passphrase is missing or wrong.
        """
        passphrase = conceal(passphrase)
        held = container.read(path, "secret", passphrase=passphrase).tensors
        form = {name: (array.dtype.name, array.shape) for name, array in held.items()}
        if form != {"secret": ("uint8", (SIZE,))}:
            raise FileError(f"{path} contains no secret of {SIZE} bytes", "Use another copy of the file.")
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
        """Write the secret to a file that only its owner may read, encrypted with the passphrase.

        Args:
            path: Where to write the file.
            passphrase: The passphrase; None only together with `insecure_no_passphrase`.
            insecure_no_passphrase: Write the secret without encryption.
            overwrite: Replace an existing file at `path`.
            _kdf: The parameters of the key derivation. Only tests use weaker ones.

        Raises:
            PassphraseError: If the passphrase is missing, empty or not text.
            ParameterError: If both a passphrase and `insecure_no_passphrase` are given.
            ExistingFileError: If something exists at `path` and `overwrite` is false.
            FileError: If the file cannot be written.
        """
        passphrase, sealed = conceal(passphrase), not insecure_no_passphrase
        self.seal(path, passphrase, "secret", "secret", {}, sealed, overwrite=overwrite, _kdf=_kdf)

    def seal(
        self,
        path: AnyPath,
        passphrase: str | None,
        kind: str,
        name: str,
        body: dict[str, Any],
        sealed: bool = True,
        **options: Any,
    ) -> None:
        """Write the secret into a private file of another kind; `save` writes it alone.

        Args:
            path: Where to write the file.
            passphrase: As in `save`.
            kind: The kind of the file.
            name: The name of the secret in it.
            body: What the file says besides.
            sealed: Whether the file is encrypted; a passphrase is needed then, and not allowed otherwise.
            **options: As in `save`.
        """
        passphrase = conceal(passphrase)
        require_passphrase(passphrase, not sealed)
        container.write(
            path,
            kind,
            body,
            {name: np.frombuffer(self._bytes, np.uint8)},  # in no variable, which a traceback could show
            passphrase=passphrase,
            private=True,
            **options,
        )

    def derive(self, label: str, *parts: str | bytes | int) -> Stream:
        """Derive the stream of this secret for one purpose.

        Args:
            label: The purpose.
            *parts: Values to which the stream is bound.

        Returns:
            The stream.

        Raises:
            ParameterError: If a part is neither text nor bytes nor an integer.
        """
        return Stream(_hash("invgnn/1", self._bytes, label, *parts))

    @property
    def fingerprint(self) -> str:
        """Eight hex digits that distinguish secrets and reveal nothing about them."""
        return _hash("invgnn/1/fingerprint", self._bytes)[:4].hex()

    def __bytes__(self) -> bytes:
        return bytes(self._bytes)  # an explicit request for the plain bytes

    def __repr__(self) -> str:
        return f"<Secret {self.fingerprint if hasattr(self, '_bytes') else 'without bytes'}>"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Secret):
            return NotImplemented
        return hmac.compare_digest(self._bytes, other._bytes)

    __hash__ = None  # type: ignore[assignment]  # the time of a hash lookup would depend on the bytes

    def __reduce__(self) -> NoReturn:
        raise TypeError("a Secret cannot be pickled or copied; use save and load")


def public_stream(label: str, *parts: str | bytes | int) -> Stream:
    """Return the stream for a public choice, the same for everyone; arguments as in `Secret.derive`."""
    return Stream(_hash("invgnn/1", b"", label, *parts))


def _hash(*items: str | bytes | int) -> bytes:
    """Return 32 bytes that bind the items, each with its type and length."""
    return conceal(hashlib.shake_256(b"".join([_encode(item) for item in items])).digest(SIZE))


def _encode(item: str | bytes | int) -> bytes:
    """Return the canonical bytes of one item."""
    if isinstance(item, str | bytes):
        return encode(item)
    try:
        if not isinstance(item, bool):
            return encode(operator.index(item))  # includes numpy integers
    except TypeError:  # for example an array of several integers
        pass
    raise ParameterError(
        f"cannot derive a stream from a value of type {type(item).__name__}",
        "Use text, bytes or whole numbers.",
    )


def _count(n: int) -> int:
    """Return a count as an int; raise `ParameterError` unless it is an integer of at least 0."""
    if isinstance(n, bool) or not hasattr(n, "__index__") or n < 0:
        raise ParameterError(f"{n!r} is not a count", "Pass a whole number, 0 or more.")
    return operator.index(n)
