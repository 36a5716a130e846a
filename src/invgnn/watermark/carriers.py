"""Carriers: private graphs that resemble the task's, drawn by the protocol of the paper's Appendix A.

The order of all draws is part of the format: changing it breaks every mark in the field.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from invgnn.errors import CarrierError
from invgnn.graphs.disjoint_union import Draws, Graphs
from invgnn.graphs.rewiring import rewire, rewire_within
from invgnn.graphs.statistics import clustering, degrees
from invgnn.stats.ks_test import similar
from invgnn.watermark.feature_donors import FeatureDonors, TypedDonors, types_of
from invgnn.watermark.reference import Reference
from invgnn.watermark.sampler import Sampler, hashes_of

Quota = Callable[[Graphs], NDArray[np.int64]]
"""Sorts candidates into class 0, class 1, or -1 for neither; both classes are filled equally."""


@dataclass(frozen=True, eq=False)
class Carriers:
    """A drawn set of carriers.

    Attributes:
        graphs: The carriers.
        rejected: How many candidates each check rejected.
        candidates: Number of candidates.
    """

    graphs: Graphs
    rejected: Counter[str]
    candidates: int

    @classmethod
    def draw(
        cls,
        reference: Reference,
        m: int,
        draws: Draws,
        sampler: Sampler | None = None,
        quota: Quota | None = None,
        progress: Callable[[int], None] | None = None,
    ) -> Carriers:
        """Draw exactly `m` carriers; the same stream, reference and sampler give the same ones.

        Args:
            reference: The population that carriers are drawn from.
            m: Number of carriers.
            draws: The secret stream.
            sampler: The parameters of the sampler.
            quota: Sorts candidates into two classes that are filled equally; None for no classes.
            progress: Called with the number of carriers found in every wave.

        Raises:
            CarrierError: If the reference does not yield enough carriers.
        """
        sampler = sampler or Sampler()
        return _Drawing(reference, m, sampler, quota).run(draws, progress)


class _Drawing:
    """One run of the protocol: accepted candidates, and what the checks compare with."""

    def __init__(self, reference: Reference, m: int, sampler: Sampler, quota: Quota | None) -> None:
        self.sampler, self.quota, self.m = sampler, quota, m
        self.rejected: Counter[str] = Counter()
        self.pool = reference.clustering
        self.task_graphs = reference.hashes(sampler)
        self.seen = set(self.task_graphs)
        self.seeds = self._eligible(reference)
        self.features = reference.graphs.x
        self.accepted: list[Graphs] = []
        self.deck = np.empty(0, dtype=np.int64)  # seeds in order of use, each before any is used twice
        self.room = np.array([m // 2, m - m // 2]) if quota else np.array([m, 0])

    def _eligible(self, reference: Reference) -> Graphs:
        """Return seeds that are small, have two edges or more, and ordinary degrees, which swaps keep."""
        sizes = reference.graphs.sizes
        cap = np.quantile(sizes, self.sampler.size_quantile, method="lower")
        small, rich = sizes <= cap, np.diff(reference.graphs.edge_ptr) >= 2
        seeds = reference.graphs.take(np.flatnonzero(small & rich))
        values = degrees(seeds.skeleton).astype(np.float64)
        usual = similar(values, seeds.ptr, reference.degrees, self.sampler.delta)
        self.rejected[_CAP] += int((~small).sum())
        self.rejected["seed with fewer than two edges"] += int((small & ~rich).sum())
        self.rejected["seed with unusual degrees"] += int((~usual).sum())
        if not usual.any():
            raise self._starved("no reference graph can be a seed")
        return seeds.take(np.flatnonzero(usual))

    def run(self, draws: Draws, progress: Callable[[int], None] | None) -> Carriers:
        """Draw waves of candidates until the set is full."""
        tried, donors = 0, self._donors(draws)
        while self.room.sum() > 0:
            if tried >= self.sampler.patience * self.m:
                got = self.m - int(self.room.sum())
                raise self._starved(f"{got} of {self.m} carriers after {tried} candidates")
            before = int(self.room.sum())
            self._wave(draws, donors)
            tried += self.sampler.wave
            if progress:
                progress(before - int(self.room.sum()))
        return Carriers(Graphs.concat(self.accepted), +self.rejected, tried)

    def _donors(self, draws: Draws) -> FeatureDonors | TypedDonors | None:
        """Return the donors of features, if carriers get any."""
        count, types, x = self.sampler.donors, self.sampler.types, self.features
        if not count or x is None or not x.shape[1]:
            return None
        if types is None:
            return FeatureDonors.collect(x, count, draws)
        return TypedDonors.collect(x, types, count, draws)

    def _rewired(self, graphs: Graphs, draws: Draws) -> tuple[Graphs, NDArray[np.int64]]:
        """Return graphs after one more step of swaps, and how many swaps were made in each."""
        step, types = self.sampler.swap_step, self.sampler.types
        if types is None:
            return rewire(graphs, step, draws)
        return rewire_within(graphs, types_of(graphs.x, types), step, draws)

    def _wave(self, draws: Draws, donors: FeatureDonors | TypedDonors | None) -> None:
        """Rewire one batch of seeds step by step until each passes every check or reaches the cap."""
        while len(self.deck) < self.sampler.wave:
            self.deck = np.append(self.deck, draws.permutation(len(self.seeds)))
        graphs = self.seeds.take(self.deck[: self.sampler.wave])
        self.deck = self.deck[self.sampler.wave :]
        graphs = donors.donate(graphs, draws) if donors else graphs
        for _ in range(self.sampler.swap_step, self.sampler.swap_cap + 1, self.sampler.swap_step):
            graphs, done = self._rewired(graphs, draws)
            keys = hashes_of(graphs, self.sampler)
            reason = self._judge(graphs, done, keys)
            passed = np.flatnonzero(reason == "")
            reason[passed] = self._accept(graphs.take(passed), [keys[i] for i in passed])
            self.rejected.update(reason[(reason != "accepted") & (reason != "surplus")].tolist())
            # A rejected candidate is rewired further, unless its class is full.
            again = np.flatnonzero((reason != "accepted") & (reason != "balance"))
            if not self.room.sum() or not len(again):
                return
            graphs = graphs.take(again)

    def _judge(self, graphs: Graphs, done: NDArray[np.int64], keys: list[bytes]) -> NDArray[np.object_]:
        """Return, for every candidate, an empty text if it passes, else the check that rejects it."""
        reason = np.full(len(graphs), "", dtype=object)
        known = np.array([key in self.task_graphs for key in keys])
        alike = similar(clustering(graphs.skeleton), graphs.ptr, self.pool, self.sampler.delta)
        reason[~alike] = "unusual clustering"
        reason[known] = "same as a task graph"
        reason[done < self.sampler.swap_step] = "no swap possible"
        return reason

    def _accept(self, graphs: Graphs, keys: list[bytes]) -> NDArray[np.object_]:
        """Accept candidates in order while there is room, never two that look the same."""
        classes = self.quota(graphs) if self.quota else np.zeros(len(graphs), dtype=np.int64)
        verdicts = np.full(len(graphs), "accepted", dtype=object)
        for i, (key, kind) in enumerate(zip(keys, classes.tolist(), strict=True)):
            if key in self.seen:
                verdicts[i] = "same as an earlier carrier"
            elif kind < 0:
                verdicts[i] = "invariant too close to one half"
            elif not self.room[kind]:
                verdicts[i] = "balance" if self.room.any() else "surplus"
            else:
                self.seen.add(key)
                self.room[kind] -= 1
        chosen = np.flatnonzero(verdicts == "accepted")
        if len(chosen):
            self.accepted.append(graphs.take(chosen))
        return verdicts

    def _starved(self, what: str) -> CarrierError:
        refused = [(name, n) for name, n in self.rejected.most_common() if n]
        counts = ", ".join(f"{name}: {n}" for name, n in refused)
        # The size cap always passes the smallest graphs, so report another reason first.
        worst = next((name for name, _ in refused if name != _CAP), _CAP)
        return CarrierError(f"{what}; refused: {counts}", _ADVICE[worst])


_CAP = "seed larger than the size cap"
_ADVICE = {
    _CAP: "raise size_quantile: too few seeds are left",
    "seed with fewer than two edges": "raise size_quantile, so that larger graphs become seeds",
    "seed with unusual degrees": "lower delta: the degree test refuses most seeds",
    "no swap possible": "raise size_quantile: these graphs are too small or too regular to rewire",
    "same as a task graph": "raise size_quantile, or compare with wl='features'",
    "same as an earlier carrier": "raise size_quantile, or draw fewer carriers (smaller m)",
    "unusual clustering": "lower delta: the clustering test refuses most candidates",
    "invariant too close to one half": "lower the gap, or use a keyed invariant",
    "balance": "use a keyed invariant: this one rarely falls on the other side of one half",
}
