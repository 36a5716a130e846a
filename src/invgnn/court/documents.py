"""Signed public documents: canonical JSON with a media type, a JSON Schema, and an Ed25519 signature.

A document file is the canonical JSON of the document and one line break. Any other bytes are refused, so a
document has exactly one form and every byte of it is signed. The bytes that are signed are part of the
format: changing them breaks every document in the field.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, NoReturn, Protocol, TypeVar

from invgnn.court.document_schemas import KINDS, check_texts, media_type, validate
from invgnn.court.signatures import verify_signature
from invgnn.court.timestamp import Roots, Stamp, check_token, request_token
from invgnn.errors import FileError, ParameterError
from invgnn.storage import encoding
from invgnn.storage.atomic import AnyPath, read_bytes, write_bytes
from invgnn.storage.canonical_json import canonical_json

MOST_BYTES = 1 << 24
"""Largest size of a document."""
T = TypeVar("T")


class Signer(Protocol):
    """Whoever can sign."""

    @property
    def key(self) -> str:
        """The public key, in hex."""

    def sign(self, message: bytes) -> bytes:
        """Return the signature of a message."""


@dataclass(frozen=True)
class Document:
    """A signed document. One with a wrong signature or of another form cannot be constructed.

    Attributes:
        kind: One of `KINDS`.
        payload: What is stated.
        key: The Ed25519 key of the signer, in hex.
        signature: The signature of kind and payload, in hex.
        token: A timestamp token for payload and signature; None without one.
        token_signature: The signer's signature of the token, in hex; None without one.

    Raises:
        ParameterError: If a part does not fit the schema, or a signature is wrong.
    """

    kind: str
    payload: Mapping[str, Any]
    key: str
    signature: str
    token: bytes | None = None
    token_signature: str | None = None

    def __post_init__(self) -> None:
        validate(self.kind, self.record())
        check_texts(self.kind, self.payload)
        verify_signature(self.key, self.signature, _signed(self.kind, self.payload), "the document")
        if self.token is not None and self.token_signature is not None:
            verify_signature(
                self.key, self.token_signature, _countersigned(self.signature, self.token), "its token"
            )

    @classmethod
    def sign(cls, kind: str, payload: Mapping[str, Any], signer: Signer) -> Document:
        """Return a signed document.

        Args:
            kind: One of `KINDS`.
            payload: JSON values that fit the schema of the kind.
            signer: Whose key signs it.
        """
        return cls(kind, dict(payload), signer.key, signer.sign(_signed(kind, payload)).hex())

    @property
    def message(self) -> bytes:
        """What a timestamp is for: kind, payload and signature."""
        return encoding.encode(
            ["invgnn/dated/1", media_type(self.kind), canonical_json(self.payload), self.signature]
        )

    @property
    def digest(self) -> str:
        """The digest by which other files refer to the document; a timestamp does not change it."""
        return encoding.digest_encoded("invgnn/document/1", self.message)

    def dated(self, url: str, signer: Signer) -> Document:
        """Return the document with a timestamp from an authority.

        Args:
            url: Address of the authority.
            signer: Who signed the document.
        """
        token = request_token(url, self.message)
        countersigned = signer.sign(_countersigned(self.signature, token)).hex()
        return replace(self, token=token, token_signature=countersigned)

    def stamp(self, roots: Roots) -> Stamp | None:
        """Return what the timestamp proves; None if the document has none.

        Args:
            roots: The trusted root certificates.

        Raises:
            TimestampError: If there is a timestamp and it proves nothing under these roots.
        """
        return None if self.token is None else check_token(self.token, self.message, roots)

    def record(self) -> dict[str, Any]:
        """Return the document as JSON values."""
        dated = (
            None
            if self.token is None
            else {"token": base64.b64encode(self.token).decode(), "signature": self.token_signature}
        )
        return {
            "mediaType": media_type(self.kind),
            "payload": self.payload,
            "signature": {"key": self.key, "value": self.signature},
            "timestamp": dated,
        }

    @property
    def bytes(self) -> bytes:
        """The bytes of the document's file."""
        return canonical_json(self.record()) + b"\n"

    def save(self, path: AnyPath, *, overwrite: bool = False) -> None:
        """Write the document to a file that everybody may read.

        Args:
            path: Where to write it.
            overwrite: Whether to replace an existing file.
        """
        write_bytes(path, self.bytes, False, overwrite)


