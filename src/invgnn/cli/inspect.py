"""invgnn inspect: what a file is."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from invgnn.cli.console import Json, PassphraseFile, find_passphrase, verb

EXAMPLES = """\b
Examples:
  invgnn inspect acme.model
  invgnn inspect acme.mark --unseal
"""


@verb
def inspect(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="A secret, a mark or a model.", show_default=False)
    ],
    unseal: Annotated[
        bool, typer.Option("--unseal", help="Open it with its passphrase and show more.")
    ] = False,
    passphrase_file: PassphraseFile = None,
    json_: Json = False,
) -> Any:
    """Show what a file is, without a passphrase.

    Of a sealed file you see its kind and the version of the container; with --unseal also how a mark was
    drawn and how it may be read: its format, the number of classes, and whether it keeps labels, by which
    class columns in another order are told. Of a model you see architecture, weights and how it was made.
    A secret is never shown. The file is checked against its digest; nothing in it is run.
    """
    from invgnn.storage import container

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


def _mark(body: dict[str, Any], tensors: dict[str, Any]) -> dict[str, Any]:
    """What a mark is, in short; a stranger may have written the body."""
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
    lines = []
    for name, value in record.items():
        if isinstance(value, dict) and set(value) == {"dtype", "shape"}:
            value = f"{value['dtype']} {value['shape']}"
        if isinstance(value, dict) and value:
            lines += ["  " * depth + f"{name}:", *_lines(value, depth + 1)]
        else:
            lines.append("  " * depth + f"{name}: {value}")
    return lines
