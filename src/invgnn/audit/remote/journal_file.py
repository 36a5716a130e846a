"""The file of a journal: whole lines, appended by one audit at a time."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from invgnn.errors import FileError

MOST_BYTES = 1 << 30
"""Largest size of a journal."""


class JournalFile:
    """A file to which lines are appended, each of them completely or not at all.

    Args:
        path: The file. It is created with the first line, readable by its owner only.

    Attributes:
        size: Size of the part that was read or written here, in bytes.
    """

    def __init__(self, path: Path) -> None:
        self.path, self.size = path, 0
        self._rest = 0

    def read(self) -> bytes:
        """Return all whole lines.

        Raises:
            FileError: If the file cannot be read, or is too large.
        """
        with self._open(os.O_RDONLY) as held:
            if os.fstat(held).st_size > MOST_BYTES:
                raise FileError(f"{self.path} has more than {MOST_BYTES} bytes", "use another file")
            with open(held, "rb", closefd=False) as file:
                data = file.read()
        self.size = data.rfind(b"\n") + 1
        self._rest = len(data) - self.size
        return data[: self.size]

    def drop_rest(self) -> None:
        """Cut off what follows the last whole line that was read."""
        if self._rest:
            with self._open(os.O_WRONLY) as held:
                self._compare(held, self.size + self._rest)
                os.ftruncate(held, self.size)
            self._rest = 0

    def check(self) -> None:
        """Raise `FileError` if somebody else has written to the file, or removed it."""
        if self.size:
            with self._open(os.O_RDONLY) as held:
                self._compare(held, self.size)

    def append(self, line: bytes) -> None:
        """Append a line, and wait until it is on the disk.

        Raises:
            FileError: If it cannot be written; the file then is as it was.
        """
        new = os.O_CREAT | os.O_EXCL if not self.size and not self.path.exists() else 0
        with self._open(os.O_WRONLY | os.O_APPEND | new) as held:
            self._compare(held, self.size)
            try:
                left = line
                while left:
                    left = left[os.write(held, left) :]
                os.fsync(held)
            except OSError:
                with contextlib.suppress(OSError):
                    os.ftruncate(held, self.size)
                raise
        self.size += len(line)

    def _compare(self, held: int, size: int) -> None:
        """Raise an error if an open file has another size."""
        if os.fstat(held).st_size != size:
            raise FileError(
                f"{self.path} was changed by somebody else, perhaps by another audit that still runs",
                "wait until that has ended, then run the same command again",
            )

    @contextmanager
    def _open(self, flags: int) -> Iterator[int]:
        """Open the file for a block in which no other process uses it; explain failures of the disk."""
        try:
            held = os.open(self.path, flags, 0o600)
            try:
                with contextlib.suppress(ImportError, OSError):  # there are systems and disks without locks
                    import fcntl

                    fcntl.flock(held, fcntl.LOCK_EX)
                yield held
            finally:
                os.close(held)
        except OSError as error:
            why = error.strerror or type(error).__name__
            raise FileError(
                f"{self.path} cannot be used ({why})", "check folder, permissions and disk"
            ) from None
