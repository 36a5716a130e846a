"""Checks of single values from callers and files: exact types, finite numbers, limits."""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import Any

from invgnn.errors import ParameterError


def check_whole(name: str, value: Any, least: int, most: int) -> None:
    """Raise `ParameterError` unless the value is an int (not a bool) from `least` to `most`.

    Args:
        name: Name of the value, for the message.
        value: The value.
        least: Smallest allowed number.
        most: Largest allowed number.
    """
    if type(value) is not int or not least <= value <= most:
        raise ParameterError(
            f"{name} is {_shown(value)}, expected a whole number from {least} to {most}",
            "use a number in that range",
        )


def check_number(name: str, value: Any) -> None:
    """Raise `ParameterError` unless the value is a finite int or float.

    Args:
        name: Name of the value, for the message.
        value: The value.
    """
    if type(value) not in (int, float) or not abs(value) < math.inf:
        raise ParameterError(f"{name} is {_shown(value)}, expected a finite number", "use a finite number")


def check_flag(name: str, value: Any) -> None:
    """Raise `ParameterError` unless the value is True or False.

    Args:
        name: Name of the value, for the message.
        value: The value.
    """
    if type(value) is not bool:
        raise ParameterError(f"{name} is {_shown(value)}, expected true or false", "use True or False")


def check_choice(name: str, value: Any, allowed: Collection[str]) -> None:
    """Raise `ParameterError` unless the value is one of the allowed words.

    Args:
        name: Name of the value, for the message.
        value: The value.
        allowed: The allowed words.
    """
    if type(value) is not str or value not in allowed:
        raise ParameterError(f"unknown {name} {_shown(value)}", f"choose one of {', '.join(allowed)}")


def _shown(value: Any) -> str:
    """Return the `repr` of a value, shortened to 60 characters."""
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
