"""invgnn reveal: open a claim to one judge."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from invgnn.cli.console import check_input, check_output, fold, open_passphrase, verb
from invgnn.cli.options import (
    ClaimFile,
    IdentityFile,
    Json,
    KeyPassphraseFile,
    Mark,
    Overwrite,
    PassphraseFile,
)
from invgnn.errors import ParameterError

EXAMPLES = """\b
Examples:
  invgnn reveal --claim claim.json --mark acme.mark --key acme.key \\
      --judge judge.key.pub.json --case "5 O 17/26" -o acme.opening
  invgnn reveal --claim claim.json --mark acme.mark --key acme.key \\
      --judge judge.key.pub.json --challenge challenge.json -o acme.opening
"""


@verb
def reveal(
    claim: ClaimFile,
    mark: Mark,
    key: IdentityFile,
    judge: Annotated[
        Path, typer.Option(metavar="FILE", help="Public identity of the judge, a file .pub.json.")
    ],
    output: Annotated[
        Path, typer.Option("-o", "--output", metavar="FILE", help="Where to write the opening.")
    ],
    case: Annotated[
        str | None, typer.Option(metavar="NAME", help="The judge's name of the case.", show_default=False)
    ] = None,
    prefix: Annotated[
        bool,
        typer.Option(
            "--prefix", help="Reveal only the first carriers in the secret's order, half of them."
        ),
    ] = False,
    challenge: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Reveal only the carriers that the judge drew in this file."),
    ] = None,
    passphrase_file: PassphraseFile = None,
    key_passphrase_file: KeyPassphraseFile = None,
    overwrite: Overwrite = False,
    json_: Json = False,
) -> Any:
    """Open a claim to one judge, for one case.

    By default this reveals the secret: the judge regenerates the whole mark and can decide, but could also
    forge or remove the mark from then on. With --prefix or --challenge it reveals some carriers with their
    bits, which is evidence but never enough for owned.

    Writes the opening to FILE. It is encrypted to the judge: nobody else can read it, you neither.
    """
    check_input(claim, mark, key, judge, challenge)
    check_output(output, overwrite)
    if (case is None) == (challenge is None) or (prefix and challenge is not None):
        raise ParameterError(
            "give --case, or --challenge, which names its case", "use --case NAME with or without --prefix"
        )
    opened = open_passphrase(mark, passphrase_file)
    own = open_passphrase(key, key_passphrase_file or passphrase_file)

    from invgnn.court.challenge import Challenge
    from invgnn.court.claim import Claim
    from invgnn.court.identity import Identity, load_public
    from invgnn.court.opening import PROVES, open_drawn, open_fully, open_prefix
    from invgnn.watermark.mark import Watermark

    held = (Claim.load(claim), Watermark.load(mark, opened), Identity.load(key, own), load_public(judge))
    if challenge is not None:
        form, drawn = "drawn", Challenge.load(challenge)
        digest = open_drawn(output, *held, drawn, overwrite=overwrite)
    else:
        form, write = ("prefix", open_prefix) if prefix else ("full", open_fully)
        digest = write(output, *held, case or "", overwrite=overwrite)
    record = {"opening": str(output), "digest": digest, "form": form, "proves": PROVES[form]}
    return record, fold(f"wrote {output}: {form} opening\n{PROVES[form]}", 2), 0
