"""invgnn inspect: show what a file contains."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from invgnn.cli.console import find_passphrase, verb
from invgnn.cli.options import Json, PassphraseFile

EXAMPLES = """\b
Examples:
  invgnn inspect acme.model
  invgnn inspect acme.mark --unseal
"""


@verb
def inspect(
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE",
            help="Any file of invgnn: secret, mark, model, identity, token, claim, opening, challenge, "
            "judgement or revocation.",
            show_default=False,
        ),
    ],
    unseal: Annotated[
        bool, typer.Option("--unseal", help="Decrypt the file with its passphrase and show more.")
    ] = False,
    passphrase_file: PassphraseFile = None,
    json_: Json = False,
) -> Any:
    """Show what a file contains, without a passphrase.

    For an encrypted file this is its kind and the version of the container. With --unseal you also see how
    a mark was drawn and how it may be read: its format, its access levels, the number of classes, and
    whether it keeps the labels by which class columns are matched. For a model you see the architecture,
    the weights and how it was made. The secret itself is never shown.

    The file is checked against its digest or signature. Nothing in it is executed.
    """
    from invgnn.storage import container
    from invgnn.storage.atomic import read_bytes

    if bytes(read_bytes(file)[:1]) == b"{":
        return _document(file)
    seen = container.peek(file)
    body, digest, tensors = seen.get("body"), seen.get("digest"), seen.get("tensors")
    if unseal and seen["sealed"]:
        held = container.read(file, seen["kind"], passphrase=find_passphrase(file, passphrase_file))
        body, digest = held.body, held.digest
        tensors = {n: {"dtype": str(t.dtype), "shape": list(t.shape)} for n, t in held.tensors.items()}
    record = {
        "file": str(file),
        "kind": seen["kind"],
        "version": seen["version"],
        "sealed": seen["sealed"],
        "file_digest": digest,
        "mark": _mark(body, tensors or {}) if seen["kind"] == "mark" and body is not None else None,
        "body": body,
        "tensors": None if tensors is None else dict(sorted(tensors.items())),
    }
    return record, "\n".join(_lines({k: v for k, v in record.items() if v is not None})), 0


def _document(file: Path) -> Any:
    """Show a signed public document."""
    from invgnn.court.documents import load_document

    held = load_document(file, None)
    record = {
        "file": str(file),
        "kind": held.kind,
        "digest": held.digest,
        "signed_by": held.key,
        "timestamp": held.token is not None,
        "payload": dict(held.payload),
    }
    return record, "\n".join(_lines(record)), 0


def _mark(body: dict[str, Any], tensors: dict[str, Any]) -> dict[str, Any]:
    """Summarise a mark; its body may come from an untrusted file."""
    context = body.get("context")
    known: dict[str, Any] = context if isinstance(context, dict) else {}
    readings = known.get("readings")
    records = [one for one in readings if isinstance(one, dict)] if isinstance(readings, list) else []
    classes = known.get("classes", next((r["classes"] for r in records if "classes" in r), None))
    return {
        "format": known.get("format"),
        "levels": [record.get("access") for record in records],
        "classes": classes,
        "labels_kept": "labels" in tensors,
        "score_channel": known.get("function"),
        "baseline": "before" in tensors,
    }


def _lines(record: dict[str, Any], depth: int = 0) -> list[str]:
    """Return a nested record as indented lines."""
    lines = []
    for name, value in record.items():
        if isinstance(value, dict) and set(value) == {"dtype", "shape"}:
            value = f"{value['dtype']} {value['shape']}"
        if isinstance(value, str) and len(value) > 400:
            value = f"{value[:60]}... ({len(value)} characters)"
        if isinstance(value, list) and value and all(isinstance(one, dict) for one in value):
            value = {str(number): one for number, one in enumerate(value, 1)}
        if isinstance(value, dict) and value:
            lines += ["  " * depth + f"{name}:", *_lines(value, depth + 1)]
        else:
            lines.append("  " * depth + f"{name}: {value}")
    return lines
