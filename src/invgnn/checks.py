"""Checks of single values from callers and files: exact types, finite numbers, limits."""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import Any

from invgnn.errors import ParameterError


def check_whole(name: str, value: Any, least: int, most: int) -> None:
    """Refuse anything but an int from `least` to `most`; a bool and a float are refused too."""
    if type(value) is not int or not least <= value <= most:
        raise ParameterError(
            f"{name} is {_shown(value)}, expected a whole number from {least} to {most}",
            "use a number in that range",
        )


def check_number(name: str, value: Any) -> None:
    """Refuse anything but a finite int or float."""
    if type(value) not in (int, float) or not abs(value) < math.inf:
        raise ParameterError(f"{name} is {_shown(value)}, not a finite number", "use a finite number")


def check_flag(name: str, value: Any) -> None:
    """Refuse anything but True and False."""
    if type(value) is not bool:
        raise ParameterError(f"{name} is {_shown(value)}, not true or false", "use True or False")


def check_choice(name: str, value: Any, allowed: Collection[str]) -> None:
    """Refuse anything but one of the allowed words."""
    if type(value) is not str or value not in allowed:
        raise ParameterError(f"unknown {name} {_shown(value)}", f"choose one of {', '.join(allowed)}")


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
