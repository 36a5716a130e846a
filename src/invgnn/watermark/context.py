"""The context of a mark: what every derivation is bound to, checked before anything is drawn.

Field names and their encoding are part of the format: changing them breaks every mark in the field.
"""

from __future__ import annotations

import hashlib
import re
from typing import Any

from invgnn.checks import check_choice, check_number, check_whole
from invgnn.errors import ParameterError
from invgnn.graphs.invariants import find_invariant
from invgnn.readout.reading import MOST_CLASSES, Reading
from invgnn.stats import laws
from invgnn.stats.evidence import STATISTICS
from invgnn.storage import container, encoding
from invgnn.watermark.sampler import Sampler

FORMAT = 2
"""The format of new marks. Format 1 had no labels, and its directions depended on a model's width."""
LEVELS = ("graph", "node")
LEAST_FEATURES, MOST_FEATURES = laws.LEAST_DIMENSION, 4096
MOST_M = 4096
MOST_ORDINARY = 65_536
_NAMES = {"format", "m", "key", "invariant", "gap", "sampler", "level", "reference"}
_NAMES |= {"readings", "statistic", "ordinary"}
_DIGEST = re.compile("[0-9a-f]{64}").fullmatch


def bind(context: dict[str, Any]) -> str:
    """Return the digest that every derivation of a mark is bound to."""
    if context["format"] == 1:  # canonical JSON is invertible too; the fixed prefix separates the domain
        return hashlib.sha256(b"invgnn/context/1" + container.canonical_json(context)).hexdigest()
    return encoding.digest("invgnn/context/2", context)


def check_context(context: dict[str, Any]) -> None:
    """Refuse a context that no sound mark could have.

    Raises:
        ParameterError: If a field is missing, unknown, of another type or outside its limits.
    """
    if not isinstance(context, dict) or context.get("format") not in (1, FORMAT):
        raise ParameterError("the context has no format that this version knows", "draw the mark anew")
    check_whole("format", context["format"], 1, FORMAT)
    wanted = _NAMES | ({"classes"} if context["format"] == FORMAT else set())
    optional = {"function", "token", "shared_halves"} if context["format"] == FORMAT else {"function"}
    if context.keys() - optional != wanted:
        odd = sorted((context.keys() - optional) ^ wanted)
        raise ParameterError(f"the context has missing or unknown fields: {odd}", "draw the mark anew")
    laws.check_m(context["m"])
    check_whole("m", context["m"], laws.SMALLEST_M, MOST_M)
    check_choice("key", context["key"], ("keyed", "plain"))
    check_choice("statistic", context["statistic"], STATISTICS)
    check_choice("level", context["level"], LEVELS)
    if type(context["invariant"]) is not str:
        raise ParameterError("the invariant is not a name", "use a name such as 'lambda2'")
    find_invariant(context["invariant"])
    check_number("gap", context["gap"])
    if not 0 <= context["gap"] <= 0.5:
        raise ParameterError(f"gap={context['gap']} is not in [0, 0.5]", "0.25 suits most tasks")
    check_whole("ordinary", context["ordinary"], 1, MOST_ORDINARY)
    if type(context["reference"]) is not str or not _DIGEST(context["reference"]):
        raise ParameterError("the reference is not a SHA-256 digest in hex", "draw the mark anew")
    if "token" in context and (type(context["token"]) is not str or not _DIGEST(context["token"])):
        raise ParameterError("the token is not a SHA-256 digest in hex", "draw the mark anew")
    if context.get("classes") is not None:
        check_whole("classes", context["classes"], 2, MOST_CLASSES)
    Sampler.recall(context["sampler"])
    if "function" in context:
        _check_score_channel(context)
    _check_readings(context)


def _check_score_channel(context: dict[str, Any]) -> None:
    check_whole("score_channel", context["function"], 1, MOST_FEATURES)
    if context["function"] < LEAST_FEATURES:
        raise ParameterError(
            f"score_channel={context['function']}: in so few dimensions rounding can pass for evidence",
            f"use from {LEAST_FEATURES} to {MOST_FEATURES} features (128, or one for every 20 inputs), and "
            "draw and teach the mark anew",
        )
    if context["key"] != "keyed":
        raise ParameterError("a score channel needs a keyed mark", "draw it with key='keyed'")


def _check_readings(context: dict[str, Any]) -> None:
    records = context["readings"]
    if not isinstance(records, list) or not all(isinstance(one, dict) for one in records):
        raise ParameterError("the readings are not a list of records", "draw the mark anew")
    readings = [Reading.recall(record) for record in records]
    declared = [reading.access for reading in readings]
    if not declared or len(set(declared)) != len(declared):
        raise ParameterError(
            f"readings are declared at {', '.join(declared) or 'no access level'}",
            "declare each access level at most once, and at least one, e.g. 'logits'",
        )
    if "values" in declared and {"logits", "labels"} & set(declared):
        raise ParameterError(
            "outputs are declared as class scores and as real values",
            "declare 'logits' and 'labels' for a classifier, 'values' for any other output",
        )
    if len({reading.layer for reading in readings if reading.hidden}) > 1:
        raise ParameterError("two hidden layers are declared", "declare one layer for all readings")
    if "shared_halves" in context and not (
        context["shared_halves"] is True and {"logits", "labels"} <= set(declared)
    ):
        raise ParameterError(
            "shared_halves is set without both logits and labels, or is not true", "draw the mark anew"
        )
    counts = {reading.classes for reading in readings if reading.access == "labels"}
    if context.get("classes") is not None and not counts <= {context["classes"]}:
        raise ParameterError(
            f"labels of {counts} classes are declared for a task of {context['classes']}",
            "pass classes= once, or leave it out where the data have labels",
        )
