"""Schemes, changes and forgeries by name, with the code and the settings that define them."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator
from dataclasses import fields, is_dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

from invgnn.attacks.edits import Edit
from invgnn.attacks.edits.registry import find_edits
from invgnn.attacks.registry import find_attacks
from invgnn.bench.source import ROOT, SourceTree
from invgnn.errors import ParameterError
from invgnn.schemes import forgeries
from invgnn.schemes.forgeries import Forgery
from invgnn.schemes.registry import find_schemes
from invgnn.schemes.scheme import Scheme

T = TypeVar("T")


def find_scheme(name: str) -> Scheme:
    """Return the scheme with a name.

    Args:
        name: Full name.

    Raises:
        ParameterError: If there is none.
    """
    return _named("scheme", name, schemes())


def find_change(name: str) -> Edit:
    """Return the edit or attack with a name.

    Args:
        name: Full name, as `invgnn attack --list` shows it.

    Raises:
        ParameterError: If there is none.
    """
    return _named("edit or attack", name, changes())


def find_forgery(name: str) -> Forgery:
    """Return the forgery with a name.

    Args:
        name: Full name.

    Raises:
        ParameterError: If there is none.
    """
    return _named("forgery", name, {one.name: one for one in forgeries.suite()})


@lru_cache(maxsize=1)
def schemes() -> dict[str, Scheme]:
    """Return all schemes by name, in the order of the tables; those of plug-ins last."""
    return {scheme.name: scheme for scheme in find_schemes()}


@lru_cache(maxsize=1)
def changes() -> dict[str, Edit]:
    """Return all edits and attacks by name, in the order of the tables."""
    return {repr(change): change for change in (*find_edits(), *find_attacks())}


def _named(kind: str, name: str, known: dict[str, T]) -> T:
    """Return what has a name."""
    if name not in known:
        raise ParameterError(f"there is no {kind} named {name!r}", f"choose among {', '.join(known)}")
    return known[name]


def settings_of(thing: object) -> Any:
    """Return the settings of a scheme, an edit or a forgery as plain values.

    Args:
        thing: A dataclass, or an object whose attributes are its settings.
    """
    if thing is None or isinstance(thing, str | int | float | bool):
        return thing
    if isinstance(thing, list | tuple | set | frozenset):
        return [settings_of(one) for one in thing]
    if isinstance(thing, dict):
        return {str(name): settings_of(value) for name, value in thing.items()}
    if is_dataclass(thing):
        return {one.name: settings_of(getattr(thing, one.name)) for one in fields(thing)}
    if getattr(type(thing), "__module__", "").startswith(("torch", "numpy")):
        return repr(thing)
    if hasattr(thing, "__dict__") and not isinstance(thing, type):
        return {name: settings_of(value) for name, value in sorted(vars(thing).items())}
    return getattr(thing, "__qualname__", None) or repr(thing)


def told(thing: object) -> str:
    """Return the settings of a scheme, an edit or a forgery as JSON.

    Args:
        thing: The object.
    """
    return json.dumps(settings_of(thing), sort_keys=True, separators=(",", ":"))


def code_of(modules: Iterable[str], things: Iterable[object]) -> str:
    """Return a digest of the code that can run when objects are used.

    Args:
        modules: Modules that use the objects.
        things: Schemes, edits or forgeries. Their classes, those of their settings, and everything that
            these import are included, plug-ins too.
    """
    starts = [*modules, *dict.fromkeys(module for thing in things for module in _modules(thing))]
    tops = frozenset(module.partition(".")[0] for module in starts) - {"invgnn"}
    return _tree(tops).digest(starts)[:12]


@lru_cache(maxsize=64)
def _tree(tops: frozenset[str]) -> SourceTree:
    """Return the tree of this library and of plug-ins."""
    found = {top: _place(top) for top in sorted(tops)}
    return SourceTree({"invgnn": ROOT} | {top: place for top, place in found.items() if place})


def _place(top: str) -> Path | None:
    """Return where a package, or a module of one file, is; None if it has no file."""
    file = getattr(sys.modules.get(top), "__file__", None)
    if file is None:
        return None
    return Path(file).parent if Path(file).name == "__init__.py" else Path(file).with_suffix("")


def _modules(thing: object) -> Iterator[str]:
    """Yield the modules of the classes of an object and of its settings."""
    if isinstance(thing, str | int | float | bool | type(None)):
        return
    if isinstance(thing, list | tuple | set | frozenset):
        for one in thing:
            yield from _modules(one)
        return
    own = [cls.__module__ for cls in type(thing).__mro__]
    yield from (
        name for name in own if name.partition(".")[0] not in ("builtins", "abc", "typing", "torch")
    )
    for value in vars(thing).values() if hasattr(thing, "__dict__") else ():
        yield from _modules(value)
