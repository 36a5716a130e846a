"""The HTML page of a stress test: what edits and attacks leave of a mark, in one self-contained file."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from invgnn.audit.report.figures import INK, SOFT, WRONG, draw
from invgnn.audit.report.page import environment
from invgnn.errors import ParameterError
from invgnn.stats.evidence import GRINDING_BITS
from invgnn.storage import container
from invgnn.stress_test.rows import Row
from invgnn.stress_test.run import RELEASED
from invgnn.version import __version__

TOLERATED = 0.02
"""Loss of accuracy that a thief is assumed to accept: two points."""


@dataclass(frozen=True)
class Outcome:
    """The result of a stress test at one reading.

    Attributes:
        access: The access level of the reading.
        shown: Changes after which the evidence still reaches the level alpha.
        lost: Changes after which it does not.
        cheap: The lost ones that keep the accuracy within two points: the mark is removed at almost no
            cost.
        unread: Changes after which this reading is impossible.
        there: Whether the released model shows the mark at all.
    """

    access: str
    shown: list[str]
    lost: list[str]
    cheap: list[str]
    unread: list[str]
    there: bool = True

    def __str__(self) -> str:
        if not self.there:
            return f"at {self.access} the released model does not show the mark: removal cannot be measured"
        total = len(self.shown) + len(self.lost)
        said = f"at {self.access} the mark shows after {len(self.shown)} of {total} changes"
        if self.unread:
            said += f" ({len(self.unread)} make this reading impossible)"
        free = f"; removed within two points of accuracy by: {'; '.join(self.cheap)}" if self.cheap else ""
        return said + free


def outcomes(rows: Sequence[Row], alpha: float = 1e-6) -> list[Outcome]:
    """Summarise the rows of a stress test, one outcome per reading.

    Args:
        rows: The rows, that of the released model first.
        alpha: Significance level.
    """
    released, limit = _released(rows), -math.log2(alpha)
    made = [row for row in rows if row.kind != "released" and row.accuracy is not None]
    found = []
    for access in (found.access for found in released.found):
        read = [(row, at) for row in made if (at := row.at(access)) is not None]
        lost = [row for row, at in read if at.evidence < limit]
        cheap = [row for row in lost if (row.accuracy or 0) >= (released.accuracy or 0) - TOLERATED]
        unread = [row.change for row in made if row.at(access) is None]
        shown = [row.change for row, at in read if at.evidence >= limit]
        before = released.at(access)
        there = before is not None and before.evidence >= limit
        gone, free = ([row.change for row in some] for some in (lost, cheap))
        found.append(Outcome(access, shown, gone, free, unread, there))
    return found


def write_stress(
    path: str | Path,
    rows: Sequence[Row],
    *,
    alpha: float = 1e-6,
    key: str = "keyed",
    title: str = "Stress test",
    command: str = "",
    overwrite: bool = False,
) -> Path:
    """Write a self-contained HTML page of a stress test, readable by its owner only.

    The page tells a thief which attack is effective: do not publish it with the model.

    Args:
        path: Where to write the page.
        rows: The rows of `stress`, that of the released model first.
        alpha: Significance level.
        key: Kind of the mark's key. A plain key gives no evidence, and the page says so.
        title: Title of the page.
        command: The command that made the rows, for reproduction.
        overwrite: Whether to replace an existing file.

    Returns:
        The path.
    """
    text = render(rows, alpha=alpha, key=key, title=title, command=command)
    container.write_text(path, text, overwrite=overwrite, private=True)
    return Path(path)


def render(
    rows: Sequence[Row],
    *,
    alpha: float = 1e-6,
    key: str = "keyed",
    title: str = "Stress test",
    command: str = "",
) -> str:
    """Return the page as text.

    Args:
        rows: The rows of `stress`, that of the released model first.
        alpha: Significance level.
        key: Kind of the mark's key.
        title: Title of the page.
        command: The command that made the rows.
    """
    released = _released(rows)
    html = (
        environment()
        .get_template("stress.html.j2")
        .render(
            title=title,
            alpha=alpha,
            key=key,
            released=released,
            rows=rows,
            refused=[row for row in rows if row.accuracy is None],
            outcomes=outcomes(rows, alpha),
            figures=[(found.access, draw_tradeoff(rows, found.access, alpha)) for found in released.found],
            tolerated=TOLERATED,
            far=GRINDING_BITS,
            alpha_bits=-math.log2(alpha),
            command=re.split(r"(\s+)", command),
            version=__version__,
        )
    )
    return html.encode(errors="replace").decode()  # a name may hold half a character


def draw_tradeoff(rows: Sequence[Row], access: str, alpha: float) -> Markup:
    """Draw remaining evidence against remaining accuracy: edits as dots, attacks as diamonds, all numbered.

    Args:
        rows: The rows.
        access: The access level of the reading.
        alpha: Significance level, drawn as a line.
    """
    placed = [
        (number, row, found)
        for number, row in enumerate(rows)
        if row.accuracy is not None and (found := row.at(access)) is not None
    ]
    said = ", ".join(
        f"{row.change} {row.accuracy:.3f} and {found.evidence:.1f} bits" for _, row, found in placed
    )

    def paint(figure: Figure) -> None:
        ax = figure.add_subplot()
        for bits, dashes in ((-math.log2(alpha), "--"), (GRINDING_BITS, "-")):
            ax.axhline(bits, color=SOFT, lw=0.8, ls=dashes)
        for number, row, found in placed:
            _point(ax, number, row, found.evidence)
        ax.set(xlabel="task accuracy left, %", ylabel="evidence left, bits")
        ax.margins(0.08)
        ax.set_ylim(bottom=min(-3.0, ax.get_ylim()[0]), top=max(1.05 * GRINDING_BITS, ax.get_ylim()[1]))

    return draw(f"tradeoff {access}", 3.2, f"Accuracy and evidence left: {said}.", paint)


def _point(ax: Axes, number: int, row: Row, evidence: float) -> None:
    """Draw the point of one row."""
    look = {"released": ("*", INK, 9.0), "edit": ("o", INK, 3.4), "attack": ("D", "none", 4.0)}
    shape, fill, size = look[row.kind]
    edge = WRONG if row.kind == "attack" else INK
    at = (100 * (row.accuracy or 0.0), evidence)
    ax.plot(*at, shape, ms=size, mfc=fill, mec=edge, mew=0.8)
    if number:
        ax.annotate(str(number), at, (3, 2), textcoords="offset points", fontsize=6, color=edge)


def _released(rows: Sequence[Row]) -> Row:
    """Return the row of the released model, which must be the first."""
    for row in rows[:1]:
        if row.kind == "released":
            return row
    raise ParameterError(
        f"the first row is not that of the model {RELEASED}", "pass all rows of `stress` in their order"
    )
