"""Which settings of the embedding to make the default: one thing changed at a time.

    make recipe

Chosen on validation accuracy and on evidence after edits; no test data is looked at, and the seed is not
among those of `strength.py`. Bits are embedding / logits. On node tasks, which came first, every variant
starts from scores in half nats at full weight, except those that are about scores.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import trials

SETTINGS = ("Cora/GCN", "PubMed/GCN", "PROTEINS/GIN")
SEED = 1
HALVES = (0.5, 1.0)  # one standard deviation of a score in nats, and the weight of its loss
SCORES: dict[str, tuple[float, float]] = {
    "default": (0.25, 0.5),
    "scores in half nats, full weight": HALVES,
    "scores in eighths of a nat, quarter weight": (0.125, 0.25),
    "cap 1": (0.25, 0.5),
}
VARIANTS: dict[str, dict[str, Any]] = {
    **{name: {} for name in SCORES},
    "cap 1": {"cap": 1.0},
    "no guard": {"guard": False},
    "mark from the first step": {"wait": 0},
    "forward of its own": {"joint": False},
    "mean squared error": {"loss": "mse"},
    "beta 0.25": {"beta": 0.25},
    "beta 4": {"beta": 4.0},
    "margin 2": {"margin": 2.0},
    "margin 4": {"margin": 4.0},
    "a quarter of the carriers per step": {"ratio": {"node": 0.25, "graph": 1 / 3}},
    "4 extra steps on the mark": {"extra": 4},
    "weight noise 0.3": {"joint": False, "noise": 0.3},
    "weight noise 1": {"joint": False, "noise": 1.0},
    "3 simulated steps": {"joint": False, "simulate": 3},
    "m = 256": {"m": 256},
    "m = 512": {"m": 512},
}
PATH = trials.RESULTS / "recipe.csv"


def scores(variant: str, level: str) -> tuple[float, float]:
    """How class scores are measured and weighed in a variant."""
    return SCORES.get(variant, HALVES if level == "node" else SCORES["default"])


def grid() -> Iterator[dict[str, Any]]:
    """Every variant on every setting, and the unmarked model."""
    for setting in SETTINGS:
        for variant in ("unmarked", *VARIANTS):
            yield {"setting": setting, "variant": variant}


def trial(setting: str, variant: str) -> list[dict[str, Any]]:
    """Train one model, read it and three edited copies."""
    import time

    from invgnn.attacks.edits import FineTune, Prune, Quantise
    from invgnn.secret import Secret, public_stream
    from invgnn.training.tasks import load_task, new_model, parse_setting
    from invgnn.training.trainer import train
    from invgnn.watermark import losses, recipe, teaching
    from invgnn.watermark.sampler import Sampler
    from invgnn.watermark.mark import Watermark
    from invgnn.watermark.recipe import Recipe

    name, backbone = parse_setting(setting)
    task = load_task(name, SEED)
    losses.NAT_SHARE, teaching.SCORE_WEIGHT = scores(variant, task.level)
    changes = dict(VARIANTS.get(variant, {}))
    m = changes.pop("m", 128)
    if "ratio" in changes:
        changes["ratio"] = changes["ratio"][task.level]
    secret = Secret(public_stream("recipe study", setting).bytes(32))
    kept = Sampler(donors=None)
    recipe = Recipe(after_task=False, weight_scale=None, **changes)
    mark = Watermark.draw(secret, task.data, m=m, recipe=recipe, sampler=kept)
    model = new_model(task, backbone, SEED)
    start = time.perf_counter()
    history = train(model, task, None if variant == "unmarked" else mark, seed=SEED)
    row: dict[str, Any] = {"setting": setting, "variant": variant, "val_accuracy": history.best_val_acc}
    row["seconds"] = round(time.perf_counter() - start)
    edits = {"pruned": Prune(0.5), "4-bit": Quantise(4), "tuned": FineTune(20, 1e-2)}
    suspects = {"unedited": model} | {n: edit(model, task) for n, edit in edits.items()}
    for label, suspect in suspects.items():
        for access in ("embedding", "logits"):
            row[f"{label} {access}"] = round(mark.evidence(mark.read(suspect, access)).bits(), 1)
    return [row]


def summary() -> str:
    """Validation accuracy and evidence, in Markdown."""
    rows = {(r["setting"], r["variant"]): r for r in trials.read(PATH)}
    lines = ["| setting | variant | validation | unedited | pruned 50 % | 4-bit | tuned 0.01 |"]
    lines.append("|---|---|--:|--:|--:|--:|--:|")
    for setting in SETTINGS:
        for variant in ("unmarked", *VARIANTS):
            r = rows.get((setting, variant))
            if r is None:
                continue
            bits = [
                f"{float(r[f'{n} embedding']):.0f} / {float(r[f'{n} logits']):.0f}"
                for n in ("unedited", "pruned", "4-bit", "tuned")
            ]
            cells = [setting, variant, f"{float(r['val_accuracy']):.1%}", *bits]
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    trials.main(__doc__, PATH, trial, grid(), summary)
