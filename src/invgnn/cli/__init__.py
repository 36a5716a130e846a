"""The `invgnn` command: one short file for each verb. Torch is imported only when a verb needs it."""

from __future__ import annotations

from typing import Annotated

import typer

from invgnn.cli import (
    attack,
    bench,
    calibrate,
    carriers,
    challenge,
    check,
    claim,
    compare,
    demo,
    embed,
    identity,
    inspect,
    judge,
    keygen,
    reveal,
    revoke,
    serve,
    stress,
    threshold,
    trace,
    verify,
)
from invgnn.cli.console import Commands

EXIT_CODES = """\b
Exit codes:
  0  success     2  error, explained on standard error     130  interrupted
"""

app = typer.Typer(
    name="invgnn",
    cls=Commands,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # plain help starts fast and looks the same on every terminal
    epilog="""\b
From a secret to a verdict:
  invgnn keygen -o acme.secret
  invgnn carriers --secret acme.secret --task PROTEINS -o acme.mark
  invgnn embed --mark acme.mark --task PROTEINS/GIN -o acme.model
  invgnn verify --mark acme.mark --model suspect.model

\b
From a claim to a judgement:
  invgnn identity --name "Acme Ltd" -o acme.key
  invgnn claim --mark acme.mark --model acme.model --task PROTEINS \\
      --key acme.key --tsa URL -o claim.json
  invgnn reveal --claim claim.json --mark acme.mark --key acme.key \\
      --judge judge.key.pub.json --case NAME -o acme.opening
  invgnn judge claim.json acme.opening --suspect suspect.model \\
      --task PROTEINS --key judge.key --case NAME -o judgement.json

\b
Exit codes:
  0  success (verify, judge: owned)     2  error, explained on standard error
  1  verify, judge: not shown         130  interrupted
  3  verify, judge: inconclusive
""",
)
VERBS = (
    *(keygen, carriers, embed, verify, threshold, calibrate, attack, stress, compare, inspect, demo),
    *(identity, claim, reveal, challenge, judge, trace, revoke, check),
    serve,
)
for verb in VERBS:
    name = verb.__name__.rpartition(".")[2]
    codes = getattr(verb, "EXIT_CODES", EXIT_CODES)
    app.command(name, epilog=f"{codes}\n{verb.EXAMPLES}")(getattr(verb, name))
app.add_typer(bench.app)


def _version(wanted: bool) -> None:
    """Print the version and exit, if the option was given."""
    if wanted:
        from invgnn.version import __version__

        typer.echo(f"invgnn {__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Watermark graph neural networks and prove that a copy is yours.

    A mark consists of a secret and private graphs, its carriers, with one secret bit each. A model is
    trained so that its answers to the carriers encode the bits. To test a suspect, its answers are compared
    with the bits. The p-value is exact: a model unrelated to the secret matches this well with at most
    that probability.

    Run invgnn demo to see the full watermark lifecycle on one page, without a download.

    Every command accepts --json. It then prints exactly one JSON object on standard output, for errors too.
    All other output goes to standard error.
    """


def main() -> None:
    """Run the command line."""
    app()
