"""What a mark is bound to before anything is drawn: checked, and hashed into every derivation."""

from __future__ import annotations

import hashlib
from typing import Any

from invgnn import files, null
from invgnn.errors import ParameterError
from invgnn.invariants import find_invariant
from invgnn.reading import Reading

FORMAT = 1
LEVELS = ("graph", "node")
_NAMES = {"format", "m", "key", "invariant", "gap", "sampler", "level", "reference"}
_NAMES |= {"readings", "statistic", "ordinary"}


def bind(context: dict[str, Any]) -> str:
    """The digest that every derivation of a mark is bound to."""
    return hashlib.sha256(b"invgnn/context/1" + files.canonical_json(context)).hexdigest()


def check_context(context: dict[str, Any]) -> None:
    """Refuse a context that no sound mark could have."""
    if context.keys() - {"function"} != _NAMES or context["format"] != FORMAT:
        raise ParameterError("this context is not one this version binds marks to", "draw the mark anew")
    null.check_m(context["m"])
    find_invariant(context["invariant"])
    for name, allowed in (("key", ("keyed", "plain")), ("statistic", null.STATISTICS), ("level", LEVELS)):
        if context[name] not in allowed:
            raise ParameterError(f"unknown {name} {context[name]!r}", f"choose one of {', '.join(allowed)}")
    if not 0 <= context["gap"] <= 0.5:
        raise ParameterError(f"gap={context['gap']} is not in [0, 0.5]", "0.25 suits most tasks")
    size = context.get("function", 2)
    if not isinstance(size, int) or size < 2:
        raise ParameterError(
            f"function={size!r} is no number of features", "use 128, or one for every 20 inputs"
        )
    if "function" in context and context["key"] != "keyed":
        raise ParameterError("a second channel stands beside a keyed mark only", "draw it with key='keyed'")
    declared = [Reading(**record).access for record in context["readings"]]
    if not declared or len(set(declared)) != len(declared):
        raise ParameterError(
            f"readings are declared at {', '.join(declared) or 'no access level'}",
            "declare each access level at most once, and at least one, e.g. 'logits'",
        )
