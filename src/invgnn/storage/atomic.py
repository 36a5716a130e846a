"""Read and write whole files: atomic writes, no silent overwriting, private files on request."""

from __future__ import annotations

import os
import secrets
import stat
from pathlib import Path

from invgnn.concealed import conceal
from invgnn.errors import ExistingFileError, FileError

AnyPath = str | os.PathLike[str]
"""A path, as text or as any path object."""


def read_bytes(path: AnyPath, most: int | None = None) -> bytes:
    """Return the bytes of a file, concealed because the file may be private.

    Args:
        path: The file. A pipe or a device is refused: it may have no end.
        most: Largest number of bytes; None for any that fit into memory.

    Raises:
        FileError: If the file does not exist, is larger, or cannot be read.
    """
    try:
        about = Path(path).stat()
        if not stat.S_ISREG(about.st_mode) and not stat.S_ISDIR(about.st_mode):
            raise FileError(f"{path} is a pipe or a device", "Pass a regular file.")
        if most is not None and about.st_size > most:
            raise FileError(f"{path} has more than {most} bytes", "Pass the right file.")
        return conceal(Path(path).read_bytes())
    except MemoryError:
        raise FileError(f"{path} is too large for the memory", "Pass the right file.") from None
    except FileNotFoundError:
        raise FileError(f"there is no file {path}", "Check the file name and the folder.") from None
    except OSError as error:
        what = "is a folder" if Path(path).is_dir() else f"cannot be read ({error.strerror})"
        raise FileError(f"{path} {what}", "Pass a file that you are allowed to read.") from None


def existing(path: AnyPath) -> ExistingFileError:
    """Return the error to raise if something already exists at a path."""
    advice = "Choose another name, or pass overwrite=True (--overwrite on the command line)."
    return ExistingFileError(f"{path} exists already", advice)


def write_bytes(path: AnyPath, data: bytes, private: bool, overwrite: bool) -> None:
    """Write a file completely or not at all.

    Args:
        path: Where to write the file.
        data: Its content.
        private: Make the file readable by its owner only (mode 0600).
        overwrite: Replace an existing file at `path`.

    Raises:
        ExistingFileError: If something exists at `path` and `overwrite` is false.
        FileError: If the file cannot be written. No partial file is left behind.
    """
    data, target = conceal(data), Path(path)
    temp = target.parent / f".invgnn-{secrets.token_hex(8)}.tmp"
    mode = 0o600 if private else 0o666  # the operating system applies the umask
    try:
        with open(temp, "xb", opener=lambda name, flags: os.open(name, flags, mode)) as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        (os.replace if overwrite else _place)(temp, target)
    except FileExistsError:
        raise existing(path) from None
    except OSError as error:
        advice = "Check that the folder exists, that you may write to it, and that the disk is not full."
        raise FileError(f"{path} cannot be written ({error.strerror or error})", advice) from error
    finally:
        temp.unlink(missing_ok=True)


def _place(temp: Path, target: Path) -> None:
    """Move a file to an unused name; raise `FileExistsError` if the name is in use, also in a race."""
    try:
        os.link(temp, target)
    except FileExistsError:
        raise
    except OSError:  # a file system without hard links: reserve the name, then replace it
        os.close(os.open(target, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        try:
            os.replace(temp, target)
        except BaseException:
            target.unlink()
            raise


def write_text(path: AnyPath, text: str, *, overwrite: bool = False, private: bool = False) -> None:
    """Write a UTF-8 text file completely or not at all.

    Args:
        path: Where to write the file.
        text: Its content.
        overwrite: Replace an existing file at `path`.
        private: Make the file readable by its owner only (mode 0600).

    Raises:
        ExistingFileError: If something exists at `path` and `overwrite` is false.
        FileError: If the file cannot be written. No partial file is left behind.
    """
    write_bytes(path, text.encode(), private, overwrite)
