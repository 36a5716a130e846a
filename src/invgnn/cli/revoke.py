"""invgnn revoke: withdraw a claim or a key."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from invgnn.cli.console import check_input, check_output, open_passphrase, verb
from invgnn.cli.options import IdentityFile, Json, Overwrite, PassphraseFile, Tsa

EXAMPLES = """\b
Examples:
  invgnn revoke --claim claim.json --key acme.key --reason "secret leaked" \\
      -o revoked.json
  invgnn revoke --key old.key --successor new.key --reason superseded \\
      -o rotated.json
"""


@verb
def revoke(
    key: IdentityFile,
    reason: Annotated[
        str,
        typer.Option(
            metavar="TEXT",
            help="superseded, key compromised, secret leaked, issued in error, or licence ended.",
        ),
    ],
    output: Annotated[
        Path, typer.Option("-o", "--output", metavar="FILE", help="Where to write the revocation.")
    ],
    claim: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Claim to revoke. Default: the key of the identity itself."),
    ] = None,
    since: Annotated[
        str | None,
        typer.Option(metavar="DATE", help="From when it counts, e.g. 2026-01-31. Default: now."),
    ] = None,
    successor: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Identity that replaces this one: rotate the key."),
    ] = None,
    tsa: Tsa = None,
    passphrase_file: PassphraseFile = None,
    overwrite: Overwrite = False,
    json_: Json = False,
) -> Any:
    """Withdraw a claim, or the key of an identity.

    Only the key that signed a claim can revoke it. A claim that is dated before its key was revoked still
    counts. Give the revocation to everybody who has the claim.

    Writes the signed revocation to FILE.
    """
    check_input(key, claim, successor)
    check_output(output, overwrite)

    from invgnn.court.claim import Claim
    from invgnn.court.identity import Identity
    from invgnn.court.revocation import Revocation, parse_time

    owner = Identity.load(key, open_passphrase(key, passphrase_file))
    next_ = (
        None if successor is None else Identity.load(successor, open_passphrase(successor, passphrase_file))
    )
    made = Revocation.make(
        owner,
        reason,
        claim=None if claim is None else Claim.load(claim),
        since=None if since is None else parse_time(since),
        successor=next_,
    )
    document = made.document if tsa is None else made.document.dated(tsa, owner)
    document.save(output, overwrite=overwrite)
    said = made.document.payload
    record = {"revocation": str(output), **said["target"], "since": said["since"], "reason": reason}
    return record, f"wrote {output}: {said['target']['kind']} revoked from {said['since']} on", 0
