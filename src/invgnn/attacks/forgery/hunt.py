"""Searching for carriers that an innocent model answers as the bits want: the paper's forger curves.

A forger holds a pool of sound carriers. A direction in features that anybody can compute picks a set: the
1-carriers farthest along it and the 0-carriers farthest against it. One query is one audit: he shows a set
and is told how many bits match. Plain bits are a public function of each carrier, so good directions exist
and can be climbed to. A keyed mark derives its bits from the whole set: every set is a fresh throw.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from torch import nn

from invgnn.attacks.forgery.forgery import KEPT, Forged, Forgery, Naive
from invgnn.attacks.forgery.search import Found, Search
from invgnn.audit.verify import verify
from invgnn.errors import ParameterError
from invgnn.graphs.disjoint_union import Floats, Graphs, Ints, sum_runs
from invgnn.graphs.invariants import find_invariant, plain_bits
from invgnn.graphs.statistics import clustering, degrees, triangles
from invgnn.readout.query import answers_on
from invgnn.secret import Secret, public_stream
from invgnn.training.tasks import Task
from invgnn.watermark.carriers import Carriers
from invgnn.watermark.reference import Reference
from invgnn.watermark.mark import Key, Watermark
from invgnn.watermark.questions import Questions

WIDTH = 8
"""How many columns of node features a forger looks at, at most."""


def public_features(graphs: Graphs) -> Floats:
    """What anybody sees of each graph [G,d]: sizes, degrees, clustering, triangles, mean node features.

    Every column has mean 0 and standard deviation 1; columns that never change are left out.
    """
    ptr, sizes = graphs.ptr, np.maximum(graphs.sizes, 1).astype(np.float64)
    degree = degrees(graphs).astype(np.float64)
    sums = [degree, degree**2, clustering(graphs), triangles(graphs).astype(np.float64)]
    columns = [sizes, *(sum_runs(one, ptr) / sizes for one in sums)]
    if graphs.x is not None:
        shown = graphs.x[:, :WIDTH].astype(np.float64)
        columns += list((sum_runs(shown, ptr) / sizes[:, None]).T)
    seen = np.stack(columns, axis=1)
    spread = seen.std(axis=0)
    return np.asarray((seen - seen.mean(axis=0))[:, spread > 1e-9] / spread[spread > 1e-9])


@dataclass(frozen=True, eq=False)
class Ground:
    """A pool of candidate carriers, what the model answers on each, and the mark that reads them."""

    mark: Watermark
    pool: Graphs
    answers: Floats
    bits: Ints
    features: Floats

    @classmethod
    def prepare(cls, model: nn.Module, mark: Watermark, reference: Reference, size: int) -> Ground:
        """A pool with equally many carriers of either plain bit, drawn by the sampling protocol."""
        if size < 2 * mark.m:
            raise ParameterError(f"a pool of {size} for {mark.m} carriers", "twice as many, at least")
        value = find_invariant(mark.context["invariant"])
        draws = mark.secret.derive("pool", size)
        sampler = replace(KEPT, size_quantile=0.5)  # more seeds than a mark needs
        pool = Carriers.draw(
            reference, size, draws, sampler, lambda graphs: plain_bits(mark.scale(value(graphs)))
        ).graphs
        answers = answers_on(model, pool, mark.reading(), mark.direction)
        return cls(mark, pool, answers, plain_bits(mark.scale(value(pool))), public_features(pool))

    def sets(self, points: Floats) -> Ints:
        """The carriers that each direction picks [n,m], in the order of the pool."""
        along, half = points @ self.features.T, self.mark.m // 2
        sides = [np.flatnonzero(self.bits == bit) for bit in (0, 1)]
        signed = (along[:, sides[0]], -along[:, sides[1]])
        picked = [
            side[np.argpartition(score, half - 1, axis=1)[:, :half]]
            for side, score in zip(sides, signed, strict=True)
        ]
        return np.sort(np.concatenate(picked, axis=1), axis=1)

    def matches(self, points: Floats) -> Floats:
        """T of each direction's set: what an audit tells the forger."""
        chosen = self.sets(points)
        answers = self.answers[chosen]
        said = answers > np.sort(answers, axis=1)[:, self.mark.m // 2 - 1, None]
        return np.asarray((said == self.keys(chosen)).sum(axis=1), dtype=np.float64)

    def keys(self, chosen: Ints) -> Ints:
        """The bits of each set: those of the carriers, or of the set as a whole."""
        if self.mark.context["key"] == "plain":
            return self.bits[chosen]
        # As Watermark.bits has it; making the whole mark would check every set for repeats in the pool.
        key = partial(self.mark.secret.derive, "bits", self.mark.bound)
        ordinary, labels = self.mark.ordinary, self.mark.labels
        asked = [Questions(self.pool.take(row), ordinary, labels) for row in chosen]
        bits = [key(one.digest).balanced(self.mark.m) for one in asked]
        return np.stack(bits)

    def forged(self, point: Floats) -> Watermark:
        """The mark on the carriers that a direction picks."""
        return replace(self.mark, carriers=self.pool.take(self.sets(point[None])[0]), rejected={})


class Hunt(Forgery):
    """Search for a carrier set on which an innocent model says the bits.

    search   how: see `search` and `guided`
    budget   how many sets are put before the model
    m, pool  carriers in a set, and candidates to choose them from
    """

    fools = "plain bits, any carriers, T ≥ τ"
    stopped = "a plain mark is never owned; keyed bits are thrown anew for every set"

    def __init__(self, search: Search, budget: int | None = None, m: int = 128, pool: int = 512) -> None:
        self.search, self.budget = search, search.most if budget is None else budget
        self.m, self.pool = m, pool

    def ground(self, model: nn.Module, task: Task, key: Key) -> Ground:
        """The forger's pool and reading, for plain or keyed bits; the same for every way to search."""
        reference = Reference.of(task.data)
        secret = Secret(public_stream("hunt", key, self.seed, self.m).bytes(32))
        how: dict[str, Any] = {"key": key, "access": "embedding", "statistic": "matches", "sampler": KEPT}
        mark = Watermark.draw(secret, reference, m=self.m, **how)
        return Ground.prepare(model, mark, reference, self.pool)

    def hunt(self, ground: Ground) -> Found:
        """The search itself: the best T after every audit."""
        rng = np.random.default_rng([self.seed, self.m])
        return self.search.run(ground.matches, ground.features.shape[1], self.budget, rng)

    def forge(self, model: nn.Module, task: Task) -> Forged:
        """Hunt for plain bits, which pass the naive check, and for keyed ones."""
        grounds = [self.ground(model, task, key) for key in ("plain", "keyed")]
        plain, keyed = (ground.forged(self.hunt(ground).point) for ground in grounds)
        said = plain.read(model).carriers
        return Forged(
            accused=model,
            naive=Naive.count(self.fools, said, plain.bits),
            attempts=(lambda: verify(model, plain), lambda: verify(model, keyed)),
            tried=self.budget,
            mark=plain,
        )

    def __repr__(self) -> str:
        return f"{self.search} search, {self.budget} audits"
