"""What every verb shares: one way out in JSON or words, progress, passphrases, output paths."""

from __future__ import annotations

import functools
import io
import json
import os
import sys
import textwrap
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout, suppress
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer
from typer.core import TyperGroup

from invgnn.concealed import conceal
from invgnn.errors import ExistingFileError, FileError, InvgnnError, PassphraseError

COULD_NOT, INTERRUPTED = 2, 130  # Python's own exit code for a crash is 1, which is a verdict here

Json = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of words.")]
PassphraseFile = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="The passphrase is the first line of this file. Else it is the variable INVGNN_PASSPHRASE, "
        "else you are asked.",
    ),
]
NoPassphrase = Annotated[
    bool,
    typer.Option(
        "--insecure-no-passphrase", help="Write the file unsealed: whoever reads it has the secret."
    ),
]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace what is there already.")]
Seed = Annotated[int, typer.Option(metavar="N", min=0, help="Fixes the split of the task.")]


class Commands(TyperGroup):
    """The verbs, with one way out: a result or an error, in JSON or in words, and an exit code."""

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        windows_expand_args: bool = True,
        **extra: Any,
    ) -> Any:
        """Run one verb and leave the process with its exit code."""
        given = sys.argv[1:] if args is None else list(args)
        as_json = "--json" in given
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, io.TextIOWrapper):  # an ASCII terminal gets \xe1 for á, not a crash
                stream.reconfigure(errors="backslashreplace")
        try:
            done = super().main(given or ["--help"], prog_name, standalone_mode=False, **extra)
            if done == INTERRUPTED:  # how typer reports Ctrl-C
                raise KeyboardInterrupt
            code = _show(done, as_json) if isinstance(done, tuple) else int(done or 0)
        except BaseException as error:  # whatever it is, its exit code must not read as a verdict
            code = _fail(error, as_json)
        sys.exit(code)


def verb(function: Callable[..., Any]) -> Callable[..., Any]:
    """Make a command of a function that returns (record, words, exit code)."""

    @functools.wraps(function)
    def run(**arguments: Any) -> Any:
        with redirect_stdout(sys.stderr):  # what data sets or a user's own model print is no result
            return function(**arguments)

    return run


class _Failure(NamedTuple):
    error: str
    message: str
    advice: str
    code: int = COULD_NOT


def _show(done: tuple[dict[str, Any], str, int], as_json: bool) -> int:
    record, words, code = done
    _write(json.dumps(record, allow_nan=False) if as_json else printable(words))
    return code


def _fail(error: BaseException, as_json: bool) -> int:
    failure = _explain(error)
    if as_json:
        with suppress(OSError, ValueError):
            _write(json.dumps({k: v for k, v in failure._asdict().items() if k != "code"}))
    note(f"error: {failure.message}")
    if failure.advice:
        note(f"advice: {failure.advice}")
    return failure.code


def _explain(error: BaseException) -> _Failure:
    name = type(error).__name__
    if isinstance(error, InvgnnError):
        return _Failure(name, error.message, error.advice)
    if isinstance(error, KeyboardInterrupt | typer.Abort):
        return _Failure("Interrupted", "interrupted", "", INTERRUPTED)
    if hasattr(error, "format_message"):  # typer's usage errors, whose class is not public
        context = getattr(error, "ctx", None)
        command = context.command_path if context else "invgnn"
        return _Failure("UsageError", error.format_message(), f"see {command} --help")
    if isinstance(error, BrokenPipeError | SystemExit):
        return _Failure(name, "ended before the result was out", "keep standard output open until the end")
    if isinstance(error, OSError):
        return _Failure(
            name, str(error), "check that the files can be read and written, and that there is room"
        )
    with suppress(OSError):
        traceback.print_exception(error)
    return _Failure(
        name, f"unexpected: {error}", "this is a fault of invgnn: report it with the lines above"
    )


