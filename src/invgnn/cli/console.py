"""What every verb shares: one JSON object or words, progress, passphrases, errors with advice."""

from __future__ import annotations

import functools
import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from invgnn.errors import FileError, InvgnnError, PassphraseError

err = Console(stderr=True, highlight=False)
out = Console(highlight=False)

Json = Annotated[bool, typer.Option("--json", help="One JSON object on standard output.")]
PassphraseFile = Annotated[
    Path | None,
    typer.Option(
        help="Read the passphrase from the first line of this file. Otherwise INVGNN_PASSPHRASE is used, "
        "or you are asked.",
    ),
]
NoPassphrase = Annotated[
    bool,
    typer.Option("--insecure-no-passphrase", help="Write secrets in the clear (mode 0600)."),
]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace an existing output file.")]


def verb(function: Callable[..., Any]) -> Callable[..., None]:
    """Turn a function that returns (record, words[, exit code]) into a command."""

    @functools.wraps(function)
    def run(**arguments: Any) -> None:
        as_json = bool(arguments.get("json_"))
        try:
            record, words, code = function(**arguments)
        except InvgnnError as error:
            if as_json:
                say_json({"error": type(error).__name__, "message": error.message, "advice": error.advice})
            err.print(f"[bold red]error:[/] {_plain(error.message)}")
            if error.advice:
                err.print(f"[bold]advice:[/] {_plain(error.advice)}")
            raise typer.Exit(2) from None
        if as_json:
            say_json(record)
        else:
            out.print(words)
        if code:
            raise typer.Exit(code)

    return run


def _plain(text: str) -> str:
    return text.replace("[", r"\[")


def say_json(record: dict[str, Any]) -> None:
    """Print one JSON object on standard output."""
    sys.stdout.write(json.dumps(record, allow_nan=False) + "\n")


@contextmanager
def progress(label: str, total: int) -> Iterator[Callable[[int], None]]:
    """A progress bar on standard error; call it with the work done so far added."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=err, transient=not err.is_terminal) as bar:
        job = bar.add_task(label, total=total)
        yield lambda done: bar.update(job, advance=done)


def find_passphrase(given: Path | None, *, new: bool = False) -> str:
    """The passphrase from a file, the environment or the terminal."""
    if given is not None:
        try:
            return given.read_text().splitlines()[0]
        except (OSError, IndexError, UnicodeDecodeError) as error:
            raise FileError(f"no passphrase in {given}: {error}", "put it on the first line") from error
    if "INVGNN_PASSPHRASE" in os.environ:
        return os.environ["INVGNN_PASSPHRASE"]
    if not sys.stdin.isatty():
        raise PassphraseError(
            "a passphrase is needed and nobody is there to type it",
            "set INVGNN_PASSPHRASE or give --passphrase-file",
        )
    return str(typer.prompt("Passphrase", hide_input=True, confirmation_prompt=new, err=True))


def open_passphrase(path: Path, given: Path | None) -> str | None:
    """The passphrase for a file that needs one; None for a clear file."""
    from invgnn import files

    return find_passphrase(given) if files.peek(path)["sealed"] else None
