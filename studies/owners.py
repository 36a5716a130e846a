"""What one owner's model scores for the others: plain keys and keyed ones, nothing else changed.

    python benchmarks/owners.py

PROTEINS-GIN with the paper's head inside the model, read at `perception`, at a weight that embeds. Three
owners mark a model each and eight read it, five of whom never marked any; `nobody` is a model without a
mark. The table is part of docs/explanation/theory.md: `benchmarks/theory.py --summary --into
docs/explanation/theory.md`.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import log
from statistics import mean
from typing import Any

import trials

PATH = trials.RESULTS / "owners.csv"
SETTING, SEED, BETA = "PROTEINS/GIN", 41, 10.0
KEYS = ("plain", "keyed")
OWNERS, READERS, SETS, M = 3, 8, 4, 128


def grid() -> Iterator[dict[str, Any]]:
    """One model a trial: each owner's, and nobody's."""
    for key in KEYS:
        for model in (*range(OWNERS), "nobody"):
            yield {"key": key, "model": model}


def trial(key: Any, model: int | str) -> list[dict[str, Any]]:
    """Train one model and read it with everybody's mark, a row each."""
    from invgnn.graphs.invariants import find_invariant
    from invgnn.nn.perception import attach_head
    from invgnn.nn.rng import seeded
    from invgnn.secret import Secret, public_stream
    from invgnn.theory.uniqueness import cross_scores
    from invgnn.training.tasks import load_task, new_model, parse_setting
    from invgnn.training.trainer import train
    from invgnn.watermark.carriers import Carriers
    from invgnn.watermark.sampler import Sampler
    from invgnn.watermark.reference import Reference
    from invgnn.watermark.mark import Watermark
    from invgnn.watermark.recipe import Recipe

    name, backbone = parse_setting(SETTING)
    task = load_task(name, SEED)
    reference = Reference.of(task.data)

    def ones(stream: Any) -> int:
        """How many carriers of a set lie above one half if no quota is set."""
        carriers = Carriers.draw(reference, M, stream).graphs
        return int((reference.scale("lambda2")(find_invariant("lambda2")(carriers)) >= 0.5).sum())

    drawn = sum(ones(public_stream("candidates", SETTING, n)) for n in range(SETS))

    def draw(owner: int) -> Watermark:
        secret = Secret(public_stream(f"owner {owner}", SETTING, SEED).bytes(32))
        recipe = Recipe(
            beta=BETA, gradient_projection=False, warmup_steps=0, after_task=False, weight_scale=None
        )
        how: dict[str, Any] = {"access": "perception", "sampler": Sampler(donors=None)}
        return Watermark.draw(secret, reference, m=M, key=key, recipe=recipe, **how)

    marks = {str(owner): draw(owner) for owner in range(READERS)}
    own, net = marks.get(str(model)), new_model(task, backbone, SEED)
    with seeded(SEED):
        attach_head(net, 64)
    history = train(net, task, own, seed=SEED)
    return [
        {
            "key": key,
            "model": model,
            "reader": score.owner,
            "m": score.m,
            "tau": score.threshold,
            "t": score.matches,
            "evidence_bits": round(score.bits, 2) if score.null == "exact" else "",
            "key_distance": "" if own is None else int((own.bits != marks[score.owner].bits).sum()),
            "test_accuracy": round(history.test_acc, 4),
            "candidates": SETS * M,
            "candidate_ones": drawn,
        }
        for score in cross_scores(net, marks)
    ]


def summary() -> str:
    """Two tables in Markdown: scores, and how far apart the keys lie."""
    if not PATH.exists():
        return "Not measured yet: `python benchmarks/owners.py`."
    rows = trials.read(PATH)
    models = dict.fromkeys((row["key"], row["model"]) for row in rows)
    lines = [
        "| key | model marked by | test accuracy | its owner's T | T of the others | mean | evidence |",
        "|---|---|--:|--:|--:|--:|--:|",
        *(_scores(key, model, rows) for key, model in models),
        "",
        "| key | p (p_min) | pairs | distance (least) | bits independent | uniform balanced | quota |",
        "|---|--:|--:|--:|--:|--:|--:|",
        *(_distances(key, rows) for key in dict.fromkeys(row["key"] for row in rows)),
    ]
    return "\n".join(lines)


def _scores(key: str, model: str, rows: list[dict[str, str]]) -> str:
    part = [row for row in rows if (row["key"], row["model"]) == (key, model)]
    own = next((row["t"] for row in part if row["reader"] == model), "–")
    others = [row for row in part if row["reader"] != model]
    t = [int(row["t"]) for row in others]
    bits = [float(row["evidence_bits"]) for row in others if row["evidence_bits"]]
    most = f"{max(bits):.1f} bits at most" if bits else "no exact null"
    who = model if model == "nobody" else f"owner {model}"
    said = f"{own} | {', '.join(map(str, t))} | {mean(t):.1f} | {most}"
    return f"| {key} | {who} | {float(part[0]['test_accuracy']):.1%} | {said} |"


def _distances(key: str, rows: list[dict[str, str]]) -> str:
    """The laws at the share of ones among candidates; keys of one pair are counted once."""
    from invgnn.theory.hamming import HammingLaw
    from invgnn.theory.intervals import bound_share
    from invgnn.theory.uniqueness import p_min

    part = [row for row in rows if row["key"] == key and row["model"] not in ("nobody", row["reader"])]
    pairs = {frozenset((row["model"], row["reader"])): int(row["key_distance"]) for row in part}
    m, ones, drawn = (int(part[0][name]) for name in ("m", "candidate_ones", "candidates"))
    p, least = ones / drawn, p_min(bound_share(ones, drawn))
    laws = [HammingLaw(m, p), HammingLaw(m), HammingLaw(m, p, quota=True)]
    told = " | ".join(f"{law.mean:.1f}, 2^{law.log_collision / log(2):.0f}" for law in laws)
    apart = f"{len(pairs)} | {mean(pairs.values()):.1f} ({min(pairs.values())})"
    return f"| {key} | {p:.3f} ({least:.3f}) | {apart} | {told} |"


if __name__ == "__main__":
    trials.main(__doc__, PATH, trial, grid(), summary)
