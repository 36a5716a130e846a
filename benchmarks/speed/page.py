"""The figures as tables and drawings of the performance page."""

from __future__ import annotations

import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from speed import kept
from speed.clock import Figure

DOCS = Path(__file__).parents[2] / "docs"
APART = ("machine", "settings", "growth")


def summary() -> str:
    """All tables: what was promised, the settings of the embedding, and growth."""
    figures = kept.read()
    told = "; ".join(f.note for f in figures if f.row == "machine")
    parts = [f"Machine: {told}.", _promised(f for f in figures if f.row not in APART)]
    parts += [_settings([f for f in figures if f.row == "settings"])]
    parts += [_growth([f for f in figures if f.row == "growth"])]
    return "\n\n".join(parts)


def _table(head: str, ruler: str, rows: Iterable[Iterable[str]]) -> str:
    return "\n".join([head, ruler, *(f"| {' | '.join(row)} |" for row in rows)])


def _promised(figures: Iterable[Figure]) -> str:
    rows = [
        [f.what, f.against or "–", _target(f), _measured(f), _number(f.wall, f), _held(f), f.note]
        for f in figures
    ]
    head = "| what | against | wanted | measured (quartiles) | wall clock | held | note |"
    return _table(head, "|---|---|--:|--:|--:|---|---|", rows)


def _target(f: Figure) -> str:
    unit = "×" if f.against else " s"
    return f.target.replace(">=", "≥").replace("<=", "≤") + unit if f.target else ""


def _number(value: float, f: Figure) -> str:
    if math.isnan(value):
        return ""
    digits = f"{value:,.0f}" if value >= 100 else f"{value:.2f}" if value < 10 else f"{value:.1f}"
    return f"{digits}×" if f.against else f"{value:.3f} s"


def _measured(f: Figure) -> str:
    return f"{_number(f.value, f)} ({_number(f.low, f)} to {_number(f.high, f)})"


def _held(f: Figure) -> str:
    return {True: "yes", False: "**no**", None: ""}[f.held]


def _settings(figures: list[Figure]) -> str:
    rows = []
    for f in figures:
        bits, tuned, validation = f.note.split("; ")
        name = f"**{f.what}**" if f.what == "default" else f.what
        rows.append([name, _measured(f), bits.split()[0], tuned.split()[0], validation.split()[1]])
    head = "| setting | time against unmarked (quartiles) | bits | bits after fine-tuning | validation |"
    return _table(head, "|---|--:|--:|--:|--:|", rows)


def _growth(figures: list[Figure]) -> str:
    rows = []
    for what in dict.fromkeys(f.what for f in figures):
        sizes = [f for f in figures if f.what == what and f.against != "linear"]
        slope = next(f for f in figures if f.what == what and f.against == "linear")
        times = ", ".join(f"{int(f.against):,}: {f.value:.3g} s" for f in sizes)
        memory = ", ".join(f.note.split(" beyond")[0] for f in sizes)
        rows.append([what, times, memory, f"{slope.value:.2f}", _held(slope)])
    head = "| what | seconds by size | memory beyond program and data | exponent (wanted ≤ 1.1) | held |"
    return _table(head, "|---|---|---|--:|---|", rows)


# -- drawings -------------------------------------------------------------------------------------


def draw_figures(folder: Path = DOCS) -> None:
    """The two figures of the page: evidence against overhead, and growth."""
    import matplotlib as mpl

    mpl.use("agg")
    mpl.rcParams["svg.hashsalt"] = "invgnn"  # the same figures give the same file
    figures = kept.read()
    _draw_settings([f for f in figures if f.row == "settings"], folder / "performance-settings.svg")
    _draw_growth([f for f in figures if f.row == "growth"], folder / "performance-growth.svg")


def _draw_settings(figures: list[Figure], path: Path) -> None:
    import matplotlib.pyplot as plt

    drawing, axes = plt.subplots(figsize=(7.5, 4.2), layout="constrained")
    for kind, place, marker in (("as trained", 0, "o"), ("after fine-tuning at 0.01", 1, "s")):
        bits = [float(f.note.split("; ")[place].split()[0]) for f in figures]
        axes.scatter([f.value for f in figures], bits, marker=marker, label=kind, zorder=3)
    names = []
    for number, f in enumerate(sorted(figures, key=lambda f: f.value), 1):  # names would cover each other
        top, low = (float(part.split()[0]) for part in f.note.split("; ")[:2])
        axes.plot([f.value] * 2, [low, top], color="0.8", linewidth=1, zorder=1)
        weight = "bold" if f.what == "default" else "normal"
        place = {"xytext": (0, 6), "textcoords": "offset points", "ha": "center"}
        axes.annotate(str(number), (f.value, top), fontsize=9, weight=weight, **place)
        names.append(f"{number:>2}  {f.what}")
    axes.text(1.02, 1, "\n".join(names), transform=axes.transAxes, va="top", fontsize=9, linespacing=1.5)
    axes.set(
        xlabel="training time, times that of the unmarked model", ylabel="evidence (bits)", ylim=(0, 140)
    )
    axes.set_xlim(0.9, 1.05 * max(f.value for f in figures))
    axes.set_title("What a mark costs and buys: PROTEINS-GIN, one seed")
    axes.grid(alpha=0.3)
    axes.legend(loc="center right", frameon=False)
    _save(drawing, path)


def _draw_growth(figures: list[Figure], path: Path) -> None:
    import matplotlib.pyplot as plt

    drawing, panels = plt.subplots(1, 2, figsize=(7.5, 3.4), layout="constrained", sharey=True)
    for axes, ending, label in zip(panels, ("by m", "by graphs"), ("carriers m", "graphs"), strict=True):
        for what in dict.fromkeys(f.what for f in figures if f.what.endswith(ending)):
            sizes = [f for f in figures if f.what == what and f.against != "linear"]
            x, y = [int(f.against) for f in sizes], [f.value for f in sizes]
            axes.loglog(x, y, "o-", label=what.removesuffix(f" {ending}"))
        if axes.lines:
            x = axes.lines[0].get_xdata()
            start = float(max(line.get_ydata()[0] for line in axes.lines)) * 1.6
            axes.loglog(x, [start * s / x[0] for s in x], ":", color="0.5", label="linear")
            axes.set_xticks(x, [f"{int(s):,}" for s in x])
            axes.minorticks_off()
        axes.set(xlabel=label)
        axes.grid(alpha=0.3)
        axes.legend(fontsize=8, frameon=False)
    panels[0].set_ylabel("seconds of processor time")
    _save(drawing, path)


def _save(drawing: Any, path: Path) -> None:
    import matplotlib.pyplot as plt

    drawing.savefig(path, metadata={"Date": None})
    plt.close(drawing)
