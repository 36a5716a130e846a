"""The HTML page of a comparison of schemes, in one self-contained file."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from pathlib import Path

from markupsafe import Markup
from matplotlib.figure import Figure

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
        for number, (name, accuracy, bits) in enumerate(sorted(placed, key=lambda one: one[1])):
            ax.plot(accuracy, bits, "o", ms=4, mfc=INK, mec=INK)
            above = (4, (3, -9, 12)[number % 3])  # neighbours have their names at different heights
            ax.annotate(name, (accuracy, bits), above, textcoords="offset points", fontsize=7, color=INK)
        ax.set(xlabel="task accuracy, %", ylabel="evidence, bits")
        ax.margins(0.15)
        ax.set_ylim(bottom=min(-3.0, ax.get_ylim()[0]), top=max(1.05 * GRINDING_BITS, ax.get_ylim()[1]))

    return draw("comparison", 3.4, f"Accuracy and evidence: {said}.", paint)
