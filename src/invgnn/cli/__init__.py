"""The `invgnn` command: one short file per verb; torch is imported only when a verb needs it."""

from __future__ import annotations

import typer

from invgnn.cli import carriers, demo, embed, inspect, keygen, threshold, verify

app = typer.Typer(
    name="invgnn",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    help="""Prove that a graph neural network is yours.

The way of a mark: **keygen** makes a secret, **carriers** draws private graphs with it, **embed** teaches
them to a model, **verify** reads a suspect. **threshold** plans, **inspect** looks into files, **demo**
shows everything on one page.

Every verb takes `--json`: exactly one JSON object on standard output, all else on standard error.
""",
)
for verb in (keygen, carriers, embed, verify, threshold, inspect, demo):
    name = verb.__name__.rpartition(".")[2]
    app.command(name)(getattr(verb, name))


@app.callback()
def root() -> None:
    """Prove that a graph neural network is yours."""


def main() -> None:
    """Run the command line."""
    app()
