"""Forger curves and the whole forger suite against innocent models.

    make forgers         # python benchmarks/forgers.py --into docs/results/forgeries.md

Searches put carrier sets before an unmarked model and are told T. `naive` believes that matches of plain
bits are fair coins; `real` is the evidence of the same search against keyed bits, nothing paid. Other
forgeries have one row: what the naive check believes, and the best that the real verification gave them.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

import trials

SETTING, SEEDS, EPOCHS = "PROTEINS/GIN", range(41, 46), 50
CHECKPOINTS = (10, 30, 100, 300, 1000, 3000, 10_000, 30_000, 100_000)
NEEDED = 20  # bits: α = 10⁻⁶
PATH = trials.RESULTS / "forgers.csv"
FIGURE = Path(__file__).parent.parent / "docs" / "forger-curves.svg"
COLOURS = ("#4269d0", "#efb118", "#ff725c", "#3ca951", "#9c6b4e")  # told apart on light and dark pages


def grid() -> Iterator[dict[str, Any]]:
    """Cheap forgeries first; seeds in turn."""
    from invgnn.attacks.forgery import Hunt, suite

    forgeries = sorted(suite(), key=lambda one: isinstance(one, Hunt))
    for seed in SEEDS:
        for forgery in forgeries:
            yield {"setting": SETTING, "seed": seed, "forgery": repr(forgery)}


def trial(setting: str, seed: int, forgery: str) -> list[dict[str, Any]]:
    """Train an innocent model and forge against it; a search gives a row for every checkpoint."""
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
    """A model trained without a mark, or one taught by another owner to perceive λ₂."""
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
        recipe = Recipe(gradient_projection=False, warmup_steps=0, after_task=False, weight_scale=None)
        how: dict[str, Any] = {"key": "plain", "access": "perception", "sampler": KEPT}
        mark = Watermark.draw(secret, task.data, recipe=recipe, **how)
    train(model, task, mark, seed=seed, epochs=EPOCHS)
    return model, task


def curve(hunt: Any, model: Any, task: Any) -> Iterator[dict[str, Any]]:
    """The best evidence after so many audits, as the naive check and as the real one see it."""
    from invgnn.stats import laws, null

    best = {key: hunt.hunt(hunt.ground(model, task, key)).best for key in ("plain", "keyed")}
    for queries in [n for n in CHECKPOINTS if n < hunt.budget] + [hunt.budget]:
        t, keyed = (int(best[key][queries - 1]) for key in ("plain", "keyed"))
        naive = laws.evidence_bits(null.NULLS["binomial"].log_tail(hunt.m, t))
        real = laws.evidence_bits(laws.log_p_matches(keyed, hunt.m, hunt.m // 2))
        passes = t >= null.NULLS["binomial"].threshold(hunt.m, 1e-6)
        yield _row(queries, naive, passes, real, "not owned" if real < 80 else "owned")


def _row(queries: int, naive: float, passes: bool, real: float, outcome: str) -> dict[str, Any]:
    return {
        "queries": queries,
        "naive_bits": round(naive, 2),
        "naive_passes": int(passes),
        "real_bits": round(real, 2),
        "outcome": outcome,
    }


def curves(rows: list[dict[str, str]]) -> dict[str, list[list[dict[str, str]]]]:
    """The rows of every search: for each checkpoint, those of all seeds."""
    found: dict[str, dict[int, list[dict[str, str]]]] = {}
    for row in rows:
        if " search, " in row["forgery"]:
            points = found.setdefault(row["forgery"].partition(" ")[0], {})
            points.setdefault(int(row["queries"]), []).append(row)
    return {name: [points[n] for n in sorted(points)] for name, points in found.items()}


def summary() -> str:
    """Two tables and, beside them, the figure; medians over seeds."""
    if not PATH.exists():
        return "Not measured yet: `make forgers`."
    rows = trials.read(PATH)
    found = curves(rows)
    if found:
        FIGURE.write_text(draw(found))
    return "\n\n".join(part for part in (_curves(found), _others(rows)) if part)


def _curves(found: dict[str, list[list[dict[str, str]]]]) -> str:
    if not found:
        return ""
    lines = [
        f"![Forger curves]({FIGURE.name})\n",
        "| search | audits | seeds | passes the naive check | naive bits | bits against a keyed mark |",
        "|---|--:|--:|--:|--:|--:|",
    ]
    for name, points in found.items():
        for part in points:
            passes = sum(int(r["naive_passes"]) for r in part)
            naive, real = (median(float(r[c]) for r in part) for c in ("naive_bits", "real_bits"))
            most = max(float(r["real_bits"]) for r in part)
            cells = [name, f"{int(part[0]['queries']):,}", str(len(part)), f"{passes}/{len(part)}"]
            lines.append(f"| {' | '.join(cells)} | {naive:.0f} | {real:.1f} (most {most:.1f}) |")
    return "\n".join(lines)


def _others(rows: list[dict[str, str]]) -> str:
    names = dict.fromkeys(r["forgery"] for r in rows if " search, " not in r["forgery"])
    if not names:
        return ""
    lines = [
        "| forgery | seeds | looks | passes the naive check | naive bits | real outcome | bits (most) |",
        "|---|--:|--:|--:|--:|---|--:|",
    ]
    for name in names:
        part = [r for r in rows if r["forgery"] == name]
        passes = sum(int(r["naive_passes"]) for r in part)
        naive, real = (median(float(r[c]) for r in part) for c in ("naive_bits", "real_bits"))
        most = max(float(r["real_bits"]) for r in part)
        outcome = " / ".join(dict.fromkeys(r["outcome"] for r in part))
        cells = [name, str(len(part)), f"{int(part[0]['queries']):,}", f"{passes}/{len(part)}"]
        lines.append(f"| {' | '.join(cells)} | {naive:.0f} | {outcome} | {real:.1f} ({most:.1f}) |")
    return "\n".join(lines)


# -- the figure ------------------------------------------------------------------------------------

WIDTH, HEIGHT, LEFT, TOP, GAP = 300, 220, 46, 30, 60


def draw(found: dict[str, list[list[dict[str, str]]]]) -> str:
    """Two panels over the number of audits: share of forgers that pass, and evidence in bits."""
    most = max(int(points[-1][0]["queries"]) for points in found.values())
    decades = max(1, len(str(most)) - 1)
    top = max([float(r["naive_bits"]) for p in found.values() for part in p for r in part] + [NEEDED])
    parts = [_panel(0, decades, 1.0, "forgers that pass the naive check", "{:.0%}", 0.25)]
    parts.append(_panel(1, decades, top, "bits: naive (line), keyed (dots)", "{:.0f}", 20.0))
    for number, (name, points) in enumerate(found.items()):
        colour = COLOURS[number % len(COLOURS)]
        at = [int(part[0]["queries"]) for part in points]
        share = [sum(int(r["naive_passes"]) for r in part) / len(part) for part in points]
        naive = [median(float(r["naive_bits"]) for r in part) for part in points]
        keyed = [median(float(r["real_bits"]) for r in part) for part in points]
        parts += [
            _line(0, at, share, decades, 1.0, colour, ""),
            _line(1, at, naive, decades, top, colour, ""),
        ]
        parts.append(_line(1, at, keyed, decades, top, colour, ' stroke-dasharray="2 4"'))
        x = LEFT + number * 110
        parts.append(f'<text x="{x}" y="{TOP + HEIGHT + 52}" fill="{colour}">{name}</text>')
    size = f"0 0 {2 * (WIDTH + LEFT) + GAP} {TOP + HEIGHT + 64}"
    style = 'font-family="sans-serif" font-size="12" fill="#808080" stroke-width="1.6"'
    label = "Share of forgers that pass a naive check, and their evidence, against the number of audits"
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="{size}" role="img" aria-label="{label}" {style}>'
    )
    return "\n".join([head, *parts, "</svg>", ""])


def _place(panel: int, queries: float, value: float, decades: int, top: float) -> tuple[float, float]:
    from math import log10

    left = LEFT + panel * (WIDTH + GAP)
    return left + WIDTH * log10(queries) / decades, TOP + HEIGHT * (1 - value / top)


def _panel(panel: int, decades: int, top: float, title: str, form: str, step: float) -> str:
    left, parts = LEFT + panel * (WIDTH + GAP), []
    parts.append(f'<text x="{left}" y="{TOP - 12}">{title}</text>')
    for power in range(decades + 1):
        x, _ = _place(panel, 10**power, 0, decades, top)
        parts.append(f'<text x="{x:.1f}" y="{TOP + HEIGHT + 18}" text-anchor="middle">{10**power:,}</text>')
    for tick in range(int(top / step) + 1):
        _, y = _place(panel, 1, tick * step, decades, top)
        parts.append(f'<path d="M{left} {y:.1f}h{WIDTH}" stroke="#80808040" stroke-width="1"/>')
        parts.append(
            f'<text x="{left - 6}" y="{y + 4:.1f}" text-anchor="end">{form.format(tick * step)}</text>'
        )
    parts.append(f'<text x="{left + WIDTH}" y="{TOP + HEIGHT + 34}" text-anchor="end">audits</text>')
    return "\n".join(parts)


def _line(
    panel: int, at: list[int], values: list[float], decades: int, top: float, colour: str, dash: str
) -> str:
    spots = [_place(panel, *pair, decades, top) for pair in zip(at, values, strict=True)]
    path = "L".join(f"{x:.1f} {y:.1f}" for x, y in spots)
    return f'<path d="M{path}" fill="none" stroke="{colour}"{dash}/>'


if __name__ == "__main__":
    trials.main(__doc__, PATH, trial, grid(), summary)
