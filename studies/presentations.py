"""Measure settings of the embedding: one setting is changed at a time.

    make presentations   # table in docs/results/appendix/presentations.md

Settings are judged by validation accuracy and by evidence after fine-tuning. No test data is used, and the
seeds are not among those of `benchmarks/strength.py`. Bits are embedding / logits.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from statistics import mean
from typing import Any

from invgnn.bench.markdown import table
from invgnn.bench.released import access_levels
from invgnn.bench.script import run_benchmark
from invgnn.storage.tables import read_rows

SEEDS = (1, 2)
CONSTANT = "constant learning rate"
UNMARKED = ("unmarked", f"unmarked, {CONSTANT}")
EVERYWHERE: dict[str, dict[str, Any]] = {
    "default": {},
    CONSTANT: {},
    "beta 0.25": {"beta": 0.25},
    "beta 4": {"beta": 4.0},
}
GRAPH: dict[str, dict[str, Any]] = EVERYWHERE | {
    "175 presentations": {"presentations": 175},
    "700 presentations": {"presentations": 700},
    "64 carriers in a step": {"carriers": 64, "presentations": 350},
    "gradient projection": {"gradient_projection": True},
    "separate forward pass": {"joint": False},
}
NODE: dict[str, dict[str, Any]] = EVERYWHERE | {
    "25 steps after the task": {"after_task": 25},
    "100 steps after the task": {"after_task": 100},
    "during the task": {"after_task": 0},
    "no gradient projection": {"gradient_projection": False},
}
LONG: dict[str, dict[str, Any]] = {
    "default": {},
    "16 carriers, 350 presentations": {"carriers": 16, "presentations": 350},
    "32 carriers, 350 presentations": {"carriers": 32, "presentations": 350},
    "gradient projection": {"gradient_projection": True},
}
VARIANTS = {
    "Cora/GCN": NODE,
    "PubMed/SGC": NODE,
    "PROTEINS/GIN": GRAPH,
    "NCI1/GIN": LONG,
    "NCI1/GraphSAGE": LONG,
}
PATH = Path(__file__).parents[1] / "benchmarks" / "results" / "presentations.csv"


def grid() -> Iterator[dict[str, Any]]:
    """Yield every variant of every setting, and the unmarked model."""
    for seed in SEEDS:
        for setting, variants in VARIANTS.items():
            constant = CONSTANT in variants
            for variant in (*UNMARKED[: 1 + constant], *variants):
                yield {"setting": setting, "seed": seed, "variant": variant}


def trial(setting: str, seed: int, variant: str) -> list[dict[str, Any]]:
    """Train one model, and read it and two fine-tuned copies."""
    import time

    from invgnn.attacks.edits import FineTune
    from invgnn.bench.released import prepare
    from invgnn.training.batching import accuracy
    from invgnn.training.trainer import train
    from invgnn.watermark.recipe import Recipe

    recipe = Recipe(**VARIANTS[setting].get(variant, {}))
    made = prepare(setting, seed, "presentations", recipe=recipe)
    task, mark, model = made.task, made.mark, made.model
    start = time.process_time()
    decay, marked = not variant.endswith(CONSTANT), variant not in UNMARKED
    train(model, task, mark if marked else None, seed=seed, decay=decay)
    row: dict[str, Any] = {"setting": setting, "seed": seed, "variant": variant}
    row["seconds"] = round(time.process_time() - start, 1)
    row["val_accuracy"] = round(accuracy(model, task, task.val), 4)
    edits = {"0.001": FineTune(20, 1e-3), "0.01": FineTune(20, 1e-2)} if marked else {}
    suspects = {"unedited": model} | {name: edit(model, task) for name, edit in edits.items()}
    for edit in ("unedited", "0.001", "0.01"):
        for access in ("embedding", "logits"):
            read = edit in suspects and access in access_levels(setting)
            found = mark.evidence(mark.read(suspects[edit], access)).bits() if read else None
            row[f"{edit} {access}"] = "" if found is None else round(found, 1)
    return [row]


def summary() -> str:
    """Return validation accuracy, cost and evidence of every variant, as means over the seeds."""
    rows, lines = read_rows(PATH), []
    for setting, variants in VARIANTS.items():
        plain = _seconds(rows, setting, UNMARKED[0])
        for variant in (*UNMARKED, *variants):
            found = [r for r in rows if (r["setting"], r["variant"]) == (setting, variant)]
            if found:
                cost = f"{_seconds(rows, setting, variant) / plain:.2f}" if plain else ""
                bits = [_bits(found, edit) for edit in ("unedited", "0.001", "0.01")]
                share = mean(float(r["val_accuracy"]) for r in found)
                lines.append([setting, variant, str(len(found)), cost, f"{share:.1%}", *bits])
    head = ["setting", "variant", "seeds", "cost", "validation", "unedited", "fine-tuned 0.001"]
    return table([*head, "fine-tuned 0.01"], lines, text=2)


def _seconds(rows: list[dict[str, str]], setting: str, variant: str) -> float:
    found = [float(r["seconds"]) for r in rows if (r["setting"], r["variant"]) == (setting, variant)]
    return mean(found) if found else 0.0


def _bits(rows: list[dict[str, str]], edit: str) -> str:
    shown = []
    for access in ("embedding", "logits"):
        values = [float(r[f"{edit} {access}"]) for r in rows if r[f"{edit} {access}"]]
        shown += [f"{mean(values):.0f}"] if values else []
    return " / ".join(shown)


if __name__ == "__main__":
    run_benchmark(__doc__, PATH, trial, grid(), summary)
