"""What all verbs share: results and errors as JSON or text, progress, passphrases, output paths."""

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
from typing import Any, NamedTuple

import typer
from typer.core import TyperGroup

from invgnn.concealed import conceal
from invgnn.errors import ExistingFileError, FileError, InvgnnError, ParameterError, PassphraseError

FAILED, INTERRUPTED = 2, 130  # Python's own exit code for a crash is 1, which is a verdict here


class Commands(TyperGroup):
    """The group of verbs, which prints every result or error as JSON or text and sets the exit code."""

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        windows_expand_args: bool = True,
        **extra: Any,
    ) -> Any:
        """Run one verb and exit with its code.

        Args:
            args: The arguments; by default those of the process.
            prog_name: Name of the program, for the help.
            complete_var: Not used.
            standalone_mode: Not used: errors are always handled here.
            windows_expand_args: Not used.
            **extra: More arguments for typer.
        """
        given = sys.argv[1:] if args is None else list(args)
        as_json = "--json" in given
        for stream in (sys.stdout, sys.stderr):
            if isinstance(
                stream, io.TextIOWrapper
            ):  # an ASCII terminal shows \xe1 for á instead of failing
                stream.reconfigure(errors="backslashreplace")
        try:
            done = super().main(given or ["--help"], prog_name, standalone_mode=False, **extra)
            if done == INTERRUPTED:  # how typer reports Ctrl-C
                raise KeyboardInterrupt
            code = _show(done, as_json) if isinstance(done, tuple) else int(done or 0)
        except BaseException as error:  # no exception may set an exit code that means a verdict
            code = _fail(error, as_json)
        sys.exit(code)


def verb(function: Callable[..., Any]) -> Callable[..., Any]:
    """Turn a function into a command.

    Args:
        function: Returns the record for JSON, the text, and the exit code.

    Returns:
        The command, with everything that the function prints redirected to standard error.
    """

    @functools.wraps(function)
    def run(**arguments: Any) -> Any:
        with redirect_stdout(sys.stderr):  # data sets or a user's model may print, too
            return function(**arguments)

    return run


class _Failure(NamedTuple):
    """An error as it is shown: its kind, message, advice and exit code."""

    error: str
    message: str
    advice: str
    code: int = FAILED


def _show(done: tuple[dict[str, Any], str, int], as_json: bool) -> int:
    """Print a result and return its exit code."""
    record, words, code = done
    _write(json.dumps(record, allow_nan=False) if as_json else printable(words))
    return code


def _fail(error: BaseException, as_json: bool) -> int:
    """Print an error and return its exit code."""
    failure = _explain(error)
    if as_json:
        with suppress(OSError, ValueError):
            _write(json.dumps({k: v for k, v in failure._asdict().items() if k != "code"}))
    note(f"error: {failure.message}")
    if failure.advice:
        note(f"advice: {failure.advice}")
    return failure.code


def _explain(error: BaseException) -> _Failure:
    """Return the message and the advice for an error."""
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
        return _Failure(
            name, "the result could not be written", "keep standard output open until the command ends"
        )
    if isinstance(error, OSError):
        return _Failure(name, str(error), "check the permissions of the files and the free disk space")
    with suppress(OSError):
        traceback.print_exception(error)
    return _Failure(
        name, f"unexpected: {error}", "this is a bug in invgnn: please report it with the lines above"
    )


def _write(text: str) -> None:
    """Write text to standard output and flush it."""
    if sys.stdout is None:
        raise BrokenPipeError
    try:
        sys.stdout.write(text + "\n")
        sys.stdout.flush()
    except OSError:
        with suppress(OSError, ValueError):  # otherwise Python tries again at exit and prints a warning
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise


def note(text: str) -> None:
    """Print a line on standard error.

    Args:
        text: The line.
    """
    if sys.stderr is not None:  # if it is closed, print would use standard output
        with suppress(OSError):
            print(printable(text), file=sys.stderr)


def printable(text: str) -> str:
    """Return the text with control characters escaped, so that a file cannot control the terminal.

    Args:
        text: Any text.

    Returns:
        Printable text.
    """
    return "".join(c if c.isprintable() or c in "\n\t" else ascii(c)[1:-1] for c in text)


