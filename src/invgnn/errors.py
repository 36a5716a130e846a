"""What can go wrong, each with advice."""

from __future__ import annotations


class InvgnnError(Exception):
    """The base of every error this library raises on purpose.

    `message` says what is wrong, `advice` what to do about it; `str()` gives both.
    """

    def __init__(self, message: str, advice: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.advice = advice

    def __str__(self) -> str:
        return f"{self.message}\n  advice: {self.advice}" if self.advice else self.message


class ParameterError(InvgnnError, ValueError):
    """A number or a name given by the caller is out of range."""


class DataError(InvgnnError, ValueError):
    """Graphs that cannot be used: none, NaN, or of the wrong width."""


class CarrierError(InvgnnError):
    """The carrier set cannot be filled; the message names the check that starves it."""


class SuspectError(InvgnnError):
    """A suspect that cannot be asked, or whose answers are no answers."""


class FileError(InvgnnError):
    """A file that is truncated, foreign, of a newer version, or altered."""


class PassphraseError(FileError):
    """The passphrase is missing or wrong."""


class ExistingFileError(FileError):
    """Something is there already, and nothing is overwritten unasked."""


class EditError(InvgnnError):
    """An edit that this model does not admit, or a plug-in that is no edit."""


class TrialError(InvgnnError):
    """Trials of a sweep that failed; the rows of the others are kept."""
