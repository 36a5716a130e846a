"""Traces as text, as a CSV table, and as an HTML page."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Sequence

from invgnn.audit.report.page import environment
from invgnn.audit.verdict import ceil_p, floor_bits
from invgnn.court.page import TEMPLATES
from invgnn.court.tracing import Trace, fewest_bits, named

MOST_MARKS = 40
"""Largest number of marks in the matrix of a page; all others are in the CSV table."""
FORMULA = ("=", "+", "-", "@", "\t", "\r")
"""Characters with which a formula may begin for a spreadsheet."""
MOST_NAMED = 20
"""Largest number of named marks per suspect in the text."""


def as_csv(rows: Sequence[Trace]) -> str:
    """Return every mark and suspect as a CSV table."""
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, list(Trace.__dataclass_fields__))
    writer.writeheader()
    writer.writerows({name: _cell(value) for name, value in row.record().items()} for row in rows)
    return text.getvalue()


def _cell(value: object) -> object:
    """Return a value of a table; a text that a spreadsheet would compute is quoted."""
    return f"'{value}" if isinstance(value, str) and value[:1] in FORMULA else value


def as_text(rows: Sequence[Trace], alpha: float) -> str:
    """Return the traces as text: for every suspect the marks that are named, or the best one."""
    marks, suspects = len({row.mark for row in rows}), named(rows)
    lines = [
        f"{marks} marks, {len(suspects)} suspects; evidence is corrected for {marks * len(suspects)} "
        f"tests, alpha = {alpha:g}"
    ]
    for suspect in suspects:
        held = sorted((row for row in rows if row.suspect == suspect), key=lambda row: -row.evidence_bits)
        shown = [row for row in held if row.named][:MOST_NAMED]
        lines += [
            f"  {suspect}: {row.mark} ({floor_bits(row.evidence_bits)} bits, {row.matches} of {row.m} at "
            f"{row.access})"
            for row in shown
        ]
        if not shown:
            best = min(held, key=lambda row: row.log10_p)
            why = f"; {best.note}" if best.note else ""
            lines.append(f"  {suspect}: none (best p alone {ceil_p(best.log10_p)}, {best.mark}){why}")
    return "\n".join(lines)


def render_traces(rows: Sequence[Trace], alpha: float, command: str = "") -> str:
    """Return the traces as one self-contained HTML page.

    Args:
        rows: The traces.
        alpha: The false-positive rate of the whole table.
        command: The command that repeats them.
    """
    marks = {row.mark for row in rows}
    best = {mark: max(row.evidence_bits for row in rows if row.mark == mark) for mark in marks}
    shown = sorted(marks, key=lambda mark: (-best[mark], mark))[:MOST_MARKS]
    cells = {(row.suspect, row.mark): row for row in rows if row.mark in shown}
    found = named(rows)
    page = environment(TEMPLATES).get_template("trace.html.j2")
    html = page.render(
        alpha=alpha,
        marks=shown,
        total=len(marks),
        named=found,
        cells=cells,
        tests=len(marks) * len(found),
        needed=fewest_bits(alpha, len(marks) * len(found)),
        command=re.split(r"(\s+)", command) if command else [],
    )
    return html.encode(errors="replace").decode()
