"""The page of a report: one self-contained file to look at, with tables to sort and links to the rows."""

from __future__ import annotations

import base64
import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from statistics import median

from markupsafe import Markup

from invgnn.audit.report.page import environment
from invgnn.bench.report.drawing import Drawing
from invgnn.bench.report.evidence import Cell, Evidence, numbers
from invgnn.bench.report.table import Table
from invgnn.version import __version__

UNCHANGED = "no change"


@dataclass(frozen=True)
class Heat:
    """A heat map of the evidence of one scheme.

    Attributes:
        scheme: The scheme.
        columns: Settings.
        rows: For every change its name and one cell per setting, each with the step of its colour.
    """

    scheme: str
    columns: list[str]
    rows: list[tuple[str, list[tuple[Cell, str]]]]


def heat_maps(evidence: Evidence) -> list[Heat]:
    """Return the evidence by setting and change, one map for each scheme.

    Args:
        evidence: The rows.
    """
    settings = list(
        dict.fromkeys([*evidence.values("change", "setting"), *evidence.values("mark", "setting")])
    )
    schemes = dict.fromkeys([*evidence.values("mark", "scheme"), *evidence.values("change", "scheme")])
    pairs = dict.fromkeys(
        (row.arguments["change"], row.arguments["thief"])
        for row in evidence.rows
        if row.measure == "change"
    )
    found = []
    for scheme in schemes:
        rows = [(UNCHANGED, [_spot(evidence, "mark", setting=s, scheme=scheme) for s in settings])]
        for change, thief in pairs:
            cells = [
                _spot(evidence, "change", setting=s, scheme=scheme, change=change, thief=thief)
                for s in settings
            ]
            rows.append((f"{change} · {thief}", cells))
        found.append(Heat(scheme, settings, [row for row in rows if any(cell.rows for cell, _ in row[1])]))
    return [one for one in found if one.rows]


def _spot(evidence: Evidence, measure: str, **conditions: str) -> tuple[Cell, str]:
    """Return a cell with the median evidence of some rows, and the step of its colour."""
    rows = evidence.find(measure, **conditions)
    bits = numbers(rows, "bits")
    if not bits:
        return evidence.cell("–" if rows else "", rows), heat(None)
    return evidence.cell(f"{median(bits.values()):.0f}", rows, median(bits.values())), heat(
        median(bits.values())
    )


def heat(bits: float | None) -> str:
    """Return how strong evidence is, as a step from 0 (none) to 6 (far beyond search).

    Args:
        bits: Evidence in bits; None if it was not read.
    """
    if bits is None or math.isnan(bits):
        return "none"
    return str(sum(bits >= limit for limit in (5, 10, 20, 40, 80, 120)))


def render_page(evidence: Evidence, tables: Sequence[Table], drawings: Sequence[Drawing]) -> str:
    """Return the page as text.

    Args:
        evidence: The rows.
        tables: The tables.
        drawings: The figures.
    """
    script = files("invgnn.bench").joinpath("templates/report.js").read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    shown = [table for table in tables if table.rows]
    page = environment("invgnn.bench").get_template("report.html.j2")
    text = page.render(
        title="Watermarking schemes: the benchmark",
        grids=evidence.grids,
        tables=shown,
        lacking=[table.title for table in tables if not table.rows],
        drawings=drawings,
        heats=heat_maps(evidence),
        rows=evidence.rows,
        stale=evidence.stale,
        missing=evidence.missing,
        script=Markup(script),  # noqa: S704 - our own file
        digest=digest,
        version=__version__,
    )
    return text.encode(errors="replace").decode()
