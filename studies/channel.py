"""Measure the score channel: evidence in scores on the task's own inputs, before and after edits.

    make channel         # table in docs/results/score-channel.md

Every marked model has carriers and a score channel of 128 features (PROTEINS: 44). Its accuracy is compared
with that of the same model before it was marked. Students never see a carrier.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from statistics import mean, median
from typing import Any

from invgnn.bench.markdown import table
from invgnn.bench.script import run_benchmark
from invgnn.storage.tables import read_rows

SETTINGS = ("Cora/SGC", "Cora/GCN", "Cora/GraphSAGE", "PROTEINS/GIN", "NCI1/GIN")
SEEDS = (41, 42, 43)
UNMARKED = "unmarked"
CHANGES = ("unedited", "prune 50%", "4-bit", "fine-tune 20 epochs at 0.001", "fine-tune 20 epochs at 0.01")
CHANGES += ("distil", "distil, 50% soft targets", "distil into half width")
AIM = 20
FEATURES, FEW = 128, {"PROTEINS/GIN": 44}
SHIFT, STRONG = 1.0, {"PROTEINS/GIN": 1.5}
"""PROTEINS has 890 training inputs: about twenty per feature, with a larger score shift."""
PATH = Path(__file__).parents[1] / "benchmarks" / "results" / "channel.csv"


def grid() -> Iterator[dict[str, Any]]:
    """Yield all trials: seeds in turn, the quick settings first."""
    for seed in SEEDS:
        for setting in SETTINGS:
            yield {"setting": setting, "seed": seed, "features": FEW.get(setting, FEATURES)}


def trial(setting: str, seed: int, features: int) -> list[dict[str, Any]]:
    """Train one model, mark it, and read it and its edited copies."""
    from invgnn.attacks.edits import Distil, FineTune, Prune, Quantise
    from invgnn.bench.released import access_levels
    from invgnn.errors import EditError
    from invgnn.secret import Secret, public_stream
    from invgnn.stats import laws
    from invgnn.training.batching import accuracy
    from invgnn.training.tasks import load_task, new_model, parse_setting
    from invgnn.training.trainer import train
    from invgnn.watermark.mark import Watermark
    from invgnn.watermark.recipe import Recipe

    name, backbone = parse_setting(setting)
    task, levels = load_task(name, seed), access_levels(setting)
    secret = Secret(public_stream("owner", setting, seed).bytes(32))
    model = new_model(task, backbone, seed)
    train(model, task, seed=seed)
    recipe = Recipe(score_shift=STRONG.get(setting, SHIFT))
    mark = Watermark.draw(secret, task.data, access=levels, score_channel=features, recipe=recipe)
    mark = mark.with_baseline(model, task.data)
    channel = mark.channel(task.data)

    def row(change: str, suspect: Any) -> dict[str, Any]:
        found = {a: mark.evidence(mark.read(suspect, a)) for a in levels}
        seen = channel.read(suspect)
        both = laws.evidence_bits(laws.log_p_channels([found["logits"].log_p, seen.log_p]))
        return {
            "setting": setting,
            "seed": seed,
            "features": features,
            "change": change,
            "val_accuracy": round(accuracy(suspect, task, task.val), 4),
            "test_accuracy": round(accuracy(suspect, task, task.test), 4),
            "embedding_bits": round(found["embedding"].bits(), 2) if "embedding" in found else "",
            "logits_bits": round(found["logits"].bits(), 2),
            "cosine": round(seen.cosine, 4),
            "within": round(seen.within, 4),
            "score_channel_bits": round(seen.bits(), 2),
            "both_bits": round(both, 2),
        }

    rows = [row(UNMARKED, model)]
    train(model, task, mark, seed=seed)
    rows.append(row("unedited", model))
    edits = (Prune(0.5), Quantise(4), FineTune(20, 1e-3), FineTune(20, 1e-2))
    for edit in (*edits, Distil(), Distil(rho_kd=0.5), Distil("half")):
        try:
            rows.append(row(repr(edit), edit(model, task)))
        except EditError:  # SGC has no width to halve
            continue
    return rows


def summary() -> str:
    """Return the cost, and the median evidence at `logits` of each channel and of both."""
    rows = read_rows(PATH)
    lines = [
        line
        for setting in SETTINGS
        for line in _lines(setting, [r for r in rows if r["setting"] == setting])
    ]
    head = ["setting", "change", "seeds", "accuracy, points", "carriers", "score channel", "both"]
    return table(head, lines, text=2)


def _lines(setting: str, rows: list[dict[str, str]]) -> Iterator[list[str]]:
    unmarked = {r["seed"]: float(r["test_accuracy"]) for r in rows if r["change"] == UNMARKED}
    for change in CHANGES:
        part = [r for r in rows if r["change"] == change]
        if not part:
            continue
        less = [100 * (float(r["test_accuracy"]) - unmarked[r["seed"]]) for r in part]
        columns = ("logits_bits", "score_channel_bits", "both_bits")
        carriers, channel, both = (f"{median(float(r[c]) for r in part):.0f}" for c in columns)
        every = ", ".join(f"{float(r['both_bits']):.0f}" for r in part)
        both = f"**{both}**" if float(both) >= AIM else both
        yield [
            setting,
            change,
            str(len(part)),
            f"{mean(less):+.1f}",
            carriers,
            channel,
            f"{both} ({every})",
        ]


if __name__ == "__main__":
    run_benchmark(__doc__, PATH, trial, grid(), summary)
