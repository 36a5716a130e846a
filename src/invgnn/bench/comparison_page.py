"""The HTML page of a comparison of schemes, in one self-contained file."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from pathlib import Path

from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.text import Annotation
from matplotlib.transforms import Bbox

from invgnn.audit.report.figures import INK, SOFT, draw
from invgnn.audit.report.page import environment
from invgnn.bench.comparison import ALPHA, Line
from invgnn.stats.evidence import GRINDING_BITS
from invgnn.storage import container
from invgnn.version import __version__


def write_comparison(
    path: str | Path, lines: Sequence[Line], *, setting: str, command: str = "", overwrite: bool = False
) -> Path:
    """Write a comparison as a self-contained HTML page.

    Args:
        path: Where to write the page.
        lines: The lines of the comparison.
        setting: Task and backbone.
        command: The command that made them, for reproduction.
        overwrite: Whether to replace an existing file.

    Returns:
        The path.
    """
    container.write_text(path, render(lines, setting=setting, command=command), overwrite=overwrite)
    return Path(path)


def render(lines: Sequence[Line], *, setting: str, command: str = "") -> str:
    """Return the page as text.

    Args:
        lines: The lines of the comparison.
        setting: Task and backbone.
        command: The command that made them.
    """
    page = environment("invgnn.bench").get_template("comparison.html.j2")
    return page.render(
        title=f"Watermarking schemes on {setting}",
        lines=lines,
        seeds=max((line.seeds for line in lines), default=0),
        drawing=draw_lines(lines),
        alpha=ALPHA,
        alpha_bits=-math.log2(ALPHA),
        far=GRINDING_BITS,
        command=re.split(r"(\s+)", command),
        version=__version__,
    )


def draw_lines(lines: Sequence[Line]) -> Markup:
    """Draw the evidence of every scheme against its accuracy.

    Args:
        lines: The lines of the comparison.
    """
    placed = [(line.scheme, 100 * line.accuracy.mean, line.bits) for line in lines if line.accuracy]
    said = ", ".join(f"{name} {accuracy:.1f} % and {bits:.1f} bits" for name, accuracy, bits in placed)

    def paint(figure: Figure) -> None:
        ax = figure.add_subplot()
        for bits, dashes in ((-math.log2(ALPHA), "--"), (GRINDING_BITS, "-")):
            ax.axhline(bits, color=SOFT, lw=0.8, ls=dashes)
        ax.plot([x for _, x, _ in placed], [y for _, _, y in placed], "o", ms=4, mfc=INK, mec=INK)
        ax.set(xlabel="task accuracy, %", ylabel="evidence, bits")
        ax.margins(0.15)
        ax.set_ylim(bottom=min(-3.0, ax.get_ylim()[0]), top=max(1.05 * GRINDING_BITS, ax.get_ylim()[1]))
        write_names(figure, ax, placed, [-math.log2(ALPHA), GRINDING_BITS])

    return draw("comparison", 3.4, f"Accuracy and evidence: {said}.", paint)


PLACES = tuple(
    (x, y, side) for y in (0, 9, -9, 18, -18, 27, -27) for x, side in ((6, "left"), (-6, "right")) if y or x
)
"""Where a name may stand: the offset from its point in typographic points, and its alignment."""
LEADER = {"arrowstyle": "-", "lw": 0.5, "color": SOFT, "shrinkA": 0, "shrinkB": 3}
"""The line to a point from a name that does not stand beside it."""


def write_names(
    figure: Figure, ax: Axes, placed: Sequence[tuple[str, float, float]], lines: Sequence[float]
) -> list[Bbox]:
    """Write a name beside every point, where it covers no point, no line and no other name if possible.

    Args:
        figure: The figure.
        ax: Its axes; their limits do not change any more.
        placed: Names and coordinates of the points.
        lines: Heights of horizontal lines.

    Returns:
        Where the names stand, in pixels.
    """
    figure.draw_without_rendering()  # the layout, and with it the place of every point, is known now
    inside = ax.get_window_extent()
    points = [ax.transData.transform((x, y)) for _, x, y in placed]
    taken = [Bbox.from_bounds(x - 3, y - 3, 6, 6) for x, y in points]
    heights = [float(ax.transData.transform((0, line))[1]) for line in lines]
    ruled = [Bbox.from_bounds(inside.x0, y - 1, inside.width, 2) for y in heights]
    written = []
    for name, x, y in sorted(placed, key=lambda one: one[1]):
        text = ax.annotate(
            name, (x, y), (0, 0), textcoords="offset points", va="center", fontsize=7, color=INK
        )
        text.set_in_layout(False)

        def covered(place: tuple[int, int, str], text: Annotation = text) -> tuple[bool, int, int]:
            text.set(position=place[:2], ha=place[2])
            box = text.get_window_extent()
            outside = box.x0 < inside.x0 or box.x1 > inside.x1
            return outside, box.count_overlaps(taken), box.count_overlaps(ruled)

        best = min(PLACES, key=covered)
        covered(best)
        if best[1]:
            ax.annotate("", (x, y), best[:2], textcoords="offset points", arrowprops=LEADER)
        written.append(text.get_window_extent())
        taken.append(written[-1])
    return written
