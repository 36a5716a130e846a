"""invgnn inspect: what a file is."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from invgnn.cli.console import Json, PassphraseFile, find_passphrase, verb


@verb
def inspect(
    file: Annotated[Path, typer.Argument(help="A secret, mark or model.")],
    unseal: Annotated[
        bool, typer.Option("--unseal", help="Ask for the passphrase and look inside.")
    ] = False,
    passphrase_file: PassphraseFile = None,
    json_: Json = False,
) -> Any:
    """Show what a file is: its kind, version, digest, and what it says about itself.

    Needs no passphrase, and never shows a secret. With `--unseal` a mark's context is shown as well.

    Example: `invgnn inspect acme.mark`
    """
    from invgnn import files

    record = files.peek(file)
    if unseal and record["sealed"]:
        held = files.read(file, record["kind"], passphrase=find_passphrase(passphrase_file))
        shapes = {name: list(t.shape) for name, t in held.tensors.items()}
        record |= {"digest": held.digest, "body": held.body, "tensors": shapes}
    return record, "\n".join(_lines(record)), 0


def _lines(record: dict[str, Any], depth: int = 0) -> list[str]:
    lines = []
    for name, value in record.items():
        if isinstance(value, dict) and value:
            lines += ["  " * depth + f"{name}:", *_lines(value, depth + 1)]
        else:
            lines.append("  " * depth + f"{name}: {value}")
    return lines
