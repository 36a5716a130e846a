"""invgnn keygen: create a secret."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from invgnn.cli.console import check_output, find_passphrase, verb
from invgnn.cli.options import Json, NoPassphrase, Overwrite, PassphraseFile

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
    """Create a secret, encrypted with your passphrase.

    A secret is 32 random bytes. Create it before you release the model. Use one secret for each model, or
    one for each licensee: a leaked copy then identifies the licensee. Anyone who has the secret can prove,
    forge and remove the mark. Keep a backup where you would keep a signing key.

    Writes the secret to FILE and prints its fingerprint.
    """
    from invgnn.secret import Secret

    check_output(output, overwrite)
    passphrase = None if no_passphrase else find_passphrase(output, passphrase_file, new=True)
    secret = Secret.generate()
    secret.save(output, passphrase, insecure_no_passphrase=no_passphrase, overwrite=overwrite)
    record = {"secret": str(output), "fingerprint": secret.fingerprint, "sealed": not no_passphrase}
    return record, f"wrote {output} (fingerprint {secret.fingerprint})", 0
