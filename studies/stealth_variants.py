"""Compare ways to make and embed inconspicuous carriers, on validation data.

    make stealth-variants   # table in docs/results/appendix/stealth-variants.md

Each variant differs in one thing from 128 carriers with `stealth=True`. Accuracy is validation accuracy and
the seeds are not those of `studies/stealth_price.py`: a setting can be chosen here and its price measured
there.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from statistics import mean
from typing import Any

from invgnn.bench.markdown import table
from invgnn.bench.script import run_benchmark
from invgnn.storage.tables import read_rows

SETTINGS = ("PROTEINS/GIN", "PubMed/GCN", "Photo/GraphSAGE")
NODES = SETTINGS[1:]
SEEDS = (1, 2)
DEFAULT = "default"
VARIANTS: dict[str, dict[str, Any]] = {
    DEFAULT: {},
    "400 presentations": {"presentations": 400},
    "140 steps": {"after_task": 140},
    "256 carriers": {"m": 256},
    "carriers of every size": {"size_quantile": 1.0},
    "score channel": {"score_channel": "auto"},
}
"""What differs from 128 carriers with `stealth=True`."""
ONLY = {"400 presentations": SETTINGS[:1], "140 steps": NODES, "carriers of every size": SETTINGS[:1]}
"""Variants for some settings alone: on node tasks, the number of steps after the task counts."""
RECIPE_FIELDS, SAMPLER_FIELDS = {"presentations", "after_task"}, {"size_quantile"}
PATH = Path(__file__).parents[1] / "benchmarks" / "results" / "stealth_variants.csv"


def grid() -> Iterator[dict[str, Any]]:
    """Yield all trials, seeds in turn."""
    for setting in SETTINGS:
        for seed in SEEDS:
            for variant in VARIANTS:
                if setting in ONLY.get(variant, SETTINGS):
                    yield {"setting": setting, "seed": seed, "variant": variant}


def trial(setting: str, seed: int, variant: str) -> list[dict[str, Any]]:
    """Train one marked model, and read it and two fine-tuned copies, with and without a detector."""
    import time
    from dataclasses import replace

    from studies.stealth_price import LOSS, left, limit, seen

    from invgnn.attacks.edits import FineTune
    from invgnn.audit.examine import with_channel
    from invgnn.bench.released import unmarked
    from invgnn.secret import Secret, public_stream
    from invgnn.training.batching import accuracy
    from invgnn.training.tasks import load_task, new_model, parse_setting
    from invgnn.training.trainer import train
    from invgnn.watermark.mark import Watermark
    from invgnn.watermark.stealth import RECIPE, SAMPLER

    changes = VARIANTS[variant]
    sampler = replace(SAMPLER, **{k: v for k, v in changes.items() if k in SAMPLER_FIELDS})
    recipe = replace(RECIPE, **{k: v for k, v in changes.items() if k in RECIPE_FIELDS})
    others = {k: v for k, v in changes.items() if k not in SAMPLER_FIELDS | RECIPE_FIELDS}
    name, backbone = parse_setting(setting)
    task = load_task(name, seed)
    secret = Secret(public_stream("stealth variants", setting, seed).bytes(32))
    mark = Watermark.draw(
        secret, task.data, classes=task.num_classes, sampler=sampler, recipe=recipe, **({"m": 128} | others)
    )
    start, model = time.process_time(), new_model(task, backbone, seed)
    if "score_channel" in changes:
        train(model, task, seed=seed)
        mark = mark.with_baseline(model, task.data)
    train(model, task, mark, seed=seed)
    row: dict[str, Any] = {"setting": setting, "seed": seed, "variant": variant}
    row["seconds"] = round(time.process_time() - start, 1)
    row["unmarked accuracy"] = round(accuracy(unmarked(setting, seed), task, task.val), 4)
    found = seen(task, mark, model, seed)
    row["flagged"] = max(
        round(float((carriers > limit(honest, LOSS)).mean()), 4) for carriers, honest in found.values()
    )
    edits = {"0.001": FineTune(20, 1e-3), "0.01": FineTune(20, 1e-2)}
    for edit in ("unedited", *edits):
        suspect = edits[edit](model, task) if edit in edits else model
        answers = mark.read(suspect, "logits")
        shift = mark.channel(task.data).read(suspect) if "score_channel" in changes else None
        row[f"{edit} accuracy"] = round(accuracy(suspect, task, task.val), 4)
        row[f"{edit} logits"] = round(with_channel(mark.evidence(answers), shift).bits(), 1)
        row[f"{edit} left"] = round(left(mark, answers, found, LOSS, seed, shift), 1)
    return [row]


def summary() -> str:
    """Return accuracy and evidence by setting and variant, seed by seed."""
    rows, lines = read_rows(PATH), []
    for setting in SETTINGS:
        for variant in VARIANTS:
            found = [row for row in rows if (row["setting"], row["variant"]) == (setting, variant)]
            if not found:
                continue

            def each(name: str, held: list[dict[str, str]] = found) -> str:
                return ", ".join(f"{float(row[name]):.0f}" for row in held)

            before, after, flagged, seconds = (
                mean(float(row[name]) for row in found)
                for name in ("unmarked accuracy", "unedited accuracy", "flagged", "seconds")
            )
            bits = [
                f"{each(f'{edit} logits')} / **{each(f'{edit} left')}**" for edit in ("unedited", "0.001")
            ]
            accuracy = f"{before:.1%} → {after:.1%}"
            lines.append([setting, variant, accuracy, f"{flagged:.0%}", *bits, f"{seconds:.0f}"])
    head = ["setting", "variant", "validation accuracy", "flagged", "unedited", "fine-tuned 0.001"]
    return table([*head, "seconds"], lines)


if __name__ == "__main__":
    run_benchmark(__doc__, PATH, trial, grid(), summary)
