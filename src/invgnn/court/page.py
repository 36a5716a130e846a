"""Render a judgement as one self-contained HTML page, for readers who are no engineers."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, NamedTuple

from invgnn.audit.report.page import SYMBOLS, environment
from invgnn.audit.verdict import EXPLANATIONS
from invgnn.court.grounds import ceil_bits
from invgnn.court.judgement import Judgement
from invgnn.storage.atomic import write_text

TEMPLATES = "invgnn.court"
"""The package with the templates."""
TITLES = {
    "signature": "Signature of the claim",
    "timestamp": "Date of the claim",
    "token": "Date before the bits were drawn",
    "revocation": "Revocation",
    "opening": "Opening",
    "reference": "Reference data",
    "commitment": "Commitment to the secret",
    "regeneration": "Regeneration of the mark",
    "transform": "Transform of the inputs",
    "key": "Validity of the key",
    "leaves": "Revealed carriers",
    "controls": "Control models",
    "suspect": "Suspect",
}
"""The names of checks on the page."""
READ_AT = {
    "embedding": "the representation before the last layer (embedding)",
    "logits": "class scores (logits)",
    "labels": "the top class alone (labels)",
    "values": "real-valued outputs (values)",
}
"""The levels of access in words."""


class Moment(NamedTuple):
    """One entry of the timeline.

    Attributes:
        time: The time as text; empty if unknown.
        what: What happened.
        how: How it is known.
    """

    time: str
    what: str
    how: str


def write_judgement(path: str | Path, judgement: Judgement, *, overwrite: bool = False) -> Path:
    """Write a judgement as one HTML page without scripts and network access. It contains no secret.

    Args:
        path: Where to write the page.
        judgement: The judgement.
        overwrite: Whether to replace an existing file.

    Returns:
        The path.
    """
    write_text(path, render_judgement(judgement), overwrite=overwrite)
    return Path(path)


def render_judgement(judgement: Judgement) -> str:
    """Return the page as text.

    Args:
        judgement: The judgement.
    """
    said = judgement.payload
    made = environment(TEMPLATES)
    made.filters["needed"] = ceil_bits
    html = made.get_template("judgement.html.j2").render(
        j=said,
        v=said["verdict"],
        digest=judgement.document.digest,
        symbols=SYMBOLS,
        titles=TITLES,
        read_at=READ_AT,
        timeline=timeline(said),
        explanations=EXPLANATIONS,
        command=re.split(r"(\s+)", said["recheck"]),
    )
    return html.encode(errors="replace").decode()  # a name may hold half a character


def timeline(said: dict[str, Any]) -> list[Moment]:
    """Return the dates of a case, in their order; unknown ones come last.

    Args:
        said: The payload of a judgement.
    """
    dates = said["timeline"]
    known = [
        Moment(
            dates["drawn_after"] or "", "The secret was fixed, then the bits were drawn", "timestamp token"
        ),
        Moment(
            dates["claimed_by"] or "",
            "The claim existed",
            f"timestamp of {dates['authority']}" if dates["authority"] else "no timestamp that counts",
        ),
        Moment(
            dates["suspect_not_before"] or "",
            "The suspect did not exist before",
            "found by the judge, not proven here",
        ),
        Moment(dates["judged_at"], "The judgement was made", "clock of the judge"),
    ]
    needed = [one for one in known if one.time or one is not known[0]]  # few marks are bound to a token
    return sorted(needed, key=lambda one: one.time or "9")
