"""The one byte string of a JSON value. Changing it breaks every file in the field."""

from __future__ import annotations

import json

from invgnn.errors import ParameterError


def canonical_json(value: object) -> bytes:
    """Return the unique byte string of a JSON value: sorted keys, no spaces, UTF-8, finite numbers.

    Raises:
        ParameterError: If the value is not JSON, or would change when it is read back.
    """
    advice = "Use finite numbers, text, booleans, None, lists, and dicts with text keys."
    form = {"sort_keys": True, "ensure_ascii": False, "allow_nan": False}
    try:
        text = json.dumps(value, separators=(",", ":"), **form)  # type: ignore[arg-type]
        data = text.encode()
        # json turns a tuple into a list and the key 1 into "1"; reading back must give the same value
        if json.loads(text) != value:
            raise TypeError("it would change when it is read back")
    except (TypeError, ValueError, RecursionError) as error:
        raise ParameterError(f"this value has no canonical JSON: {error}", advice) from None
    return data
