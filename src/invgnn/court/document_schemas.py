"""The published form of signed documents: media types, JSON Schemas, and texts that people read."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from importlib import resources
from typing import Any

from invgnn.errors import ParameterError

KINDS = ("claim", "challenge", "identity", "judgement", "revocation")
"""The kinds of documents."""
_TEXTS = {
    "challenge": ("case",),
    "claim": ("owner/name", "label"),
    "identity": ("name",),
    "judgement": ("case", "judge/name", "claim/owner", "claim/label"),
    "revocation": ("owner",),
}
"""Texts that people read in one line: no control characters, line breaks or changes of direction."""


def media_type(kind: str) -> str:
    """Return the versioned media type of a kind of document."""
    return f"application/vnd.invgnn.{kind}.v1+json"


def validate(kind: str, record: Any) -> None:
    """Check JSON values against the published schema of a kind of document.

    Raises:
        ParameterError: If they do not fit. The message names the first part that does not.
    """
    try:
        error = next(iter(_validator(kind).iter_errors(record)), None)
    except RecursionError:  # the message of an error shows the value
        raise ParameterError("the document is nested too deeply", f"see the schema of {kind}") from None
    if error is not None:
        at = "/".join(map(str, error.absolute_path)) or "the document"
        raise ParameterError(f"{at[:200]}: {_shortened(error.message)}", f"see the schema of {kind}")


def _shortened(text: str) -> str:
    """Return a message without the middle: a value comes first, and what is wrong with it last."""
    return text if len(text) <= 200 else f"{text[:100]} … {text[-80:]}"


@lru_cache(maxsize=len(KINDS))
def schema(kind: str) -> dict[str, Any]:
    """Return the JSON Schema of a kind of document.

    Raises:
        ParameterError: If there is no such kind.
    """
    if kind not in KINDS:
        raise ParameterError(f"unknown kind of document {kind!r}", f"choose one of {', '.join(KINDS)}")
    file = resources.files("invgnn.court") / "schemas" / f"{kind}.v1.schema.json"
    found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return found


@lru_cache(maxsize=len(KINDS))
def _validator(kind: str) -> Any:
    """Return the validator of a kind of document."""
    try:
        from jsonschema import Draft202012Validator, validators
    except ImportError:
        raise ParameterError("documents need jsonschema", "pip install 'invgnn[court]'") from None
    whole = Draft202012Validator.TYPE_CHECKER.redefine("integer", lambda _, value: type(value) is int)
    strict = validators.extend(Draft202012Validator, type_checker=whole)  # 1.0 is no integer here
    return strict(schema(kind))


def check_texts(kind: str, payload: Mapping[str, Any]) -> None:
    """Refuse names that could pass for other lines of an output."""
    for path in _TEXTS[kind]:
        found: Any = payload
        for name in path.split("/"):
            found = found[name]
        if not found.isprintable():
            raise ParameterError(f"{path} has characters that cannot be printed", "use plain text")
