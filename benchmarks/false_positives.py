"""How often models that never saw a secret verify: real models, fresh secrets, fresh carriers.

    make false-positives

Every unmarked or foreign model is read with 200 marks drawn from scratch (fresh secret, fresh carriers) at
every access level that claims the exact null, and with 50 further random keys per mark. If the null is
exact, rejections at level a are at most a binomial count with probability a.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import trials
from scipy.stats import binomtest, rankdata

LEVELS = (0.1, 0.01, 0.001)
DERIVATIONS, DRAWS, EPOCHS = 200, 50, 50
PATH = trials.RESULTS / "false_positives.csv"


def suspects() -> Iterator[dict[str, Any]]:
    """20 unmarked models, and eight marked by somebody else; two of those carry the paper's head."""
    for setting in ("PROTEINS/GIN", "PROTEINS/GraphSAGE", "Cora/GCN", "Cora/GraphSAGE"):
        for seed in range(101, 106):
            yield {"setting": setting, "seed": seed, "kind": "unmarked"}
    for setting in ("PROTEINS/GIN", "Cora/GCN"):
        for seed in range(201, 204):
            yield {"setting": setting, "seed": seed, "kind": "marked by another"}
    for seed in range(301, 303):
        yield {"setting": "PROTEINS/GIN", "seed": seed, "kind": "paper's head, another's"}


def study(setting: str, seed: int, kind: str) -> list[dict[str, Any]]:
    """Train one suspect and read it with many marks; one row per access level."""
    from invgnn.carriers import Reference, Sampler
    from invgnn.secret import Secret, public_stream
    from invgnn.tasks import load_task, parse_setting
    from invgnn.watermark import Watermark

    task = load_task(parse_setting(setting)[0], seed)
    reference = Reference.of(task.data)
    model, accuracy = train_suspect(task, setting, seed, kind, reference)
    accesses = ("perception",) if "head" in kind else ("embedding", "logits", "labels")
    full: dict[str, list[float]] = {a: [] for a in accesses}
    drawn: dict[str, list[float]] = {a: [] for a in accesses}
    for i in range(DERIVATIONS):
        secret = Secret(public_stream("false positives", setting, seed, kind, i).bytes(32))
        how: dict[str, Any] = {"access": accesses, "classes": task.num_classes}
        mark = Watermark.draw(secret, reference, sampler=Sampler(lenders=None), **how)
        for access in accesses:
            answers = mark.read(model, access)
            full[access].append(mark.weigh(answers).log_p)
            keys = public_stream("bit draws", setting, seed, kind, access, i)
            threshold = 0.5 if access in {"perception", "labels"} else None
            drawn[access] += [
                _log_p(answers.carriers, keys.balanced(mark.m), threshold) for _ in range(DRAWS)
            ]
    return [
        {"setting": setting, "seed": seed, "kind": kind, "access": a, "test_accuracy": round(accuracy, 4)}
        | {"derivations": len(full[a]), "draws": len(drawn[a])}
        | {f"full_{x:g}": int(sum(p <= math.log(x) for p in full[a])) for x in LEVELS}
        | {f"draws_{x:g}": int(sum(p <= math.log(x) for p in drawn[a])) for x in LEVELS}
        | {"least_log10_p": round(min(full[a] + drawn[a]) / math.log(10), 2)}
        for a in accesses
    ]


def train_suspect(task: Any, setting: str, seed: int, kind: str, reference: Any) -> tuple[Any, float]:
    """An unmarked model, or one marked with a secret of somebody else's."""
    from invgnn.perception import attach_head
    from invgnn.randomness import seeded
    from invgnn.recipe import Recipe
    from invgnn.secret import Secret, public_stream
    from invgnn.tasks import new_model, parse_setting
    from invgnn.training import train
    from invgnn.watermark import Watermark

    model = new_model(task, parse_setting(setting)[1], seed)
    foreign = Secret(public_stream("somebody else", setting, seed).bytes(32))
    mark, recipe = None, Recipe(after=False, stiff=None)
    if kind == "marked by another":
        mark = Watermark.draw(foreign, reference, access=("embedding", "logits"), recipe=recipe)
    if "head" in kind:
        with seeded(seed):
            attach_head(model, 64)
        mark = Watermark.draw(foreign, reference, access="perception", key="plain", recipe=recipe)
    history = train(model, task, mark, seed=seed, epochs=EPOCHS)
    return model, history.test_acc


def _log_p(answers: Any, bits: Any, threshold: float | None) -> float:
    """The combined log p; answers far from every level are not worth the exact sum."""
    from invgnn import null

    said = null.decode(answers, threshold)
    m = len(bits)
    t = null.log_p_matches(null.matches(said, bits), m, int(said.sum()))
    ranks = rankdata(answers)
    spread = math.sqrt(m**2 / 4 * ranks.var() / (m - 1)) or 1.0
    z = (ranks[bits == 1].sum() - m * (m + 1) / 4) / spread
    if z < 1.2 and t > math.log(0.2):  # the rank p is then far above 0.1 as well
        return 0.0
    return null.log_p(answers, bits, "combined", threshold).log_p


def summary() -> str:
    """The table of counts and exact binomial tests, in Markdown."""
    rows = trials.read(PATH)
    lines = [
        "| models | access | fresh marks | level | rejections | p | random keys | rejections | p |",
        "|---|---|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for kind, access in dict.fromkeys((r["kind"], r["access"]) for r in rows):
        part = [r for r in rows if (r["kind"], r["access"]) == (kind, access)]
        n, d = sum(int(r["derivations"]) for r in part), sum(int(r["draws"]) for r in part)
        for level in LEVELS:
            a, b = (sum(int(r[f"{what}_{level:g}"]) for r in part) for what in ("full", "draws"))
            pa, pb = (binomtest(k, size, level, "greater").pvalue for k, size in ((a, n), (b, d)))
            fresh, keys = f"{a} | {pa:.2g}", f"{d:,} | {b} | {pb:.2g}"
            lines.append(f"| {len(part)} {kind} | {access} | {n:,} | {level:g} | {fresh} | {keys} |")
    return "\n".join(lines)


if __name__ == "__main__":
    trials.main(__doc__, PATH, study, suspects(), summary)
