"""Measure settings of the embedding: one setting is changed at a time.

    make recipe          # table in docs/results/appendix/embedding-study.md

Settings were chosen by validation accuracy and by evidence after edits; no test data was used, and the seed
is not among those of `benchmarks/strength.py`. Bits are embedding / logits. On node tasks every variant
starts from scores in half nats at full weight, except those that are about scores.

Variants in `RETIRED` were measured, but `Recipe` does not have their settings. Their rows stay in the
results file and in the table.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from invgnn.bench.markdown import table
from invgnn.bench.script import run_benchmark
from invgnn.storage.tables import read_rows

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
    "no gradient projection": {"gradient_projection": False},
    "mark from the first step": {"warmup_steps": 0},
    "separate forward pass": {"joint": False},
    "mean squared error": {"loss": "mse"},
    "beta 0.25": {"beta": 0.25},
    "beta 4": {"beta": 4.0},
    "m = 256": {"m": 256},
    "m = 512": {"m": 512},
}
RETIRED = (
    "a quarter of the carriers per step",
    *("margin 2", "margin 4", "4 extra steps on the mark"),
    *("weight noise 0.3", "weight noise 1", "3 simulated steps"),
)
PATH = Path(__file__).parents[1] / "benchmarks" / "results" / "recipe.csv"


def scores(variant: str, level: str) -> tuple[float, float]:
    """Return one standard deviation of a score in nats, and the weight of its loss, for a variant."""
    return SCORES.get(variant, HALVES if level == "node" else SCORES["default"])


def grid() -> Iterator[dict[str, Any]]:
    """Yield every variant on every setting, and the unmarked model."""
    for setting in SETTINGS:
        for variant in ("unmarked", *VARIANTS):
            yield {"setting": setting, "variant": variant}


def trial(setting: str, variant: str) -> list[dict[str, Any]]:
    """Train one model, and read it and three edited copies."""
    import time

    from invgnn.attacks.edits import FineTune, Prune, Quantise
    from invgnn.secret import Secret, public_stream
    from invgnn.training.tasks import load_task, new_model, parse_setting
    from invgnn.training.trainer import train
    from invgnn.watermark import embedding_loss, losses
    from invgnn.watermark.mark import Watermark
    from invgnn.watermark.recipe import Recipe
    from invgnn.watermark.sampler import Sampler

    name, backbone = parse_setting(setting)
    task = load_task(name, SEED)
    losses.NAT_SHARE, embedding_loss.SCORE_WEIGHT = scores(variant, task.level)
    changes = dict(VARIANTS.get(variant, {}))
    m = changes.pop("m", 128)
    secret = Secret(public_stream("recipe study", setting).bytes(32))
    kept = Sampler(donors=None)
    recipe = Recipe(after_task=0, weight_scale=None, **{"gradient_projection": True, **changes})
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
    """Return validation accuracy and evidence; retired variants last."""
    rows, lines = {(r["setting"], r["variant"]): r for r in read_rows(PATH)}, []
    for setting in SETTINGS:
        for variant in ("unmarked", *VARIANTS, *RETIRED):
            r = rows.get((setting, variant))
            if r is None:
                continue
            bits = [
                f"{float(r[f'{n} embedding']):.0f} / {float(r[f'{n} logits']):.0f}"
                for n in ("unedited", "pruned", "4-bit", "tuned")
            ]
            name = variant + " (not in Recipe)" * (variant in RETIRED)
            lines.append([setting, name, f"{float(r['val_accuracy']):.1%}", *bits])
    head = ["setting", "variant", "validation", "unedited", "pruned 50 %", "4-bit", "fine-tuned 0.01"]
    return table(head, lines, text=2)


if __name__ == "__main__":
    run_benchmark(__doc__, PATH, trial, grid(), summary)
