"""Sampler: the parameters of the carrier sampler, and when two graphs look the same to it."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import Any, Literal

from invgnn.checks import check_number, check_whole
from invgnn.errors import ParameterError
from invgnn.graphs.disjoint_union import Graphs
from invgnn.graphs.wl_hash import label_nodes, wl_hash

MOST = {"swap_step": 10_000, "swap_cap": 10_000, "rounds": 32, "wave": 65_536, "patience": 100_000}
"""The largest values of a sampler's whole numbers."""


def hashes_of(graphs: Graphs, sampler: Sampler) -> list[bytes]:
    """Return the Weisfeiler-Lehman hash of every graph, by which the sampler compares graphs."""
    labels = label_nodes(graphs.x) if sampler.wl == "features" and graphs.x is not None else None
    return list(wl_hash(graphs.skeleton, labels, sampler.rounds).view("V16").ravel().tolist())


def distinct(graphs: Graphs, sampler: Sampler) -> bool:
    """Return whether no two graphs look the same to the sampler."""
    return len(set(hashes_of(graphs, sampler))) == len(graphs)


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
        types: Number of types of nodes, whose one-hot code is in the first columns of the features. Edges
            are then swapped with edges between nodes of the same types, and donors give their features to
            nodes of their own type. None for graphs without types.
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
    types: int | None = None

    def __post_init__(self) -> None:
        """Refuse values outside the limits: a file of a stranger decides what its reader computes."""
        for name, most in MOST.items():
            check_whole(name, getattr(self, name), 1, most)
        if self.donors is not None:
            check_whole("donors", self.donors, 1, 4096)
        if self.types is not None:
            check_whole("types", self.types, 1, 4096)
        check_number("delta", self.delta)
        check_number("size_quantile", self.size_quantile)
        if not 0 <= self.delta < 1:
            raise ParameterError(f"delta={self.delta} is not in [0, 1)", "the paper uses 0.1")
        if not 0 < self.size_quantile <= 1:
            raise ParameterError(
                f"size_quantile={self.size_quantile} is not in (0, 1]", "the paper uses 0.25"
            )
        if self.swap_step > self.swap_cap:
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
