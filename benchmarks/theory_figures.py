"""Draw the figures of docs/explanation/theory.md.

make theory-figures
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import groupby
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from invgnn.bench.figures import figure_style, save_figure

FIGURES = Path(__file__).parents[1] / "docs" / "results" / "figures"


def draw(name: str, paint: Callable[[Axes], None]) -> None:
    """Draw one figure into its file."""
    with figure_style():
        figure = Figure(figsize=(5.6, 3.2), layout="constrained")
        paint(figure.add_subplot())
        save_figure(figure, FIGURES / name)


def thresholds(ax: Axes) -> None:
    """Draw the share of bits that every null requires, and the paper's own table."""
    from invgnn.theory.sizes import paper_table
    from invgnn.theory.sizes import thresholds as rows

    ms = range(16, 257, 4)
    for name, group in groupby(rows(ms), key=lambda row: row.null):
        found = list(group)
        unsound = "" if all(row.sound for row in found) else ", unsound"
        ax.plot(ms, [row.threshold / row.m for row in found], "-", label=name + unsound)
    printed = paper_table()
    ax.plot(
        [row.m for row in printed], [row.threshold / row.m for row in printed], "kx", label="paper's table"
    )
    ax.set(xlabel="carriers m", ylabel="share of bits needed at α = 10⁻⁶")
    ax.legend(frameon=False)


def effort(ax: Axes) -> None:
    """Draw the processor time of the exact minimum, of greedy and of rounding, against size."""
    from invgnn.theory.cover import measure_effort

    found = measure_effort((10, 20, 30, 40, 50, 60, 70, 80), np.random.default_rng(0), seconds=60)
    for method in ("exact", "rounded", "greedy"):
        rows = [row for row in found if row.method == method]
        ax.semilogy([row.size for row in rows], [row.seconds for row in rows], "o-", label=method)
    ax.set(xlabel="elements, and as many sets", ylabel="processor seconds, one instance each")
    ax.legend(frameon=False)


def radius(ax: Axes) -> None:
    """Draw the evidence that survives every change of the weights within a radius: Cora-GCN, seed 41."""
    from invgnn.secret import Secret, public_stream
    from invgnn.theory.smoothing import Noise, SmoothedEvidence, noisy_log_p, read_noisy
    from invgnn.training.tasks import load_task, new_model
    from invgnn.training.trainer import train
    from invgnn.watermark.mark import Watermark
    from invgnn.watermark.recipe import Recipe
    from invgnn.watermark.sampler import Sampler

    task = load_task("Cora", 41)
    secret = Secret(public_stream("owner", "Cora/GCN", 41).bytes(32))
    recipe = Recipe(after_task=0, weight_scale=None)
    mark = Watermark.draw(secret, task.data, sampler=Sampler(donors=None), recipe=recipe)
    model = new_model(task, "GCN", 41)
    train(model, task, mark, seed=41)
    for sigma in (0.1, 0.3, 1.0):
        noise = Noise.like(new_model(task, "GCN", 42), sigma)
        seen = read_noisy(mark, model, noise, np.random.default_rng(41), draws=1000)
        smooth = SmoothedEvidence(noisy_log_p(mark, seen), noise)
        at = np.linspace(0, 3 * sigma, 60)
        ax.plot(at, [smooth.evidence(float(r)) for r in at], label=f"noise {sigma}")
    ax.axhline(-np.log2(1e-6), color="grey", lw=0.8, ls="--")
    ax.set(xlabel="radius, in mean absolute weights of a fresh model", ylabel="certified bits, 99.9 %")
    ax.legend(frameon=False)


if __name__ == "__main__":
    draw("theory-thresholds.svg", thresholds)
    draw("theory-effort.svg", effort)
    draw("theory-radius.svg", radius)
