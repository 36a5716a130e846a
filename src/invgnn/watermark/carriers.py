"""The sampling protocol of Appendix A: private graphs that look like the task's and are not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, fields
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from invgnn.checks import check_number, check_whole
from invgnn.errors import CarrierError, DataError, ParameterError
from invgnn.graphs.disjoint_union import Draws, Graphs, Ints, ranges
from invgnn.graphs.invariants import Scale, find_invariant
from invgnn.graphs.rewiring import rewire, sample_subgraphs
from invgnn.graphs.statistics import clustering, degrees
from invgnn.graphs.wl_hash import label_nodes, wl_hash
from invgnn.secret import public_stream
from invgnn.stats.ks_test import similar
from invgnn.watermark.feature_donors import FeatureDonors

SUBGRAPHS = 1000
"""How many connected subgraphs stand for the population of a node task."""

MOST = {"swap_step": 10_000, "swap_cap": 10_000, "rounds": 32, "wave": 65_536, "patience": 100_000}
"""The largest values of a sampler's whole numbers."""

Quota = Callable[[Graphs], NDArray[np.int64]]
"""Sorts candidates into class 0, class 1, or -1 for neither; both classes are filled equally."""


class Reference:
    """The public population a mark is drawn from, and the statistics carriers are compared with.

    Whoever draws many marks from the same data makes one of these first: nothing is computed twice.
    """

    def __init__(
        self,
        graphs: Graphs,
        level: Literal["graph", "node"] = "graph",
        labels: Ints | None = None,
        digest: str | None = None,
    ) -> None:
        """Keep graphs and, if known, the class of every graph or, for a node task, of every node.

        Args:
            graphs: The population.
            level: Whether whole graphs or nodes are classified.
            labels: One class per graph or node, -1 where it is unknown; None if there are no classes.
            digest: The digest a mark is bound to; that of the graphs if not given.
        """
        if len(graphs) < 2:
            raise DataError(
                f"{len(graphs)} reference graph is no population to draw carriers from",
                "pass all training graphs; for a node task pass the one graph itself, not a list",
            )
        if not len(graphs.edges):
            raise DataError(
                "the reference graphs have no edges, so nothing can be rewired",
                "check edge_index; carriers need graphs with at least two edges",
            )
        self.graphs, self.level, self.labels = graphs, level, labels
        self.digest = graphs.digest() if digest is None else digest
        self._scales: dict[str, Scale] = {}
        self._hashes: dict[tuple[str, int], frozenset[bytes]] = {}

    @classmethod
    def of(cls, data: Any, version: int = 2) -> Reference:
        """Return the reference of a task: its training graphs, or the one graph of a node task.

        Connected random subgraphs of 12 to 32 nodes stand for a single graph (a PyG `Data`), drawn
        with a public seed so that everybody gets the same. Labels (`y`) are taken along where they are
        classes; of a graph with a `train_mask`, those of training nodes only.

        Args:
            data: A list of PyG `Data`, a data set, one `Data`, `Graphs`, or a `Reference`.
            version: Format of the mark that asks; marks of format 1 are bound to another digest.
        """
        if isinstance(data, Reference):
            return data
        if isinstance(data, Graphs):
            return cls(data, digest=_digest(data, version))
        # A PyG data set shows the edges of all its graphs together: it is many graphs all the same.
        if hasattr(data, "indices") or getattr(data, "edge_index", None) is None:
            items = list(data)
            graphs = Graphs.from_data(items)
            return cls(graphs, "graph", labels_of_graphs(items), _digest(graphs, version))
        whole = Graphs.from_data([data])
        found, nodes = _subgraphs(whole, public_stream("reference", _digest(whole, version)))
        if len(found) < SUBGRAPHS // 10:
            raise DataError(
                f"only {len(found)} of {SUBGRAPHS} random subgraphs reach 12 nodes",
                "the graph falls into small pieces; mark it as a task over whole graphs",
            )
        known = labels_of_nodes(data)
        labels = None if known is None else known[nodes]
        return cls(found, "node", labels, _digest(found, version))

    def labels_at(self, chosen: Ints) -> Ints | None:
        """Return the labels of some of the graphs, one after the other."""
        if self.labels is None or self.level == "graph":
            return None if self.labels is None else self.labels[chosen]
        return self.labels[ranges(self.graphs.ptr[chosen], self.graphs.sizes[chosen])]

    @property
    def num_classes(self) -> int | None:
        """How many classes the labels know; None without labels or with fewer than two classes."""
        most = -1 if self.labels is None else int(self.labels.max(initial=-1))
        return most + 1 if most >= 1 else None

    @cached_property
    def clustering(self) -> NDArray[np.float64]:
        """Sorted clustering coefficients of all nodes."""
        return np.sort(clustering(self.graphs))

    @cached_property
    def degrees(self) -> NDArray[np.float64]:
        """Sorted degrees of all nodes."""
        return np.sort(degrees(self.graphs).astype(np.float64))

    def scale(self, invariant: str) -> Scale:
        """The frozen normalisation of an invariant."""
        if invariant not in self._scales:
            self._scales[invariant] = Scale.fit(find_invariant(invariant)(self.graphs))
        return self._scales[invariant]

    def hashes(self, sampler: Sampler) -> frozenset[bytes]:
        """Weisfeiler-Lehman hashes of all graphs."""
        key = (sampler.wl, sampler.rounds)
        if key not in self._hashes:
            self._hashes[key] = frozenset(_hash(self.graphs, sampler))
        return self._hashes[key]


