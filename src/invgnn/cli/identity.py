"""invgnn identity: create the keys of an owner or a judge."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from invgnn.cli.console import check_output, find_passphrase, verb
from invgnn.cli.options import Json, NoPassphrase, Overwrite, PassphraseFile

EXAMPLES = """\b
Examples:
  invgnn identity --name "Acme Ltd" -o acme.key
  invgnn identity --name "District Court 5" -o judge.key
"""


@verb
def identity(
    name: Annotated[str, typer.Option(metavar="NAME", help="Name that others see.")],
    output: Annotated[
        Path, typer.Option("-o", "--output", metavar="FILE", help="Where to write the private keys.")
    ],
    passphrase_file: PassphraseFile = None,
    no_passphrase: NoPassphrase = False,
    overwrite: Overwrite = False,
    json_: Json = False,
) -> Any:
    """Create the keys of an owner or a judge.

    An owner signs claims, openings and revocations with them. A judge signs judgements, and openings are
    encrypted to the judge. Publish the public part where others can find out that it is yours: a
    signature shows which key signed, not who holds the key.

    Writes the private keys to FILE, encrypted with your passphrase, and the public part to FILE.pub.json.
    """
    from invgnn.court.identity import Identity

    beside = output.with_name(f"{output.name}.pub.json")
    for path in (output, beside):
        check_output(path, overwrite)
    passphrase = None if no_passphrase else find_passphrase(output, passphrase_file, new=True)
    made = Identity.generate(name)
    made.save(output, passphrase, insecure_no_passphrase=no_passphrase, overwrite=overwrite)
    made.public().save(beside, overwrite=overwrite)
    record = {
        "identity": str(output),
        "public": str(beside),
        "name": name,
        "key": made.key,
        "sealed": not no_passphrase,
    }
    return record, f"wrote {output} and {beside}\nkey {made.key}", 0