def load_document(path: AnyPath, kind: str | None) -> Document:
    """Read a document, and check its form and its signatures.

    Args:
        path: The file.
        kind: The kind that it must have; None for any.

    Raises:
        FileError: If the file does not exist, is of another kind, or was altered.
    """
    return parse_document(bytes(read_bytes(path, MOST_BYTES)), kind, str(path))


def load_checked(path: AnyPath, kind: str, make: Callable[[Document], T]) -> T:
    """Read a document, and return what is made of it once its content is checked, too.

    Args:
        path: The file.
        kind: The kind that it must have.
        make: Returns the checked object, or raises an error if the content contradicts itself.

    Raises:
        FileError: If the file does not exist, is of another kind, was altered, or contradicts itself.
    """
    held = load_document(path, kind)
    try:
        return make(held)
    except (ParameterError, TypeError, ValueError, LookupError, ArithmeticError, AttributeError) as error:
        why = getattr(error, "message", str(error))
        raise FileError(f"{path} is no valid {kind}: {why[:300]}", _ADVICE) from None


def parse_document(data: bytes, kind: str | None, name: str) -> Document:
    """Return the document in the bytes of a file.

    Args:
        data: The bytes.
        kind: The kind that it must have; None for any.
        name: Name of the file, for messages.

    Raises:
        FileError: If these are not exactly the bytes of a signed document of this kind.
    """
    record = _parsed(data, name)
    found = _kind_of(record)
    if found is None or kind not in (None, found):
        wanted = _with_article(kind) if kind else "a document of invgnn"
        seen = _with_article(found) if found else "something else"
        raise FileError(f"{name} is {seen}, not {wanted}", _ADVICE)
    try:
        validate(found, record)
        dated = record["timestamp"]
        token = None if dated is None else _base64(dated["token"])
        signature = record["signature"]
        held = Document(
            found,
            record["payload"],
            signature["key"],
            signature["value"],
            token,
            None if dated is None else dated["signature"],
        )
        sound = held.bytes == data
    except ParameterError as error:
        raise FileError(f"{name} is no valid {found}: {error.message}", _ADVICE) from None
    if not sound:
        raise FileError(f"{name} is not in canonical form, so it was altered", _ADVICE)
    return held


_ADVICE = "use another copy of the file, or ask its author for a new one"


def _parsed(data: bytes, name: str) -> Any:
    """Return the JSON value of a file."""
    if len(data) > MOST_BYTES:
        raise FileError(f"{name} has more than {MOST_BYTES} bytes", _ADVICE)
    try:
        return json.loads(data.decode("utf-8"), parse_constant=_refuse)
    except (ValueError, RecursionError) as error:  # a UnicodeDecodeError is a ValueError
        raise FileError(f"{name} is not JSON: {str(error)[:200]}", _ADVICE) from None


def _with_article(kind: str) -> str:
    """Return the kind of a document with its article."""
    return f"{'an' if kind[0] in 'aeiou' else 'a'} {kind}"


def _refuse(constant: str) -> NoReturn:
    """Refuse NaN and infinity, which JSON has not."""
    raise ValueError(f"{constant} is not a JSON number")


def _kind_of(record: Any) -> str | None:
    """Return the kind that the media type of a JSON value names."""
    named = record.get("mediaType") if isinstance(record, dict) else None
    return next((kind for kind in KINDS if named == media_type(kind)), None)


def _base64(text: str) -> bytes:
    """Return the bytes of a base64 text."""
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise ParameterError(f"the token is not base64: {error}", _ADVICE) from None


def _signed(kind: str, payload: Mapping[str, Any]) -> bytes:
    """Return the bytes that the signature of a document covers."""
    return encoding.encode(["invgnn/signed/1", media_type(kind), canonical_json(payload)])


def _countersigned(signature: str, token: bytes) -> bytes:
    """Return the bytes that the signature of a token covers."""
    return encoding.encode(["invgnn/countersigned/1", signature, token])
