"""Measure how often models that do not depend on a secret verify: real models, fresh secrets.

    make false-positives     # table in docs/results/appendix/false-positives.md

Every unmarked or foreign model is read with 200 marks drawn from scratch (fresh secret, fresh carriers)
at every access level with an exact null, as `verify` reads it (all levels at once, corrected for the
number of tests), the same with shuffled class columns and an empty class in front, and by the score
channel; and with 50 further random keys, or directions, per mark. If the null is exact, rejections at
level a are at most a binomial count with probability a.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import binomtest, rankdata

from invgnn.bench.markdown import table
from invgnn.bench.script import run_benchmark
from invgnn.storage.tables import read_rows

LEVELS = (0.1, 0.01, 0.001)
DERIVATIONS, DRAWS, EPOCHS, FEATURES = 200, 50, 50, 32
PATH = Path(__file__).parent / "results" / "false_positives.csv"
ALL, SHUFFLED, CHANNEL = "all levels", "all levels, columns shuffled", "score channel"


def suspects() -> Iterator[dict[str, Any]]:
    """Yield 20 unmarked models, and eight marked by another owner, two of them with the paper's head."""
    for setting in ("PROTEINS/GIN", "PROTEINS/GraphSAGE", "Cora/GCN", "Cora/GraphSAGE"):
        for seed in range(101, 106):
            yield {"setting": setting, "seed": seed, "kind": "unmarked"}
    for setting in ("PROTEINS/GIN", "Cora/GCN"):
        for seed in range(201, 204):
            yield {"setting": setting, "seed": seed, "kind": "marked by another"}
    for seed in range(301, 303):
        yield {"setting": "PROTEINS/GIN", "seed": seed, "kind": "paper's head, another's"}


def study(setting: str, seed: int, kind: str) -> list[dict[str, Any]]:
    """Train one suspect and read it with many marks; one row per way of reading it."""
    from invgnn.secret import Secret, public_stream
    from invgnn.training.tasks import load_task, parse_setting
    from invgnn.watermark.mark import Watermark
    from invgnn.watermark.reference import Reference
    from invgnn.watermark.sampler import Sampler

    task = load_task(parse_setting(setting)[0], seed)
    reference = Reference.of(task.data)
    model, accuracy = train_suspect(task, setting, seed, kind, reference)
    accesses = ("perception",) if "head" in kind else ("embedding", "logits", "labels")
    full: dict[str, list[float]] = {}
    drawn: dict[str, list[float]] = {}
    served = shuffled(model, task.num_classes, seed)
    marks = []
    for i in range(DERIVATIONS):
        secret = Secret(public_stream("false positives", setting, seed, kind, i).bytes(32))
        how: dict[str, Any] = {"access": accesses, "classes": task.num_classes}
        mark = Watermark.draw(secret, reference, sampler=Sampler(donors=None), **how)
        keys = public_stream("bit draws", setting, seed, kind, i)
        others = [keys.balanced(mark.m) for _ in range(DRAWS)]
        found = readings(mark, model, served, accesses)
        each = {id(one): one for ways in found.values() for way in ways for one in way}
        laws = {name: [_log_p(one, key) for key in (mark.bits, *others)] for name, one in each.items()}
        for name, ways in found.items():  # the law of one set of answers is tabulated once for all keys
            log_ps = corrected(mark, [[laws[id(one)] for one in way] for way in ways])
            full.setdefault(name, []).append(log_ps[0])
            drawn.setdefault(name, []).extend(log_ps[1:])
        marks.append(mark)
    if "head" not in kind:
        full[CHANNEL], drawn[CHANNEL] = channel_of(model, task, marks, setting, seed, kind)
    return [
        {"setting": setting, "seed": seed, "kind": kind, "access": a, "test_accuracy": round(accuracy, 4)}
        | {"derivations": len(full[a]), "draws": len(drawn[a])}
        | {f"full_{x:g}": int(sum(p <= math.log(x) for p in full[a])) for x in LEVELS}
        | {f"draws_{x:g}": int(sum(p <= math.log(x) for p in drawn[a])) for x in LEVELS}
        | {"least_log10_p": round(min(full[a] + drawn[a]) / math.log(10), 2)}
        for a in full
    ]


def readings(mark: Any, model: Any, served: Any, accesses: tuple[Any, ...]) -> dict[str, list[list[Any]]]:
    """Return, by name of the row, the answers at every level for each alignment of the columns."""
    found: dict[str, list[list[Any]]] = {}
    replies = mark.ask(model)
    ways = [
        [mark.answers(replies, mark.reading(a), columns) for a in accesses]
        for columns in replies.alignments
    ]
    found |= {a: [[answers]] for a, answers in zip(accesses, ways[0], strict=True)}
    if len(accesses) > 1:
        found[ALL] = ways
        replies = mark.ask(served)
        found[SHUFFLED] = [
            [mark.answers(replies, mark.reading(a), columns) for a in accesses if a != "embedding"]
            for columns in replies.alignments
        ]
    return found


def corrected(mark: Any, ways: list[list[list[float]]]) -> list[float]:
    """Return, for every key, the least log p corrected for the number of tests, as in `examine`."""
    from invgnn.stats import laws

    declared = len(mark.readings) if len(ways) > 1 or len(ways[0]) > 1 else 1
    least = np.min([level for way in ways for level in way], axis=0).tolist()
    return [laws.log_p_times(one, declared * len(ways)) for one in least]