def _write(text: str) -> None:
    """Text on standard output, and on its way before this returns."""
    if sys.stdout is None:
        raise BrokenPipeError
    try:
        sys.stdout.write(text + "\n")
        sys.stdout.flush()
    except OSError:
        with suppress(OSError, ValueError):  # or Python tries once more at exit, and complains
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise


def note(text: str) -> None:
    """A line on standard error."""
    if sys.stderr is not None:  # closed; print would take standard output
        with suppress(OSError):
            print(printable(text), file=sys.stderr)


def printable(text: str) -> str:
    """The text with control characters spelled out: a file must not steer the terminal."""
    return "".join(c if c.isprintable() or c in "\n\t" else ascii(c)[1:-1] for c in text)


def fold(text: str, indent: int) -> str:
    """Every line of a text wrapped to 80 columns, the rest of it indented."""
    wrap = textwrap.TextWrapper(80, subsequent_indent=" " * indent, break_long_words=False)
    return "\n".join(wrap.fill(line) for line in text.splitlines())


@contextmanager
def progress(label: str, total: int) -> Iterator[Callable[[int], None]]:
    """A bar on a terminal, one line elsewhere, on standard error; call it with the work done."""
    if sys.stderr is None or not sys.stderr.isatty():
        note(label)
        yield lambda done: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    text = TextColumn("{task.description}", markup=False)
    with Progress(
        text, BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), console=Console(stderr=True)
    ) as bar:
        job = bar.add_task(label, total=total)
        yield lambda done: bar.update(job, advance=done)


def find_passphrase(path: Path, given: Path | None, *, new: bool = False) -> str:
    """Return the passphrase of a file, concealed: from a file, the environment or the terminal."""
    if given is not None:
        found, where = _first_line(given), str(given)
    elif "INVGNN_PASSPHRASE" in os.environ:
        found, where = conceal(os.environ["INVGNN_PASSPHRASE"]), "INVGNN_PASSPHRASE"
    elif sys.stdin is not None and sys.stdin.isatty():
        prompt = printable(f"{'New passphrase' if new else 'Passphrase'} for {path}")
        return conceal(str(typer.prompt(prompt, hide_input=True, confirmation_prompt=new, err=True)))
    else:
        raise PassphraseError(
            f"{path} needs a passphrase and nobody is there to type it",
            "set INVGNN_PASSPHRASE or give --passphrase-file",
        )
    if not found:
        raise PassphraseError(f"the passphrase in {where} is empty", "choose one of several words")
    return found


def _first_line(path: Path) -> str:
    try:
        return conceal(path.read_text(encoding="utf-8").partition("\n")[0].removesuffix("\r"))
    except OSError as error:
        advice = "put the passphrase on its first line"
        raise FileError(f"the passphrase file {path} cannot be read ({error.strerror})", advice) from None
    except UnicodeDecodeError as error:  # which holds the whole file
        error.object = b""
        raise FileError(f"the passphrase file {path} is not UTF-8 text", "save it as UTF-8") from None


def open_passphrase(path: Path, given: Path | None) -> str | None:
    """Return the passphrase for a file that needs one, concealed; None for a clear file."""
    from invgnn.storage import container

    return find_passphrase(path, given) if container.peek(path)["sealed"] else None


def check_input(*paths: Path | None) -> None:
    """Refuse at once what is not there: to find out later takes the seconds of loading torch."""
    for path in paths:
        if path is not None and not path.exists():
            raise FileError(f"there is no file {path}", "check the name and the folder")


def check_output(path: Path, overwrite: bool) -> None:
    """Refuse before the work what could only be refused after it."""
    if os.path.lexists(path) and not overwrite:
        raise ExistingFileError(f"{path} exists already", "choose another name, or give --overwrite")
    if path.is_dir():
        raise FileError(f"{path} is a folder", "give the name of a file")
    if not os.access(path.parent, os.W_OK | os.X_OK) or not path.parent.is_dir():
        raise FileError(f"{path} cannot be written", f"make the folder {path.parent}, or choose another")
