"""Bytes to disk and back: atomic, never over something that is there, private when asked."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

from invgnn.errors import ExistingFileError, FileError

AnyPath = str | os.PathLike[str]


def read_bytes(path: AnyPath) -> bytes:
    """The bytes of a file."""
    try:
        return Path(path).read_bytes()
    except FileNotFoundError:
        raise FileError(f"there is no file {path}", "Check the name and the folder.") from None
    except OSError as error:
        what = "is a folder" if Path(path).is_dir() else f"cannot be read ({error.strerror})"
        raise FileError(f"{path} {what}", "Give a file that you may read.") from None


def existing(path: AnyPath) -> ExistingFileError:
    """The error to raise where something is there already."""
    advice = "Choose another name, or ask for it to be overwritten."
    return ExistingFileError(f"{path} exists already", advice)


def write_bytes(path: AnyPath, data: bytes, private: bool, overwrite: bool) -> None:
    """A file that is there whole or not at all, and never takes the place of another unasked."""
    target = Path(path)
    temp = target.parent / f".invgnn-{secrets.token_hex(8)}.tmp"
    mode = 0o600 if private else 0o666  # the system takes the umask off
    try:
        with open(temp, "xb", opener=lambda name, flags: os.open(name, flags, mode)) as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        (os.replace if overwrite else _place)(temp, target)
    except FileExistsError:
        raise existing(path) from None
    except OSError as error:
        advice = "Check that the folder exists, that you may write to it, and that there is room."
        raise FileError(f"{path} cannot be written ({error.strerror or error})", advice) from error
    finally:
        temp.unlink(missing_ok=True)


def _place(temp: Path, target: Path) -> None:
    """Move a file to a name that nobody has, or raise FileExistsError; also in a race."""
    try:
        os.link(temp, target)
    except FileExistsError:
        raise
    except OSError:  # a file system without hard links: take the name, then fill it
        os.close(os.open(target, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        try:
            os.replace(temp, target)
        except BaseException:
            target.unlink()
            raise


def write_text(path: AnyPath, text: str, *, overwrite: bool = False, private: bool = False) -> None:
    """A UTF-8 text file at `path`, whole or not at all."""
    write_bytes(path, text.encode(), private, overwrite)
