"""Measure how far forgers get against innocent models: searches for carriers, and all other forgeries.

    make forgers         # tables in docs/results/appendix/forgeries.md

A search shows carrier sets to an unmarked model and sees the number of matches T. `naive` assumes that the
matches of plain bits are fair coins; `real` is the evidence of the same search against keyed bits, without
a correction for the number of tests. Every other forgery has one row: what the naive check computes, and
the best that the real verification gave.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from invgnn.bench.figures import figure_style, save_figure
from invgnn.bench.markdown import table
from invgnn.bench.script import run_benchmark
from invgnn.storage.tables import read_rows

SETTING, SEEDS, EPOCHS = "PROTEINS/GIN", range(41, 46), 50
CHECKPOINTS = (10, 30, 100, 300, 1000, 3000, 10_000, 30_000, 100_000)
NEEDED, ENOUGH = 20, 80
"""Bits that α = 10⁻⁶ requires, and that `owned` requires without a claim."""
ROOT = Path(__file__).parents[1]
PATH = ROOT / "benchmarks" / "results" / "forgers.csv"
FIGURE = ROOT / "docs" / "results" / "figures" / "forger-curves.svg"
NAMES = {"cma": "CMA", "tpe": "TPE", "gp": "Gaussian process"}
LOOKS = (("#56b4e9", "o"), ("#0072b2", "D"), ("#e69f00", "s"), ("#d55e00", "v"), ("#000000", "X"))
"""Colour and marker of each search."""
Curves = dict[str, list[list[dict[str, str]]]]


def grid() -> Iterator[dict[str, Any]]:
    """Yield all trials: seeds in turn, cheap forgeries first."""
    from invgnn.attacks.forgery import Hunt, suite

    forgeries = sorted(suite(), key=lambda one: isinstance(one, Hunt))
    for seed in SEEDS:
        for forgery in forgeries:
            yield {"setting": SETTING, "seed": seed, "forgery": repr(forgery)}


def trial(setting: str, seed: int, forgery: str) -> list[dict[str, Any]]:
    """Train an innocent model and forge against it; a search gives one row per checkpoint."""
    from invgnn.attacks.forgery import Hunt, suite

    chosen = next(one for one in suite() if repr(one) == forgery)
    chosen.seed = seed
    model, task = accused(setting, seed, chosen.accuses)
    key = {"setting": setting, "seed": seed, "forgery": forgery}
    if isinstance(chosen, Hunt):
        return [key | row for row in curve(chosen, model, task)]
    made = chosen(model, task)
    outcomes = made.outcomes()
    on_model = [one.bits for one in outcomes if one.kind in {"not owned", "owned"}]
    kinds = " · ".join(dict.fromkeys(one.kind for one in outcomes))
    return [key | _row(made.tried, made.naive.bits, made.naive.passes, max(on_model, default=0.0), kinds)]


def accused(setting: str, seed: int, kind: str) -> tuple[Any, Any]:
    """Train a model without a mark, or one that another owner trained to perceive λ₂."""
    from invgnn.attacks.forgery.forgery import KEPT
    from invgnn.nn.perception import attach_head
    from invgnn.nn.rng import seeded
    from invgnn.secret import Secret, public_stream
    from invgnn.training.tasks import load_task, new_model, parse_setting
    from invgnn.training.trainer import train
    from invgnn.watermark.mark import Watermark
    from invgnn.watermark.recipe import Recipe

    name, backbone = parse_setting(setting)
    task, mark = load_task(name, seed), None
    model = new_model(task, backbone, seed)
    if kind == "perceiving":
        with seeded(seed):
            attach_head(model, 64)
        secret = Secret(public_stream("somebody else", setting, seed).bytes(32))
        recipe = Recipe(gradient_projection=False, warmup_steps=0, after_task=0, weight_scale=None)
        how: dict[str, Any] = {"key": "plain", "access": "perception", "sampler": KEPT}
        mark = Watermark.draw(secret, task.data, recipe=recipe, **how)
    train(model, task, mark, seed=seed, epochs=EPOCHS)
    return model, task


def curve(hunt: Any, model: Any, task: Any) -> Iterator[dict[str, Any]]:
    """Yield the best evidence after so many audits, by the naive check and by the real one."""
    from invgnn.stats import laws, null

    best = {key: hunt.hunt(hunt.ground(model, task, key)).best for key in ("plain", "keyed")}
    for queries in [n for n in CHECKPOINTS if n < hunt.budget] + [hunt.budget]:
        t, keyed = (int(best[key][queries - 1]) for key in ("plain", "keyed"))
        naive = laws.evidence_bits(null.NULLS["binomial"].log_tail(hunt.m, t))
        real = laws.evidence_bits(laws.log_p_matches(keyed, hunt.m, hunt.m // 2))
        passes = t >= null.NULLS["binomial"].threshold(hunt.m, 1e-6)
        yield _row(queries, naive, passes, real, "not owned" if real < ENOUGH else "owned")


def _row(queries: int, naive: float, passes: bool, real: float, outcome: str) -> dict[str, Any]:
    return {
        "queries": queries,
        "naive_bits": round(naive, 2),
        "naive_passes": int(passes),
        "real_bits": round(real, 2),
        "outcome": outcome,
    }


def curves(rows: list[dict[str, str]]) -> Curves:
    """Return the rows of every search: for each checkpoint, those of all seeds."""
    found: dict[str, dict[int, list[dict[str, str]]]] = {}
    for row in rows:
        if " search, " in row["forgery"]:
            name = row["forgery"].partition(" ")[0]
            points = found.setdefault(NAMES.get(name, name), {})
            points.setdefault(int(row["queries"]), []).append(row)
    return {name: [points[n] for n in sorted(points)] for name, points in found.items()}


def summary() -> str:
    """Return the tables of searches and of other forgeries; medians over seeds."""
    if not PATH.exists():
        return "Not measured yet: `make forgers`."
    rows = read_rows(PATH)
    return f"## Searches\n\n{_searches(curves(rows))}\n\n## Other forgeries\n\n{_others(rows)}"


def _searches(found: Curves) -> str:
    lines = []
    for name, points in found.items():
        for part in points:
            passes, naive, real, most = _results(part)
            audits = f"{int(part[0]['queries']):,}"
            lines.append(
                [name, audits, str(len(part)), passes, f"{naive:.0f}", f"{real:.1f} (most {most:.1f})"]
            )
    head = [
        "search",
        "audits",
        "seeds",
        "passes the naive check",
        "naive bits",
        "bits against a keyed mark",
    ]
    return table(head, lines)


def _others(rows: list[dict[str, str]]) -> str:
    lines = []
    for name in dict.fromkeys(r["forgery"] for r in rows if " search, " not in r["forgery"]):
        part = [r for r in rows if r["forgery"] == name]
        passes, naive, real, most = _results(part)
        outcome = " / ".join(dict.fromkeys(r["outcome"] for r in part))
        tests = f"{int(part[0]['queries']):,}"
        bits = f"{real:.1f} ({most:.1f})"
        lines.append([name, outcome, str(len(part)), tests, passes, f"{naive:.0f}", bits])
    head = [
        "forgery",
        "real outcome",
        "seeds",
        "tests",
        "passes the naive check",
        "naive bits",
        "bits (most)",
    ]
    return table(head, lines, text=2)


def _results(part: list[dict[str, str]]) -> tuple[str, float, float, float]:
    """Return the share that passes the naive check, its median bits, and the real bits."""
    passes = sum(int(r["naive_passes"]) for r in part)
    naive, real = (median(float(r[c]) for r in part) for c in ("naive_bits", "real_bits"))
    return f"{passes}/{len(part)}", naive, real, max(float(r["real_bits"]) for r in part)


def draw(found: Curves) -> Figure:
    """Draw the best score of every search against the number of audits, for plain and for keyed bits."""
    figure = Figure(figsize=(9, 3.6), layout="constrained")
    axes = figure.subplots(1, 2, sharex=True, sharey=True)
    for (name, points), (colour, marker) in zip(found.items(), LOOKS, strict=False):
        at = [int(part[0]["queries"]) for part in points]
        for ax, column in zip(axes, ("naive_bits", "real_bits"), strict=True):
            bits = [sorted(float(r[column]) for r in part) for part in points]
            ax.fill_between(at, [b[0] for b in bits], [b[-1] for b in bits], color=colour, alpha=0.12, lw=0)
            ax.plot(at, [median(b) for b in bits], marker=marker, ms=3.5, color=colour, label=name)
    axes[0].legend(loc="center right", bbox_to_anchor=(1, 0.36), frameon=False, fontsize=8)
    titles = ("plain bits (from the graph, as in the paper)", "keyed bits (from the secret)")
    for ax, title in zip(axes, titles, strict=True):
        ax.axhline(NEEDED, color="black", lw=0.8, ls="--")
        ax.axhline(ENOUGH, color="black", lw=0.8, ls=":")
        ax.set(xscale="log", xlabel="number of audits", title=title)
    audits = np.array(axes[1].get_xlim())
    left = audits[0] * 1.2
    axes[1].plot(audits, np.log2(audits), color="0.5", lw=0.8)
    axes[1].annotate(
        "grey: log₂ of the number of audits, pure chance", (left, NEEDED + 9), fontsize=8, color="0.4"
    )
    axes[1].annotate("20 bits: α = 10⁻⁶", (left, NEEDED + 1.5), fontsize=8)
    axes[1].annotate("80 bits: owned", (left, ENOUGH + 1.5), fontsize=8)
    axes[0].set_ylabel("best score so far, bits")
    return figure


def main() -> None:
    """Run the study and draw its figure."""
    run_benchmark(__doc__, PATH, trial, grid(), summary)
    with figure_style():
        save_figure(draw(curves(read_rows(PATH))), FIGURE)


if __name__ == "__main__":
    main()