def shuffled(model: Any, classes: int, seed: int) -> Any:
    """Return a function that serves the model with an empty class and its columns shuffled."""
    import torch

    from invgnn.nn.forward import call

    order = np.random.default_rng(seed).permutation(classes + 1)

    def serve(batch: Any) -> Any:
        with torch.no_grad():
            scores = call(model.eval(), batch).softmax(-1)
        return torch.cat([torch.zeros_like(scores[:, :1]), scores], 1)[:, order]

    return serve


def channel_of(
    model: Any, task: Any, marks: list[Any], setting: str, seed: int, kind: str
) -> tuple[list[float], list[float]]:
    """Return the log p of the score channel: a direction from every mark's secret, and random ones.

    Inputs, features and scores from before (of a fresh model) stay: they are fixed before any direction.
    """
    from invgnn.secret import public_stream
    from invgnn.training.tasks import new_model, parse_setting
    from invgnn.watermark.baseline import Baseline, log_probabilities_of
    from invgnn.watermark.gaussians import gaussians
    from invgnn.watermark.inputs import Inputs
    from invgnn.watermark.score_channel import ScoreChannel

    inputs = Inputs.of(task.data)
    baseline = Baseline.of(new_model(task, parse_setting(setting)[1], seed + 1000), inputs)
    stream = public_stream("direction", setting, seed, kind)
    first = ScoreChannel.draw(stream, marks[0].direction, inputs, FEATURES, 1.0, baseline.scores)
    scores, axes = log_probabilities_of(model, inputs), first.features.axes.numpy()
    followed: dict[tuple[float, ...], Any] = {}
    full, drawn = [], []
    for mark in marks:
        signs = tuple(mark.direction("logits", scores.shape[1]).tolist())
        if signs not in followed:  # a secret picks one of few halves of the classes
            followed[signs] = replace(first, signs=mark.direction).followed(scores)
        own = mark.secret.derive("function", mark.bound, baseline.digest())
        for kept, draws, count in ((full, own, 1), (drawn, stream, DRAWS)):
            for _ in range(count):
                shadow = axes.T @ gaussians(draws, len(axes))
                channel = replace(first, direction=shadow / np.linalg.norm(shadow))
                kept.append(channel.compare(*followed[signs], len(scores)).log_p)
    return full, drawn


def train_suspect(task: Any, setting: str, seed: int, kind: str, reference: Any) -> tuple[Any, float]:
    """Train an unmarked model, or one marked with the secret of another owner."""
    from invgnn.nn.perception import attach_head
    from invgnn.nn.rng import seeded
    from invgnn.secret import Secret, public_stream
    from invgnn.training.tasks import new_model, parse_setting
    from invgnn.training.trainer import train
    from invgnn.watermark.mark import Watermark
    from invgnn.watermark.recipe import Recipe

    model = new_model(task, parse_setting(setting)[1], seed)
    foreign = Secret(public_stream("somebody else", setting, seed).bytes(32))
    mark, recipe = None, Recipe(after_task=0, weight_scale=None)
    if kind == "marked by another":
        mark = Watermark.draw(foreign, reference, access=("embedding", "logits"), recipe=recipe)
    if "head" in kind:
        with seeded(seed):
            attach_head(model, 64)
        mark = Watermark.draw(foreign, reference, access="perception", key="plain", recipe=recipe)
    history = train(model, task, mark, seed=seed, epochs=EPOCHS)
    return model, history.test_acc


def _log_p(found: Any, key: Any) -> float:
    """Return the combined log p of answers; 0 where it is clearly above every level."""
    from invgnn.stats import laws
    from invgnn.stats.evidence import decode, evidence_of, matches

    answers, bits, threshold = found.carriers, key, 0.5 if found.reading.binary else None
    decoded = decode(answers, threshold)
    m = len(bits)
    t = laws.log_p_matches(matches(decoded, bits), m, int(decoded.sum()))
    ranks = rankdata(answers)
    spread = math.sqrt(m**2 / 4 * ranks.var() / (m - 1)) or 1.0
    z = (ranks[bits == 1].sum() - m * (m + 1) / 4) / spread
    if z < 1.2 and t > math.log(0.2):  # the rank p is then far above 0.1 as well
        return 0.0
    return evidence_of(answers, bits, "combined", threshold).log_p


def summary() -> str:
    """Return the table of counts and exact binomial tests."""
    rows = read_rows(PATH)
    lines = []
    for kind, access in dict.fromkeys((r["kind"], r["access"]) for r in rows):
        part = [r for r in rows if (r["kind"], r["access"]) == (kind, access)]
        n, d = sum(int(r["derivations"]) for r in part), sum(int(r["draws"]) for r in part)
        for level in LEVELS:
            a, b = (sum(int(r[f"{what}_{level:g}"]) for r in part) for what in ("full", "draws"))
            pa, pb = (binomtest(k, size, level, "greater").pvalue for k, size in ((a, n), (b, d)))
            counts = [f"{n:,}", f"{level:g}", str(a), f"{pa:.2g}", f"{d:,}", str(b), f"{pb:.2g}"]
            lines.append([f"{len(part)} {kind}", access, *counts])
    head = [
        "models",
        "read at",
        "fresh marks",
        "level",
        "rejections",
        "p",
        "random keys",
        "rejections",
        "p",
    ]
    return table(head, lines, text=2)


if __name__ == "__main__":
    run_benchmark(__doc__, PATH, study, suspects(), summary)
