"""The exceptions of the library, each with advice."""

from __future__ import annotations


class InvgnnError(Exception):
    """Base class of all errors that the library raises deliberately.

    `str()` returns the message and the advice.

    Attributes:
        message: What was expected and what was found.
        advice: What to do about it.
    """

    def __init__(self, message: str, advice: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.advice = advice

    def __str__(self) -> str:
        return f"{self.message}\n  advice: {self.advice}" if self.advice else self.message


class ParameterError(InvgnnError, ValueError):
    """A value passed by the caller is invalid or out of range."""


class DataError(InvgnnError, ValueError):
    """Graphs that cannot be used, for example none, with NaN, or with different numbers of features."""


class CarrierError(InvgnnError):
    """The carrier set cannot be filled. The message names the check that rejects most candidates."""


class SuspectError(InvgnnError):
    """A suspect that cannot be queried, or whose answers cannot be used."""


class EndpointError(SuspectError):
    """A server that cannot be asked now, or a budget that is used up. Answers received so far are kept."""


class BudgetError(EndpointError):
    """The next questions are beyond the number of questions or the money that an audit may use."""


class FileError(InvgnnError):
    """A file that is missing, truncated, altered, of a newer version, or not written by invgnn."""


class PassphraseError(FileError):
    """The passphrase is missing or wrong."""


class ExistingFileError(FileError):
    """The file exists already. Nothing is overwritten unless that is requested."""


class EditError(InvgnnError):
    """An edit that cannot be applied to this model, or a plug-in that is not an edit."""


class SchemeError(InvgnnError):
    """A watermarking scheme that cannot serve this task or architecture, or a plug-in that is no scheme."""


class TrialError(InvgnnError):
    """Some trials of a sweep failed. The rows of the other trials are kept."""


class TimestampError(InvgnnError):
    """A timestamp that cannot be obtained, or that proves nothing here."""


class EmbeddingError(InvgnnError):
    """A model in which a mark could not be embedded. Its weights are as before."""


class InvgnnWarning(UserWarning):
    """Base class of all warnings of the library. The text ends with advice."""

    def __init__(self, message: str, advice: str = "") -> None:
        super().__init__(f"{message}. {advice[:1].upper()}{advice[1:]}." if advice else message)
        self.message = message
        self.advice = advice


class WeakMarkWarning(InvgnnWarning):
    """A mark that was embedded too weakly to prove ownership at a declared access level."""


class MonitorWarning(InvgnnWarning):
    """A mark that is not being embedded as it should be, seen during training."""
