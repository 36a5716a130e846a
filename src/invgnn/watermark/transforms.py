"""Apply a PyG transform to the questions of a mark, once, before the bits are derived."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import torch
from torch_geometric.data import Data

from invgnn.errors import DataError, InvgnnError
from invgnn.graphs.attributed import Attributed, Shown, array_of, kinds_of, uncarried
from invgnn.nn.rng import seeded
from invgnn.secret import Stream

Transform: TypeAlias = Callable[[Any], Any]
"""A transform of PyG: a function from a `Data` to a `Data`."""


def transformed(shown: Shown, transform: Transform, stream: Stream) -> Attributed:
    """Return what a transform makes of every graph.

    The result is stored in the mark and bound to its bits, and a suspect is shown only what is decoded from
    it. The transform does not run again, so it is no code between an auditor and a suspect, and nobody can
    exchange it later.

    Args:
        shown: The graphs.
        transform: The transform. Global random numbers that it draws, such as the signs of eigenvectors,
            derive from the stream; the global random states stay as they were.
        stream: A stream of the secret.

    Raises:
        DataError: If the transform fails, or yields what cannot be bound.
    """
    kinds = shown.more
    tables = {name: torch.from_numpy(value.copy()) for name, (_, value) in kinds.items()}
    places = {"node": shown.ptr, "edge": shown.arrow_ptr, "graph": np.arange(len(shown) + 1)}
    edges, x = torch.from_numpy(shown.directed()), shown.x
    items = []
    for number in range(len(shown)):
        cut = {kind: slice(int(at[number]), int(at[number + 1])) for kind, at in places.items()}
        held = {name: tables[name][cut[kind]].clone() for name, (kind, _) in kinds.items()}
        if x is not None:
            held["x"] = torch.from_numpy(x[cut["node"]].copy())
        index = edges[:, cut["edge"]] - int(shown.ptr[number])
        items.append(Data(edge_index=index, num_nodes=int(shown.sizes[number]), **held))
    with seeded(int(stream.below([2**32])[0])):
        found = [_applied(transform, item, number) for number, item in enumerate(items)]
    _check(found)
    return Attributed.from_data(found)


def _applied(transform: Transform, item: Data, number: int) -> Data:
    """Return what a transform makes of one graph."""
    try:
        found = transform(item)
    except InvgnnError:
        raise
    except Exception as error:  # a transform is the user's code
        raise DataError(
            f"the transform failed on graph {number} ({item.num_nodes} nodes): {error}",
            "use a transform that accepts every training graph, also the smallest",
        ) from error
    if type(found) is not Data or found.edge_index is None or found.num_nodes is None:
        raise DataError(
            f"the transform returned a {type(found).__name__} without edge_index, or of another kind",
            "use a transform that returns a Data with edge_index; ToSparseTensor and ToHetero are not "
            "supported",
        )
    return found


def _check(items: list[Data]) -> None:
    """Refuse tensors that a suspect would not be shown."""
    carried = kinds_of(items)
    lost = {
        str(name)
        for item in items
        for name, value in item.to_dict().items()
        if isinstance(value, torch.Tensor) and name not in carried and name != "edge_index"
        if name == "x" or not uncarried(name)
    }
    if lost:
        shapes = ", ".join(
            f"{name} {array_of(items[0].to_dict().get(name)).shape}" for name in sorted(lost)
        )
        raise DataError(
            f"the transform yields {shapes}, not with one row per node, edge or graph of every graph",
            "use a transform whose tensors have one row per node, edge or graph and equal widths",
        )
