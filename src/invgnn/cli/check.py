"""invgnn check: check who signed a public file, and when."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from invgnn.cli.console import check_input, fold, verb
from invgnn.cli.options import Json, TsaRoots

EXIT_CODES = """\b
Exit codes:
    0  the file is as it was signed, by the expected key, and its date counts
    2  error, explained on standard error: altered, another key, a wrong date
  130  interrupted
"""
EXAMPLES = """\b
Examples:
  invgnn check judgement.json --by judge.key.pub.json
  invgnn check claim.json --by acme.key.pub.json --tsa-root tsa.pem
"""


@verb
def check(
    file: Annotated[
        Path,
        typer.Argument(metavar="FILE", help="Claim, challenge, judgement, revocation or public identity."),
    ],
    by: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Public identity of whoever should have signed it."),
    ] = None,
    tsa_root: TsaRoots = None,
    json_: Json = False,
) -> Any:
    """Check who signed a public file, and when. Needs no network and no secret.

    The form of the file, its signature and its agreement with itself are checked. With --by, the signature
    has to be by that key; otherwise you only learn which key signed. With --tsa-root, its timestamp has to
    be valid under that certificate.
    """
    check_input(file, by, *(tsa_root or ()))

    from invgnn.court.documents import load_document
    from invgnn.court.grounds import iso
    from invgnn.court.identity import load_public
    from invgnn.court.reading import read_public
    from invgnn.court.timestamp import load_roots
    from invgnn.errors import FileError, TimestampError

    held = load_document(file, None)
    read_public(file, held.kind)
    if by is not None and load_public(by).key != held.key:
        raise FileError(f"{file} was signed by another key than {by}", "ask its author for the right file")
    roots = [one for path in tsa_root or () for one in load_roots(path)]
    stamp = held.stamp(roots) if roots else None
    if roots and stamp is None:
        raise TimestampError(f"{file} has no timestamp", "ask its author for a dated copy")
    record = {
        "file": str(file),
        "kind": held.kind,
        "digest": held.digest,
        "key": held.key,
        "expected_key": by is not None,
        "dated": None if stamp is None else iso(stamp.time),
    }
    lines = [
        f"{file}: valid {held.kind}, digest {held.digest}",
        f"signed by {held.key}" + (f", the key of {load_public(by).payload['name']}" if by else ""),
        f"existed on {iso(stamp.time)}, dated by {stamp.authority}" if stamp else "date not checked",
    ]
    return record, fold("\n".join(lines), 2), 0
