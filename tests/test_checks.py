"""Checks of single values: exact types, ends of ranges, and a message that shows the value."""

from __future__ import annotations

import math

import numpy as np
import pytest

from invgnn.checks import check_choice, check_flag, check_number, check_whole
from invgnn.errors import ParameterError


def refused(check, *arguments):
    with pytest.raises(ParameterError) as caught:
        check(*arguments)
    assert caught.value.advice
    return caught.value.message


def test_whole_numbers_lie_within_their_ends():
    for value in (2, 3, 5):
        check_whole("n", value, 2, 5)
    for value in (1, 6, 3.0, True, "3", None, np.int64(3)):
        assert (
            refused(check_whole, "n", value, 2, 5) == f"n is {value!r}, expected a whole number from 2 to 5"
        )


def test_numbers_are_finite():
    for value in (0, -1.5, 10**30, 1e308):
        check_number("x", value)
    for value in (math.inf, -math.inf, math.nan, True, "1", None, np.float64(1)):
        assert refused(check_number, "x", value) == f"x is {value!r}, expected a finite number"


def test_flags_are_true_or_false():
    for value in (True, False):
        check_flag("f", value)
    for value in (0, 1, None, "true"):
        assert refused(check_flag, "f", value) == f"f is {value!r}, expected true or false"


def test_choices_are_among_those_allowed():
    check_choice("c", "a", ("a", "b"))
    for value in ("c", None, 1, ["a"], ""):
        assert refused(check_choice, "c", value, ("a", "b")) == f"unknown c {value!r}"


def test_long_values_are_cut():
    """To sixty characters, quotes included."""
    assert refused(check_choice, "c", "x" * 58, ()) == f"unknown c '{'x' * 58}'"
    assert refused(check_choice, "c", "x" * 59, ()) == f"unknown c '{'x' * 56}..."
