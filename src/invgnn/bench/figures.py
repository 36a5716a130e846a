"""The style of the figures in the result pages, and files that are the same bytes every time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure

STYLE: dict[str, Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "invgnn",
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.25,
}


@contextmanager
def figure_style() -> Iterator[None]:
    """Draw in the style of the result pages inside a `with` block."""
    with mpl.rc_context(STYLE):  # type: ignore[arg-type]
        yield


def save_figure(figure: Figure, path: Path) -> None:
    """Write a figure without a date, so that the same figure gives the same file, and print its path.

    Args:
        figure: Figure drawn inside `figure_style`. Call this inside the same block.
        path: File to write; its suffix gives the format.
    """
    figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None, dpi=110)
    print(path)
