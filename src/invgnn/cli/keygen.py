"""invgnn keygen: make a secret."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from invgnn.cli.console import Json, NoPassphrase, Overwrite, PassphraseFile, find_passphrase, verb


@verb
def keygen(
    output: Annotated[Path, typer.Option("-o", "--output", help="Where to write the secret.")],
    passphrase_file: PassphraseFile = None,
    no_passphrase: NoPassphrase = False,
    overwrite: Overwrite = False,
    json_: Json = False,
) -> Any:
    """Make a secret: 32 random bytes, encrypted with your passphrase.

    Use one secret per model, or one per licensee: then a leak names who leaked. Whoever has the secret
    can prove, forge and remove the mark; keep a copy where you would keep a signing key.

    Example: `invgnn keygen -o acme.secret`
    """
    from invgnn.secret import Secret

    secret = Secret.generate()
    passphrase = None if no_passphrase else find_passphrase(passphrase_file, new=True)
    secret.save(output, passphrase, insecure_no_passphrase=no_passphrase, overwrite=overwrite)
    record = {"secret": str(output), "fingerprint": secret.fingerprint, "sealed": not no_passphrase}
    return record, f"wrote {output} (fingerprint {secret.fingerprint})", 0
