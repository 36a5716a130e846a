"""Measure what the model of one owner scores for the others, with plain keys and with keyed bits.

    make owners

PROTEINS-GIN with the paper's head inside the model, read at `perception`, at a weight that embeds. Three
owners mark a model each and eight read it, five of whom never marked any; `nobody` is a model without a
mark. The tables are part of docs/explanation/theory.md, which `benchmarks/theory.py` fills.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from invgnn.bench.owner_tables import owner_tables
from invgnn.bench.script import run_benchmark
from invgnn.storage.tables import read_rows

PATH = Path(__file__).parents[1] / "benchmarks" / "results" / "owners.csv"
SETTING, SEED, BETA = "PROTEINS/GIN", 41, 10.0
KEYS = ("plain", "keyed")
OWNERS, READERS, SETS, M = 3, 8, 4, 128


def grid() -> Iterator[dict[str, Any]]:
    """Yield one model per trial: that of each owner, and an unmarked one."""
    for key in KEYS:
        for model in (*range(OWNERS), "nobody"):
            yield {"key": key, "model": model}


def trial(key: Any, model: int | str) -> list[dict[str, Any]]:
    """Train one model and read it with the mark of every owner, one row each."""
    from invgnn.graphs.invariants import find_invariant
    from invgnn.nn.perception import attach_head
    from invgnn.nn.rng import seeded
    from invgnn.secret import Secret, public_stream
    from invgnn.theory.uniqueness import cross_scores
    from invgnn.training.tasks import load_task, new_model, parse_setting
    from invgnn.training.trainer import train
    from invgnn.watermark.carriers import Carriers
    from invgnn.watermark.mark import Watermark
    from invgnn.watermark.recipe import Recipe
    from invgnn.watermark.reference import Reference
    from invgnn.watermark.sampler import Sampler

    name, backbone = parse_setting(SETTING)
    task = load_task(name, SEED)
    reference = Reference.of(task.data)

    def ones(stream: Any) -> int:
        """Return how many carriers of a set lie above one half if no quota is set."""
        carriers = Carriers.draw(reference, M, stream).graphs
        return int((reference.scale("lambda2")(find_invariant("lambda2")(carriers)) >= 0.5).sum())

    drawn = sum(ones(public_stream("candidates", SETTING, n)) for n in range(SETS))

    def draw(owner: int) -> Watermark:
        secret = Secret(public_stream(f"owner {owner}", SETTING, SEED).bytes(32))
        recipe = Recipe(
            beta=BETA, gradient_projection=False, warmup_steps=0, after_task=0, weight_scale=None
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
    """Return two tables: scores, and distances between keys."""
    return owner_tables(read_rows(PATH)) if PATH.exists() else "Not measured yet: `make owners`."


if __name__ == "__main__":
    run_benchmark(__doc__, PATH, trial, grid(), summary)