def _digest(graphs: Graphs, version: int) -> str:
    return graphs.digest_1() if version == 1 else graphs.digest()


def _subgraphs(whole: Graphs, draws: Draws) -> tuple[Graphs, Ints]:
    """Random connected subgraphs of one graph, and which of its nodes theirs are, in order."""
    numbered = Graphs.unchecked(whole.ptr, whole.edges, np.arange(whole.num_nodes)[:, None])
    found = sample_subgraphs(numbered, SUBGRAPHS, draws)
    nodes = np.zeros(0, dtype=np.int64) if found.x is None else found.x[:, 0].astype(np.int64)
    x = None if whole.x is None else whole.x.take(nodes, axis=0)
    return Graphs.unchecked(found.ptr, found.edges, x), nodes


def labels_of_graphs(items: Sequence[Any]) -> Ints | None:
    """Return the class of every graph, or None if some has none."""
    found = [_whole(getattr(item, "y", None)) for item in items]
    if not all(y is not None and y.size == 1 and y.min() >= 0 for y in found):
        return None
    return np.array([y.item() for y in found if y is not None], dtype=np.int64)


def labels_of_nodes(data: Any) -> Ints | None:
    """Return the class of every node, -1 outside the training mask, or None if there are no classes."""
    y, mask = _whole(getattr(data, "y", None)), getattr(data, "train_mask", None)
    if y is None or y.shape != (int(data.num_nodes),):
        return None
    known = y >= 0 if mask is None else np.asarray(mask.cpu()).reshape(len(y), -1).any(1) & (y >= 0)
    return np.where(known, y, -1)


def _whole(y: Any) -> Ints | None:
    """Labels as whole numbers, or None if they are none."""
    if y is None:
        return None
    found = np.asarray(y.detach().cpu() if hasattr(y, "detach") else y)
    return found.astype(np.int64) if found.dtype.kind in "iu" else None


def _hash(graphs: Graphs, sampler: Sampler) -> list[bytes]:
    labels = label_nodes(graphs.x) if sampler.wl == "features" and graphs.x is not None else None
    return list(wl_hash(graphs, labels, sampler.rounds).view("V16").ravel().tolist())


def distinct(graphs: Graphs, sampler: Sampler) -> bool:
    """Whether no two graphs look the same to the sampler."""
    return len(set(_hash(graphs, sampler))) == len(graphs)


@dataclass(frozen=True)
class Sampler:
    """How carriers are drawn. The defaults are the paper's, which does not say anything about features.

    Attributes:
        delta: Smallest p-value of both Kolmogorov-Smirnov tests.
        swap_step: Swaps between checks, from `swap_step` up to `swap_cap`.
        swap_cap: Most swaps of a candidate.
        size_quantile: Carriers are no larger than this quantile of the reference sizes.
        wl: Compare graphs by `structure` alone (stricter) or with their `features`.
        rounds: Rounds of Weisfeiler-Lehman refinement.
        donors: Number of task nodes with distinct features that a carrier gets its features from. None
            keeps the features of the seed graph: harder to tell from a task graph, and harder to embed.
        wave: Candidates rewired at once; part of the definition, since it orders the draws.
        patience: Candidates tried per carrier before giving up.
    """

    delta: float = 0.1
    swap_step: int = 5
    swap_cap: int = 50
    size_quantile: float = 0.25
    wl: Literal["structure", "features"] = "structure"
    rounds: int = 3
    donors: int | None = 3
    wave: int = 256
    patience: int = 64

    def __post_init__(self) -> None:
        """Refuse what no sound mark has: a file chooses what its reader computes, within these limits."""
        for name, most in MOST.items():
            check_whole(name, getattr(self, name), 1, most)
        if self.donors is not None:
            check_whole("donors", self.donors, 1, 4096)
        check_number("delta", self.delta)
        check_number("size_quantile", self.size_quantile)
        if not 0 <= self.delta < 1:
            raise ParameterError(f"delta={self.delta} is not in [0, 1)", "the paper uses 0.1")
        if not 0 < self.size_quantile <= 1:
            raise ParameterError(
                f"size_quantile={self.size_quantile} is not in (0, 1]", "the paper uses 0.25"
            )
        if not 1 <= self.swap_step <= self.swap_cap:
            raise ParameterError(
                f"swap_step={self.swap_step} and swap_cap={self.swap_cap} do not fit",
                "the paper uses 5 and 50",
            )
        if self.wl not in {"structure", "features"}:
            raise ParameterError(f"wl={self.wl!r}", "choose 'structure' or 'features'")

    def record(self) -> dict[str, Any]:
        """Return the parameters as plain values, as they are bound into every mark.

        The names are part of the format: changing one breaks every mark in the field.
        """
        names = {"donors": "lenders"}
        return {names.get(name, name): value for name, value in asdict(self).items() if value is not None}

    @classmethod
    def recall(cls, record: dict[str, Any]) -> Sampler:
        """Return the sampler of a record; without `lenders`, carriers keep the features of their seeds."""
        known = {f.name for f in fields(cls)} - {"donors"} | {"lenders"}
        if not isinstance(record, dict) or not set(record) <= known:
            raise ParameterError("the sampler's record has unknown fields", "draw the mark anew")
        rest = {name: value for name, value in record.items() if name != "lenders"}
        return cls(donors=record.get("lenders"), **rest)


