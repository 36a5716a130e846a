"""Values that do not show in tracebacks, logs and listings of local variables.

A frame keeps its local variables when an error leaves it, and many tools print them. A function that takes
a passphrase, or the content of a private file, therefore rebinds it before anything can fail::

    passphrase = conceal(passphrase)

The result behaves like the value: it compares, hashes, encodes and serves as a buffer as before. Its
`repr`, `str` and `format` are `<concealed>`, and so are those of its slices. Every other value computed
from it is not concealed: do not keep such a value in a variable. `bytes(value)` returns plain bytes.

Concealment prevents accidents. It does not protect against other code in the same process.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, SupportsIndex, TypeVar, overload

SHOWN = "<concealed>"
"""The text shown instead of a concealed value."""

_Value = TypeVar("_Value")


class _Concealed:
    """Base class of concealed values, whose text shows nothing. It stores no data itself."""

    __slots__ = ()

    def __repr__(self) -> str:
        return SHOWN

    def __str__(self) -> str:
        return SHOWN

    def __format__(self, form: str) -> str:
        return SHOWN


class ConcealedText(_Concealed, str):
    """Text whose content is not shown."""

    __slots__ = ()

    def __getitem__(self, key: SupportsIndex | slice) -> str:
        """Return a part of the text, concealed as well."""
        return ConcealedText(str.__getitem__(self, key))


class ConcealedBytes(_Concealed, bytes):
    """Bytes whose content is not shown."""

    __slots__ = ()

    @overload
    def __getitem__(self, key: SupportsIndex) -> int: ...
    @overload
    def __getitem__(self, key: slice) -> bytes: ...
    def __getitem__(self, key: SupportsIndex | slice) -> int | bytes:
        """Return one byte as a number, or a part of the bytes, concealed as well."""
        part = bytes.__getitem__(self, key)
        return ConcealedBytes(part) if isinstance(part, bytes) else part


class ConcealedDict(_Concealed, dict[str, _Value]):
    """A dictionary that shows neither its keys nor its values."""

    __slots__ = ()


@overload
def conceal(value: None) -> None: ...
@overload
def conceal(value: str) -> str: ...
@overload
def conceal(value: bytes) -> bytes: ...
@overload
def conceal(value: Mapping[str, _Value]) -> dict[str, _Value]: ...
def conceal(value: Any) -> Any:
    """Return an equal value whose text is `<concealed>`.

    Args:
        value: Text, bytes, a map with text keys, or None. A map is copied; its values are not concealed.

    Returns:
        The concealed value. None and a value that is already concealed are returned unchanged. For a value
            of any other type, passed by mistake, an empty stand-in is returned, which the type check of the
            caller then rejects.
    """
    if value is None or isinstance(value, _Concealed):
        return value
    if isinstance(value, str):
        return ConcealedText(value)
    if isinstance(value, bytes):
        return ConcealedBytes(value)
    return ConcealedDict(value) if isinstance(value, Mapping) else _Concealed()
