"""List what stands between an auditor and a suspect's weights: tensors, classes, hooks and functions.

A verdict on weights is worthless if other code answers in their place. Everything that a forward pass can
read or run is therefore listed with its origin, and is part of the suspect's digest.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from torch import nn

from invgnn.audit.origin import Code, Origin, name_of, source_digest
from invgnn.audit.walk import Walk
from invgnn.errors import SuspectError
from invgnn.nn.forward import unwrap
from invgnn.storage import encoding


@dataclass(frozen=True)
class Provenance:
    """Everything between an auditor and a suspect's weights.

    Attributes:
        tensors: Digest of every tensor in the modules, whether saved with the weights or not.
        settings: Digest of their plain values, such as numbers and strings.
        code: The code that runs, each piece once, foreign code first.
        unsaved: Names of tensors that no weights file contains: non-persistent buffers and attributes.
        unknown: Objects whose content no digest covers.
    """

    tensors: str
    settings: str
    code: tuple[Code, ...]
    unsaved: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()

    @property
    def foreign(self) -> tuple[Code, ...]:
        """Code that no known library defines."""
        return tuple(one for one in self.code if one.origin != "library")

    @property
    def digest(self) -> str:
        """Digest of tensors, settings, the names of all code, and the source of foreign code."""
        parts = [[one.what, one.name, None if one.origin == "library" else one.source] for one in self.code]
        return encoding.digest(
            "invgnn/suspect/2",
            {"tensors": self.tensors, "settings": self.settings, "code": sorted(parts, key=str)},
        )

    def record(self) -> dict[str, Any]:
        """Return plain values for a verdict.

        Returns:
            A dictionary with the packages of library code, and foreign code, unsaved tensors and objects
            without a digest in full.
        """
        packages = sorted({one.name.partition(".")[0] for one in self.code if one.origin == "library"})
        return {
            "libraries": packages,
            "foreign": [asdict(one) for one in self.foreign],
            "unsaved": list(self.unsaved),
            "unknown": list(self.unknown),
        }


def trace(model: nn.Module, author: Origin = "auditor") -> Provenance:
    """List what a forward pass of a model can read and run.

    Args:
        model: The suspect.
        author: Who wrote the code that no known library defines.

    Returns:
        Digests of tensors and settings, and the code. Foreign code is identified by the hash of its file;
        globals and imports that it uses are not followed.
    """
    found = Walk(unwrap(model), author)
    order = sorted(set(found.code), key=lambda one: (one.origin == "library", one.what, one.name))
    return Provenance(
        encoding.digest("invgnn/tensors/2", found.tensors),
        encoding.digest("invgnn/settings/2", found.settings),
        tuple(order),
        tuple(found.unsaved),
        tuple(dict.fromkeys(found.unknown)),
    )


def trace_function(function: Callable[..., Any], author: Origin = "auditor") -> Code:
    """Describe a function that stands between an auditor and a suspect.

    Args:
        function: The function.
        author: Who wrote it.

    Returns:
        Its name, author and source digest.
    """
    return Code("function", name_of(function), author, source_digest(function))


def digest_model(model: nn.Module) -> str:
    """Return the digest of a model: of every tensor that a forward pass can read, and of the code it runs.

    Args:
        model: The model.

    Returns:
        The digest, in hexadecimal.
    """
    return trace(model).digest


def require_plain(architecture: nn.Module) -> None:
    """Refuse an architecture with parts that a weights file does not replace.

    Weights from a file are loaded into the architecture. Foreign hooks, methods replaced on the object and
    unsaved tensors would remain, and could answer in place of the weights.

    Args:
        architecture: The model that weights will be loaded into.

    Raises:
        SuspectError: If the architecture has such parts.
    """
    found = trace(architecture)
    active = [str(one) for one in found.foreign if one.what in {"hook", "override", "function"}]
    if active or found.unsaved:
        raise SuspectError(
            "the architecture contains what no weights file replaces: "
            + "; ".join([*active, *found.unsaved]),
            "build it without hooks, replaced methods, non-persistent buffers and tensor attributes, or "
            "pass the complete model instead: the verdict then lists them",
        )
