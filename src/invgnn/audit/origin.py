"""Find out who wrote a piece of code: an installed library, or somebody else."""

from __future__ import annotations

import builtins
import hashlib
import inspect
import sys
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from types import MethodType, ModuleType
from typing import Any, Literal

Origin = Literal["library", "auditor", "claimant"]
"""Who wrote a piece of code: a known library, the party that verifies, or the party that claims."""

LIBRARIES = ("torch", "torch_geometric", "invgnn.nn.backbones", "invgnn.nn.perception")
"""Packages and modules whose installed code counts as library code; of invgnn, only the parts of models."""


@dataclass(frozen=True)
class Code:
    """A piece of code that a forward pass runs.

    Attributes:
        what: `class`, `hook`, `override` (a method replaced on the object) or `function`.
        name: Its qualified name, and for a hook the module it is attached to.
        origin: Who wrote it.
        source: SHA-256 of the file that defines it. None if there is no such file.
    """

    what: str
    name: str
    origin: Origin
    source: str | None

    def __str__(self) -> str:
        """Return the kind, the name, the origin and the start of the source digest."""
        digest = "no source file" if self.source is None else f"source {self.source[:12]}"
        return f"{self.what} {self.name} ({self.origin}, {digest})"


def name_of(thing: Any) -> str:
    """Return the qualified name of a class or function, or of an object's class."""
    named = thing if hasattr(thing, "__qualname__") else type(thing)
    return f"{getattr(named, '__module__', None) or 'unknown'}.{named.__qualname__}"


def _code_of(thing: Any) -> Any:
    """Return the class or function that defines what an object does."""
    thing = thing.__func__ if type(thing) is MethodType else thing
    return thing if isinstance(thing, type) or inspect.isroutine(thing) else type(thing)


def is_library_module(module: ModuleType) -> bool:
    """Return whether a module is the one that Python or an installed library has under its name."""
    package = module.__name__.partition(".")[0]
    known = package in sys.stdlib_module_names or package in LIBRARIES
    return known and sys.modules.get(module.__name__) is module


def is_library(thing: Any) -> bool:
    """Return whether a class or function is the one that an installed library defines under its name."""
    code = _code_of(thing)
    module = getattr(code, "__module__", None) or ""
    if not isinstance(module, str):  # such as a descriptor, in code that torch.fx made
        return False
    if module == "builtins":
        return getattr(builtins, getattr(code, "__qualname__", ""), None) is code
    if not any(module == name or module.startswith(f"{name}.") for name in LIBRARIES):
        return False
    if inspect.isfunction(code):
        return _in_library(code.__code__.co_filename)
    found: Any = sys.modules.get(module)  # a class, or written in C: compare with what the library defines
    for part in getattr(code, "__qualname__", "").split("."):
        found = getattr(found, part, None)
    return found is code


@lru_cache(maxsize=4096)
def _in_library(name: str) -> bool:
    """Return whether code was compiled from a file of a library."""
    path = Path(name)
    return path.is_file() and any(path.resolve().is_relative_to(home) for home in _homes())


@lru_cache(maxsize=1)
def _homes() -> tuple[Path, ...]:
    """Return where the libraries are: folders of packages, files of single modules."""
    found = [getattr(sys.modules.get(name), "__file__", None) for name in LIBRARIES]
    paths = [Path(file).resolve() for file in found if file]
    return tuple(path.parent if path.name == "__init__.py" else path for path in paths)


def _file_of(code: Any) -> Path | None:
    """Return the file that defines a class or function, if there is one."""
    try:
        file = inspect.getsourcefile(code)
    except TypeError:
        return None
    path = None if file is None else Path(file)
    return path.resolve() if path is not None and path.is_file() else None


def source_digest(thing: Any) -> str | None:
    """Return the SHA-256 of the file that defines a class or function.

    Args:
        thing: A class, a function, or an object, which stands for its class.

    Returns:
        The digest in hexadecimal, or None if there is no such file.
    """
    file = _file_of(_code_of(thing))
    return None if file is None else hashlib.sha256(file.read_bytes()).hexdigest()
