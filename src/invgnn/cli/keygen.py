"""invgnn keygen: make a secret."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from invgnn.cli.console import (
    Json,
    NoPassphrase,
    Overwrite,
    PassphraseFile,
    check_output,
    find_passphrase,
    verb,
)

EXAMPLES = """\b
Examples:
  invgnn keygen -o acme.secret
  INVGNN_PASSPHRASE=... invgnn keygen -o acme.secret --json
"""


@verb
def keygen(
    output: Annotated[
        Path, typer.Option("-o", "--output", metavar="FILE", help="Where to write the secret.")
    ],
    passphrase_file: PassphraseFile = None,
    no_passphrase: NoPassphrase = False,
    overwrite: Overwrite = False,
    json_: Json = False,
) -> Any:
    """Make a secret, sealed with your passphrase.

    A secret is 32 random bytes. Make one per model, or one per licensee: then a leak names who leaked.
    Whoever has it can prove, forge and remove the mark, so keep a copy where you would keep a signing
    key, and make it before you release the model.
    """
    from invgnn.secret import Secret

    check_output(output, overwrite)
    passphrase = None if no_passphrase else find_passphrase(output, passphrase_file, new=True)
    secret = Secret.generate()
    secret.save(output, passphrase, insecure_no_passphrase=no_passphrase, overwrite=overwrite)
    record = {"secret": str(output), "fingerprint": secret.fingerprint, "sealed": not no_passphrase}
    return record, f"wrote {output} (fingerprint {secret.fingerprint})", 0
