"""A figure of a report, and what the figures have in common."""

from __future__ import annotations

from dataclasses import dataclass

from markupsafe import Markup
from matplotlib.axes import Axes

from invgnn.audit.report.figures import INK, SOFT, STEM, VARIABLES, WRONG
from invgnn.stats.evidence import GRINDING_BITS

NEEDED = 20.0
"""Bits that α = 10⁻⁶ requires."""
SHAPES = "osD^vPX*<>hp"
FILE_COLOURS = {INK: "#1c1e21", SOFT: "#6a7077", STEM: "#a9b1ba", WRONG: "#a3241b"}
"""Colours in files, which have no style sheet."""


@dataclass(frozen=True)
class Drawing:
    """A figure.

    Attributes:
        name: Name of its file.
        title: Its heading.
        caption: What it shows.
        svg: The figure for a page; empty if there are no rows for it.
    """

    name: str
    title: str
    caption: str
    svg: Markup

    def file(self) -> str:
        """Return the figure as an SVG file of its own."""
        text = str(self.svg)
        for colour, variable in VARIABLES.items():
            text = text.replace(variable, FILE_COLOURS[colour])
        return (
            text.replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" font-family="sans-serif" ', 1)
            + "\n"
        )


def limits(ax: Axes) -> None:
    """Draw the lines of 20 and 80 bits.

    Args:
        ax: Axes with bits from bottom to top.
    """
    for bits, dashes in ((NEEDED, "--"), (GRINDING_BITS, ":")):
        ax.axhline(bits, color=SOFT, lw=0.8, ls=dashes)


def shape(number: int) -> str:
    """Return the marker of a scheme.

    Args:
        number: Its place among the schemes of a figure.
    """
    return SHAPES[number % len(SHAPES)]