def fold(text: str, indent: int) -> str:
    """Wrap every line of a text to 80 columns.

    Args:
        text: The text.
        indent: Indentation of continuation lines.

    Returns:
        The wrapped text.
    """
    wrap = textwrap.TextWrapper(80, subsequent_indent=" " * indent, break_long_words=False)
    return "\n".join(wrap.fill(line) for line in text.splitlines())


@contextmanager
def progress(label: str, total: int) -> Iterator[Callable[[int], None]]:
    """Show a progress bar on a terminal, or one line elsewhere, on standard error.

    Args:
        label: What is being done.
        total: Amount of work.

    Yields:
        A function to call with the amount of work done since the last call.
    """
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
    """Return the passphrase of a file, concealed in tracebacks.

    Args:
        path: The file that it opens or will open.
        given: A file whose first line is the passphrase. By default the environment, then the terminal.
        new: Whether the passphrase is new, so that it has to be typed twice.

    Returns:
        The passphrase.

    Raises:
        PassphraseError: If there is none, or it is empty.
        FileError: If the passphrase file cannot be read.
    """
    if given is not None:
        found, where = _first_line(given), str(given)
    elif "INVGNN_PASSPHRASE" in os.environ:
        found, where = conceal(os.environ["INVGNN_PASSPHRASE"]), "INVGNN_PASSPHRASE"
    elif sys.stdin is not None and sys.stdin.isatty():
        prompt = printable(f"{'New passphrase' if new else 'Passphrase'} for {path}")
        return conceal(str(typer.prompt(prompt, hide_input=True, confirmation_prompt=new, err=True)))
    else:
        raise PassphraseError(
            f"{path} needs a passphrase, and there is no terminal to prompt for it",
            "set INVGNN_PASSPHRASE, or use --passphrase-file",
        )
    if not found:
        raise PassphraseError(f"the passphrase in {where} is empty", "use a passphrase of several words")
    return found


def _first_line(path: Path) -> str:
    """Return the first line of a passphrase file, concealed."""
    try:
        return conceal(path.read_text(encoding="utf-8").partition("\n")[0].removesuffix("\r"))
    except OSError as error:
        advice = "give a readable file with the passphrase on its first line"
        raise FileError(f"the passphrase file {path} cannot be read ({error.strerror})", advice) from None
    except UnicodeDecodeError as error:  # the exception contains the whole file
        error.object = b""
        raise FileError(f"the passphrase file {path} is not UTF-8 text", "save it as UTF-8") from None


def open_passphrase(path: Path, given: Path | None) -> str | None:
    """Return the passphrase of an existing file, concealed in tracebacks.

    Args:
        path: The file to open.
        given: As in `find_passphrase`.

    Returns:
        The passphrase, or None if the file is not encrypted.
    """
    from invgnn.storage import container

    return find_passphrase(path, given) if container.peek(path)["sealed"] else None


def check_input(*paths: Path | None) -> None:
    """Check that input files exist, before the seconds that loading torch takes.

    Args:
        *paths: The files; None is skipped.

    Raises:
        FileError: If a file does not exist.
    """
    for path in paths:
        if path is not None and not path.exists():
            raise FileError(f"there is no file {path}", "check the name and the folder")


def check_output(path: Path, overwrite: bool) -> None:
    """Check that a file can be written, before the work starts.

    Args:
        path: The file.
        overwrite: Whether it may exist.

    Raises:
        ExistingFileError: If it exists and may not.
        FileError: If it cannot be written.
    """
    if os.path.lexists(path) and not overwrite:
        raise ExistingFileError(f"{path} exists already", "choose another name, or use --overwrite")
    if path.is_dir():
        raise FileError(f"{path} is a folder", "give the name of a file")
    if not os.access(path.parent, os.W_OK | os.X_OK) or not path.parent.is_dir():
        raise FileError(
            f"{path} cannot be written", f"create the folder {path.parent}, or choose another one"
        )


def check_outputs(*paths: Path | None, overwrite: bool) -> None:
    """Check that several files can be written, and that they are several.

    Args:
        *paths: The files; None is skipped.
        overwrite: Whether they may exist.

    Raises:
        ParameterError: If one is named twice.
    """
    given = [path for path in paths if path is not None]
    if len({path.absolute() for path in given}) < len(given):
        raise ParameterError(f"{given[0]} is named for two outputs", "choose different names")
    for path in given:
        check_output(path, overwrite)
