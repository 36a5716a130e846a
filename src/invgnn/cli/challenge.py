"""invgnn challenge: a judge draws the carriers that a claimant has to reveal."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from invgnn.cli.console import check_input, check_output, open_passphrase, verb
from invgnn.cli.options import Case, ClaimFile, IdentityFile, Json, Overwrite, PassphraseFile

EXAMPLES = """\b
Examples:
  invgnn challenge --claim claim.json --key judge.key --case "5 O 17/26" \\
      --carriers 64 -o challenge.json
"""


@verb
def challenge(
    claim: ClaimFile,
    key: IdentityFile,
    case: Case,
    carriers: Annotated[int, typer.Option(metavar="N", help="Number of carriers to reveal.")],
    output: Annotated[
        Path, typer.Option("-o", "--output", metavar="FILE", help="Where to write the challenge.")
    ],
    passphrase_file: PassphraseFile = None,
    overwrite: Overwrite = False,
    json_: Json = False,
) -> Any:
    """Draw the carriers that a claimant has to reveal to you.

    Use this if the claimant does not want to reveal the secret. The carriers are drawn after the claim is
    fixed, so the claimant cannot choose them. Draw once per claim: whoever may ask for another draw
    chooses. A partial opening is evidence, and never enough for owned.

    Writes the signed challenge to FILE. Answer it with invgnn reveal --challenge.
    """
    check_input(claim, key)
    check_output(output, overwrite)
    passphrase = open_passphrase(key, passphrase_file)

    from invgnn.court.challenge import Challenge
    from invgnn.court.claim import Claim
    from invgnn.court.identity import Identity

    made = Challenge.draw(Claim.load(claim), Identity.load(key, passphrase), case, carriers)
    made.save(output, overwrite=overwrite)
    record = {"challenge": str(output), "case": case, "carriers": carriers}
    return record, f"wrote {output}: {carriers} carriers", 0