@dataclass(frozen=True, eq=False)
class Carriers:
    """A drawn carrier set and why the other candidates were refused."""

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
        """Exactly `m` carriers, the same ones for the same stream, reference and sampler."""
        sampler = sampler or Sampler()
        return _Drawing(reference, m, sampler, quota).run(draws, progress)


class _Drawing:
    """One run of the protocol: what was accepted so far and what the checks compare with."""

    def __init__(self, reference: Reference, m: int, sampler: Sampler, quota: Quota | None) -> None:
        self.sampler, self.quota, self.m = sampler, quota, m
        self.rejected: Counter[str] = Counter()
        self.pool = reference.clustering
        self.task_graphs = reference.hashes(sampler)
        self.seen = set(self.task_graphs)
        self.seeds = self._eligible(reference)
        self.features = reference.graphs.x
        self.accepted: list[Graphs] = []
        self.deck = np.empty(0, dtype=np.int64)  # seeds in the order they are used: all, before any twice
        self.room = np.array([m // 2, m - m // 2]) if quota else np.array([m, 0])

    def _eligible(self, reference: Reference) -> Graphs:
        """Seeds small and rich enough, and of ordinary degrees, which swaps never change."""
        sizes = reference.graphs.sizes
        cap = np.quantile(sizes, self.sampler.size_quantile, method="lower")
        small, rich = sizes <= cap, np.diff(reference.graphs.edge_ptr) >= 2
        seeds = reference.graphs.take(np.flatnonzero(small & rich))
        values = degrees(seeds).astype(np.float64)
        usual = similar(values, seeds.ptr, reference.degrees, self.sampler.delta)
        self.rejected[_CAP] += int((~small).sum())
        self.rejected["seed with fewer than two edges"] += int((small & ~rich).sum())
        self.rejected["seed with unusual degrees"] += int((~usual).sum())
        if not usual.any():
            raise self._starved("no reference graph can be a seed")
        return seeds.take(np.flatnonzero(usual))

    def run(self, draws: Draws, progress: Callable[[int], None] | None) -> Carriers:
        tried, count, x = 0, self.sampler.donors, self.features
        donors = (
            None if not count or x is None or not x.shape[1] else FeatureDonors.collect(x, count, draws)
        )
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

    def _wave(self, draws: Draws, donors: FeatureDonors | None) -> None:
        """One batch of seeds, rewired step by step until each passes every check or gives up."""
        while len(self.deck) < self.sampler.wave:
            self.deck = np.append(self.deck, draws.permutation(len(self.seeds)))
        graphs = self.seeds.take(self.deck[: self.sampler.wave])
        self.deck = self.deck[self.sampler.wave :]
        graphs = donors.donate(graphs, draws) if donors else graphs
        for _ in range(self.sampler.swap_step, self.sampler.swap_cap + 1, self.sampler.swap_step):
            graphs, done = rewire(graphs, self.sampler.swap_step, draws)
            keys = _hash(graphs, self.sampler)
            reason = self._judge(graphs, done, keys)
            passed = np.flatnonzero(reason == "")
            reason[passed] = self._accept(graphs.take(passed), [keys[i] for i in passed])
            self.rejected.update(reason[(reason != "accepted") & (reason != "surplus")].tolist())
            # A refused candidate is rewired further, unless refusing was final: its place is taken.
            again = np.flatnonzero((reason != "accepted") & (reason != "balance"))
            if not self.room.sum() or not len(again):
                return
            graphs = graphs.take(again)

    def _judge(self, graphs: Graphs, done: NDArray[np.int64], keys: list[bytes]) -> NDArray[np.object_]:
        """Empty where a candidate passes, else the first check that refuses it."""
        reason = np.full(len(graphs), "", dtype=object)
        known = np.array([key in self.task_graphs for key in keys])
        alike = similar(clustering(graphs), graphs.ptr, self.pool, self.sampler.delta)
        reason[~alike] = "unusual clustering"
        reason[known] = "same as a task graph"
        reason[done < self.sampler.swap_step] = "no swap possible"
        return reason

    def _accept(self, graphs: Graphs, keys: list[bytes]) -> NDArray[np.object_]:
        """Take candidates in order while there is room, never two that look the same."""
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
        # The cap lets the smallest graphs through whatever the data: others are to blame first.
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
