"""Search for carriers on which an unmarked model's answers match the bits: the paper's forger curves.

A forger holds a pool of valid carriers. A direction in the space of public features selects a set: the
1-carriers farthest along it and the 0-carriers farthest against it. One query is one audit: the forger
submits a set and learns how many bits match. Plain bits are a public function of each carrier, so good
directions exist and can be found by search. A keyed mark derives its bits from the whole set, so every set
has new random bits.
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
from invgnn.watermark.mark import Key, Watermark
from invgnn.watermark.questions import Questions
from invgnn.watermark.reference import Reference

WIDTH = 8
"""Largest number of columns of node features that a forger uses."""


def public_features(graphs: Graphs) -> Floats:
    """Return public features of each graph [G,d]: size, degrees, clustering, triangles, mean node features.

    Every column has mean 0 and standard deviation 1; constant columns are left out.
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
    """A pool of candidate carriers, the model's answers on them, and the mark that reads them.

    Attributes:
        mark: The forger's mark.
        pool: The candidate carriers.
        answers: The model's answer on every candidate.
        bits: The plain bit of every candidate.
        features: Public features of every candidate.
    """

    mark: Watermark
    pool: Graphs
    answers: Floats
    bits: Ints
    features: Floats

    @classmethod
    def prepare(cls, model: nn.Module, mark: Watermark, reference: Reference, size: int) -> Ground:
        """Draw a pool with equally many carriers of either plain bit, by the sampling protocol.

        Args:
            model: The model.
            mark: The forger's mark.
            reference: The reference data.
            size: Number of candidates, at least 2m.

        Raises:
            ParameterError: If the pool is too small.
        """
        if size < 2 * mark.m:
            raise ParameterError(
                f"a pool of {size} for {mark.m} carriers", f"use a pool of at least {2 * mark.m}"
            )
        value = find_invariant(mark.context["invariant"])
        draws = mark.secret.derive("pool", size)
        sampler = replace(KEPT, size_quantile=0.5)  # more seeds than a mark needs
        pool = Carriers.draw(
            reference, size, draws, sampler, lambda graphs: plain_bits(mark.scale(value(graphs)))
        ).graphs
        answers = answers_on(model, pool, mark.reading(), mark.direction)
        return cls(mark, pool, answers, plain_bits(mark.scale(value(pool))), public_features(pool))

    def sets(self, points: Floats) -> Ints:
        """Return the carriers that each direction selects [n,m], in the order of the pool."""
        along, half = points @ self.features.T, self.mark.m // 2
        sides = [np.flatnonzero(self.bits == bit) for bit in (0, 1)]
        signed = (along[:, sides[0]], -along[:, sides[1]])
        picked = [
            side[np.argpartition(score, half - 1, axis=1)[:, :half]]
            for side, score in zip(sides, signed, strict=True)
        ]
        return np.sort(np.concatenate(picked, axis=1), axis=1)

    def matches(self, points: Floats) -> Floats:
        """Return T of each direction's set, as an audit reports it to the forger."""
        chosen = self.sets(points)
        answers = self.answers[chosen]
        said = answers > np.sort(answers, axis=1)[:, self.mark.m // 2 - 1, None]
        return np.asarray((said == self.keys(chosen)).sum(axis=1), dtype=np.float64)

    def keys(self, chosen: Ints) -> Ints:
        """Return the bits of each set: of its carriers if plain, derived from the whole set if keyed."""
        if self.mark.context["key"] == "plain":
            return self.bits[chosen]
        # The same derivation as Watermark.bits. Creating the mark would check every set for repeats.
        key = partial(self.mark.secret.derive, "bits", self.mark.bound)
        ordinary, labels = self.mark.ordinary, self.mark.labels
        asked = [Questions(self.pool.take(row), ordinary, labels) for row in chosen]
        bits = [key(one.digest).balanced(self.mark.m) for one in asked]
        return np.stack(bits)

    def forged(self, point: Floats) -> Watermark:
        """Return the mark on the carriers that a direction selects."""
        return replace(self.mark, carriers=self.pool.take(self.sets(point[None])[0]), rejected={})


class Hunt(Forgery):
    """Search for a carrier set on which the answers of an unmarked model match the bits.

    Args:
        search: The search strategy; see `search` and `guided`.
        budget: Number of sets to submit; by default the largest that the strategy is meant for.
        m: Carriers per set.
        pool: Number of candidates.
    """

    fools = "plain bits, any carriers, T ≥ τ"
    stopped = "a plain mark is never owned; keyed bits are derived anew from every carrier set"

    def __init__(self, search: Search, budget: int | None = None, m: int = 128, pool: int = 512) -> None:
        self.search, self.budget = search, search.most if budget is None else budget
        self.m, self.pool = m, pool

    def ground(self, model: nn.Module, task: Task, key: Key) -> Ground:
        """Return the forger's pool for plain or keyed bits, the same for every search strategy.

        Args:
            model: The model.
            task: Its task.
            key: Kind of the key.
        """
        reference = Reference.of(task.data)
        secret = Secret(public_stream("hunt", key, self.seed, self.m).bytes(32))
        how: dict[str, Any] = {"key": key, "access": "embedding", "statistic": "matches", "sampler": KEPT}
        mark = Watermark.draw(secret, reference, m=self.m, **how)
        return Ground.prepare(model, mark, reference, self.pool)

    def hunt(self, ground: Ground) -> Found:
        """Run the search and return the best T after every audit."""
        rng = np.random.default_rng([self.seed, self.m])
        return self.search.run(ground.matches, ground.features.shape[1], self.budget, rng)

    def forge(self, model: nn.Module, task: Task) -> Forged:
        """Search with plain bits, which pass the naive check, and with keyed bits."""
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
        """Return the name in tables and test ids."""
        return f"{self.search} search, {self.budget} audits"
