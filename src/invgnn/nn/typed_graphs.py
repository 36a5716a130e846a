"""Schema: typed graphs (`HeteroData`) as plain graphs that carriers can be drawn from, and back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.data import Batch, Data, HeteroData

from invgnn.errors import DataError, SuspectError

Relation = tuple[str, str, str]
"""Type of the source, name, type of the target."""
_PAGE = "see the page on typed and temporal graphs"


def is_typed(data: Any) -> bool:
    """Return whether data are one graph with types of nodes and edges."""
    return hasattr(data, "node_types") and hasattr(data, "edge_types")


@dataclass(frozen=True)
class Schema:
    """The types of a task's graphs: pass it as `forward=` where a mark of typed graphs is loaded.

    As a plain graph, a typed graph has its nodes in the order of their types. The features of a node are a
    one-hot code of its type and its own features, filled up with zeros. Edges of reverse relations are left
    out, and the type of an edge follows from the types of its ends.

    Attributes:
        widths: Number of features of every type of node.
        relations: The relations, none of which is the reverse of an earlier one.
        reverses: The relations that are the reverse of another one, and that one.
        order: All relations in the order of the data. Some models depend on it: PyG's `HGTConv` mixes up
            relations that come in another order.
    """

    widths: dict[str, int]
    relations: tuple[Relation, ...]
    reverses: dict[Relation, Relation]
    order: tuple[Relation, ...]

    @classmethod
    def of(cls, graphs: Sequence[Any]) -> Schema:
        """Return the schema of typed graphs.

        Args:
            graphs: `HeteroData` objects, all with the same types of nodes and edges.

        Raises:
            DataError: If they are not, or carriers of such graphs cannot be drawn.
        """
        if not len(graphs) or not all(is_typed(graph) for graph in graphs):
            raise DataError("expected a list of HeteroData", "pass all training graphs; " + _PAGE)
        nodes, edges = graphs[0].metadata()
        if any(graph.metadata() != (nodes, edges) for graph in graphs):
            raise DataError("some graphs have other types than the first", "give all graphs the same types")
        for graph in graphs:
            _check(graph)
        relations: list[Relation] = []
        reverses: dict[Relation, Relation] = {}
        for one in map(tuple, edges):
            twin = next((other for other in relations if _mirrored(graphs, one, other)), None)
            if twin is None:
                relations.append(one)
            else:
                reverses[one] = twin
        ends = [(source, target) for source, _, target in relations]
        if len(set(ends)) < len(ends):
            raise DataError(
                "two relations join the same types of nodes",
                f"carriers tell relations by the types of their ends; leave all but one out, or {_PAGE}",
            )
        widths = {name: graphs[0][name].x.shape[1] for name in nodes}
        return cls(widths, tuple(relations), reverses, tuple(map(tuple, edges)))

    @property
    def types(self) -> list[str]:
        """The types of nodes, in the order of their codes."""
        return list(self.widths)

    def flatten(self, graph: Any) -> Data:
        """Return a typed graph as a plain one, or a batch of them as a batch.

        Args:
            graph: A `HeteroData` of this schema, or what a `DataLoader` made of some.

        Raises:
            DataError: If it has other types of nodes or edges.
        """
        if graph.node_types != self.types or tuple(map(tuple, graph.edge_types)) != self.order:
            raise DataError("the batch has other types of nodes or edges than the data of the mark", _PAGE)
        count, width = len(self.types), max(self.widths.values())
        first, rows, start = {}, [], 0
        for code, name in enumerate(self.types):
            x = graph[name].x
            row = x.new_zeros(len(x), count + width, dtype=torch.get_default_dtype())
            row[:, code] = 1
            row[:, count : count + x.shape[1]] = x
            first[name], start = start, start + len(x)
            rows.append(row)
        pairs = [
            graph[one].edge_index + torch.tensor([[first[one[0]]], [first[one[2]]]])
            for one in self.relations
        ]
        more = {"y": graph.y} if "y" in graph else {}
        found = {"x": torch.cat(rows), "edge_index": torch.cat(pairs, dim=1), **more}
        if not isinstance(graph, Batch):
            return Data(**found)
        owners = torch.cat([graph[name].batch for name in self.types])
        batch = Batch(batch=owners, ptr=_ends(owners, graph.num_graphs), **found)
        batch._num_graphs = graph.num_graphs
        return batch

    def restore(self, batch: Any) -> HeteroData:
        """Return a batch of plain graphs as one of typed graphs, with `batch` for every type of node.

        Args:
            batch: A PyG batch, as a mark gives it to a model.
        """
        count, found = len(self.types), HeteroData()
        kind = batch.x[:, :count].argmax(1)
        place = torch.empty_like(kind)
        for code, (name, width) in enumerate(self.widths.items()):
            mine = kind == code
            place[mine] = torch.arange(int(mine.sum()), device=kind.device)
            found[name].x, found[name].batch = batch.x[mine, count : count + width], batch.batch[mine]
        source, target = batch.edge_index
        for one in self.order:  # takes the places, in the order of the data
            found[one].edge_index = source.new_empty(2, 0)
        for one in self.relations:
            ends = [self.types.index(one[0]), self.types.index(one[2])]
            mine = (kind[source] == ends[0]) & (kind[target] == ends[1])
            found[one].edge_index = torch.stack([place[source[mine]], place[target[mine]]])
        for one, twin in self.reverses.items():
            found[one].edge_index = found[twin].edge_index.flip(0)
        found.num_graphs = batch.num_graphs
        return found

    def __call__(self, model: nn.Module, batch: Any) -> Tensor:
        """Run a model of typed graphs on a batch of plain ones; the names of its arguments decide.

        Args:
            model: Takes some of `x_dict`, `edge_index_dict` and `batch_dict`, or a `HeteroData`.
            batch: A PyG batch, as a mark gives it to a model.

        Raises:
            SuspectError: If it has other arguments.
        """
        import inspect

        from invgnn.nn.forward import one_tensor, unwrap

        typed = self.restore(batch)
        names = [n for n in inspect.signature(unwrap(model).forward).parameters if n != "self"]
        known = {"x_dict", "edge_index_dict", "batch_dict", "num_graphs"}
        if len(names) == 1 and names[0] not in known:
            return one_tensor(model(typed))
        if set(names) - known:
            raise SuspectError(
                f"it is unknown how to call forward({', '.join(names)})",
                "use the arguments x_dict, edge_index_dict and batch_dict, or pass forward= with a "
                "function that calls the model on schema.restore(batch)",
            )
        return one_tensor(model(**{name: getattr(typed, name) for name in names}))


def flattened(data: Any, forward: Any) -> Any:
    """Return typed graphs, in a list or a batch, as plain ones; other data as they are.

    Args:
        data: Task inputs of any form.
        forward: How the model is called: the schema of the graphs, or a function.
    """
    if is_typed(data) and isinstance(data, Batch) and isinstance(forward, Schema):
        return forward.flatten(data)
    if not isinstance(data, list | tuple) or not data or not is_typed(data[0]):
        return data
    schema = forward if isinstance(forward, Schema) else Schema.of(data)
    return [schema.flatten(graph) for graph in data]


def _check(graph: Any) -> None:
    """Refuse a typed graph with parts that carriers cannot have."""
    for name in graph.node_types:
        x = getattr(graph[name], "x", None)
        if not isinstance(x, Tensor) or x.dim() != 2 or not x.is_floating_point():
            raise DataError(
                f"nodes of type {name!r} have no real-valued features",
                "set x of every type of node, for example to ones",
            )
    for one in graph.edge_types:
        extra = sorted(set(graph[one].keys()) - {"edge_index"})
        if extra:
            raise DataError(
                f"edges of type {one} have {', '.join(extra)}, which typed carriers cannot have",
                f"delete it if the model does not use it; {_PAGE}",
            )


def _ends(owners: Tensor, count: int) -> Tensor:
    """Return where the nodes of every graph would end if they were sorted by graph."""
    return nn.functional.pad(owners.bincount(minlength=count).cumsum(0), (1, 0))


def _mirrored(graphs: Sequence[Any], one: Relation, other: Relation) -> bool:
    """Return whether a relation has exactly the edges of another one, in the other direction."""
    if (one[0], one[2]) != (other[2], other[0]):
        return False
    return all(_edges(graph[one].edge_index) == _edges(graph[other].edge_index.flip(0)) for graph in graphs)


def _edges(edge_index: Tensor) -> set[tuple[int, int]]:
    return set(map(tuple, edge_index.t().tolist()))
