"""The `invgnn` command: one short file per verb; torch is imported only when a verb needs it."""

from __future__ import annotations

from typing import Annotated

import typer

from invgnn.cli import attack, calibrate, carriers, demo, embed, inspect, keygen, stress, threshold, verify
from invgnn.cli.console import Commands

app = typer.Typer(
    name="invgnn",
    cls=Commands,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # plain help: it starts fast, and reads the same on every terminal
    epilog="""\b
From a secret to a verdict:
  invgnn keygen -o acme.secret
  invgnn carriers --secret acme.secret --task PROTEINS -o acme.mark
  invgnn embed --mark acme.mark --task PROTEINS/GIN -o acme.model
  invgnn verify --mark acme.mark --model suspect.model

\b
Exit codes:
  0  done; of verify: owned      2  could not be done; the reason is on stderr
  1  of verify: not shown        3  of verify: inconclusive
                               130  interrupted
""",
)
for verb in (keygen, carriers, embed, verify, threshold, calibrate, attack, stress, inspect, demo):
    name = verb.__name__.rpartition(".")[2]
    app.command(name, epilog=verb.EXAMPLES)(getattr(verb, name))


def _version(wanted: bool) -> None:
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
    """Prove that a graph neural network is yours.

    A mark is a secret and some private graphs, its carriers. A model that was taught the mark answers
    on them as the secret says; a model that was not does so only by chance, and that chance is computed
    exactly. To see it all on one page, with no download, run invgnn demo.

    Every command takes --json: exactly one JSON object on standard output, errors too, and everything
    else on standard error.
    """


def main() -> None:
    """Run the command line."""
    app()
