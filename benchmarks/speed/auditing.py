"""Time an audit against one query per carrier, and exact p-values against simulation."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import torch

from invgnn.bench.clock import absolute, peak_megabytes, race, repeated
from invgnn.bench.measurements import Measurement
from invgnn.graphs.disjoint_union import Graphs
from invgnn.nn.forward import to_batch
from invgnn.readout.answers import Answers
from invgnn.secret import Secret, public_stream
from invgnn.stats import rank_sum
from invgnn.stats.laws import log_p_matches
from invgnn.theory.pooled import PooledNull
from invgnn.training.tasks import load_task, new_model
from invgnn.watermark.mark import Watermark

from .embedding import SEED

TRIALS, PART = 10**7, 10**5
SCALED = "its 10^7 trials extrapolated from 10^5"


def audit() -> Iterator[Measurement]:
    """Read a suspect on all carriers and ordinary inputs, and compute the evidence."""
    for name in ("PROTEINS", "NCI1"):
        task = load_task(name, SEED)
        secret = Secret(public_stream("speed", "owner").bytes(32))
        mark, model = Watermark.draw(secret, task.data), new_model(task, "GIN", SEED).eval()
        asked = Graphs.concat([mark.carriers, mark.ordinary])
        what = f"audit of a {name}-GIN, m = {mark.m}"
        note = f"both on {mark.m} carriers and {len(mark.ordinary)} ordinary inputs"
        ours = partial(_audit, model, mark)
        yield race(ours, partial(_one_by_one, model, mark, asked), 9).faster(
            "audit",
            what,
            "one query per graph (Algorithm 1)",
            note=f"{note}, from graphs in memory",
        )
        yield race(ours, partial(_forward, model, to_batch(asked)), 51).slower(
            "audit", what, "one batched forward pass, bare", "<= 1.3", note=note
        )


def _audit(model: Any, mark: Watermark) -> None:
    mark.evidence(mark.read(model))


@torch.no_grad()
def _forward(model: Any, batch: Any) -> Any:
    return model(batch.x, batch.edge_index, batch.batch)


def _one_by_one(model: Any, mark: Watermark, asked: Graphs) -> None:
    """Embeddings at the input of the last layer, projected, as the audit reads them."""
    signs, seen = mark.direction("embedding", int(model.head.in_channels)), []
    hook = model.head.register_forward_pre_hook(lambda _, args: seen.append(args[0][0].double() @ signs))
    for number in range(len(asked)):
        _forward(model, to_batch(asked.take([number])))
    hook.remove()
    mark.evidence(Answers(mark.reading(), np.array(seen[: mark.m]), np.array(seen[mark.m :])))


def exact_p() -> Iterator[Measurement]:
    """Compute the exact laws of T and U, without caches, against simulating them."""
    rng = np.random.default_rng(0)
    m = 4096
    t = partial(log_p_matches, 2200, m, m // 2)
    yield absolute("exact p", f"p of T, m = {m}", "<= 0.05", repeated(t, 15))
    yield race(t, lambda: rng.hypergeometric(m // 2, m // 2, m // 2, PART), 9).faster(
        "exact p",
        f"p of T, m = {m}",
        "10^7 Monte Carlo trials",
        ">= 100",
        scale=TRIALS / PART,
        note=SCALED,
    )
    m = 512
    answers, key = rng.normal(size=m), np.arange(m) % 2

    def exact() -> None:
        rank_sum._subsets.cache_clear()
        rank_sum._tails.cache_clear()
        rank_sum.log_p_rank(answers, key)

    place = answers.argsort().argsort() + 1
    yield absolute("exact p", f"p of U, m = {m}", "<= 1", repeated(exact, 5))
    yield race(exact, lambda: _rank_sums(place, PART // 10, rng), 5).faster(
        "exact p",
        f"p of U, m = {m}",
        "10^7 Monte Carlo trials",
        ">= 100",
        scale=10 * TRIALS / PART,
        note="its 10^7 trials extrapolated from 10^4",
    )


def _rank_sums(place: np.ndarray, trials: int, rng: np.random.Generator) -> np.ndarray:
    """Rank sums under so many balanced keys, a block at a time."""
    half = len(place) // 2
    blocks = [min(1000, trials - start) for start in range(0, trials, 1000)]
    return np.concatenate([rng.permuted(np.tile(place, (n, 1)), axis=1)[:, :half].sum(1) for n in blocks])


def pooled() -> Iterator[Measurement]:
    """Ten million draws of an unmarked model and a key, against a loop over them."""
    m, rng = 128, np.random.default_rng(0)
    ones = 48 + public_stream("speed", "pool").below(np.full(20, 33))
    pool, before = PooledNull(m, tuple(ones.tolist())), peak_megabytes()
    times = repeated(lambda: pool.simulate(TRIALS, rng), 3)
    note = f"{peak_megabytes() - before:.0f} MB more than before"
    yield absolute("pooled null", f"pooled null, 10^7 trials, m = {m}", "<= 10", times, note)

    def looped() -> None:
        counts, said = np.zeros(m + 1, dtype=np.int64), np.arange(m) < m // 2
        for _ in range(PART // 10):
            counts[int((rng.permutation(said) == said).sum())] += 1

    yield race(lambda: pool.simulate(PART, rng), looped, 5).faster(
        "pooled null",
        f"pooled null, 10^7 trials, m = {m}",
        "a numpy loop over trials",
        scale=10.0,
        note="per trial, from 10^5 of ours and 10^4 of the loop",
    )
