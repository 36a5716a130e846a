"""One forward pass of anybody's model: how it is called, what a layer shows, and nothing of it changed."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy
from torch_geometric.data import Batch
from torch_geometric.nn import MessagePassing

from invgnn.errors import InvgnnError, SuspectError
from invgnn.graphs.disjoint_union import Graphs
from invgnn.nn.layers import parts_of, walk
from invgnn.nn.observation import Observation
from invgnn.nn.rng import preserved_rng

Forward = Callable[[nn.Module, Any], Tensor]

_BATCH = type(Batch())


def as_batch(**tensors: Tensor | None) -> Any:
    """A PyG batch of these tensors; `Batch(...)` makes the same and inspects its own signature first."""
    return type.__call__(_BATCH, **tensors)


def to_batch(graphs: Graphs, like: Tensor | None = None) -> Any:
    """The graphs as one PyG batch, on the device and with features of the precision of `like`.

    Whole numbers stay whole: they may be places in a table.
    """
    batch = as_batch(
        x=None if graphs.x is None else torch.from_numpy(graphs.x.copy()),  # models may write into it
        edge_index=torch.from_numpy(graphs.directed()),
        batch=torch.from_numpy(graphs.graph_of_node.copy()),
        ptr=torch.from_numpy(graphs.ptr.copy()),
    )
    batch.num_nodes = graphs.num_nodes
    return batch if like is None else placed(batch, like)


def placed(batch: Any, like: Tensor) -> Any:
    """A batch on the device of a tensor, its features in the same precision."""
    if batch.edge_index.device != like.device:
        batch = copy.copy(batch).to(like.device)
    x = batch.x
    if x is not None and x.is_floating_point() and like.is_floating_point() and x.dtype != like.dtype:
        batch = copy.copy(batch)
        batch.x = x.to(like.dtype)
    return batch


def weight_of(model: nn.Module) -> Tensor | None:
    """A weight that shows on which device and in which precision a model computes."""
    parts = parts_of(model)
    _require_weights(parts)
    held = (p for part in parts for p in part._parameters.values() if p is not None)
    weight = next((p for p in held if p.is_floating_point()), None)
    if weight is not None and weight.is_meta:
        raise SuspectError("the model is on the meta device and has no weights", "load its weights first")
    return weight


def _require_weights(parts: Sequence[nn.Module]) -> None:
    # Asked before every pass, and torch's own walks over all parameters take far longer.
    tables = [table for part in parts for table in (part._parameters, part._buffers) if table]
    if any(value is not None and is_lazy(value) for table in tables for value in table.values()):
        raise SuspectError(
            "the model has lazy layers that do not know their width yet",
            "run one batch through the model first",
        )


def unwrap(model: nn.Module) -> nn.Module:
    """Return the module inside a data-parallel wrapper of torch's; a class derived from one is none."""
    parallel = (nn.parallel.DistributedDataParallel, nn.DataParallel)
    inner = model.module if type(model) in parallel else model
    return inner if isinstance(inner, nn.Module) else model


@lru_cache(maxsize=256)
def _arguments(function: Callable[..., Any], bound: bool) -> dict[str, inspect.Parameter]:
    """The arguments of a function by name, of a method without the first."""
    found = dict(inspect.signature(function).parameters)
    return dict(list(found.items())[1:]) if bound else found


def call(model: nn.Module, batch: Any) -> Tensor:
    """Run a model on a batch by the names of its forward arguments.

    Models with `edge_index` get `x`, `edge_index` and, if they ask for it, `batch`; models with one
    argument get the batch object. Anything else needs a `forward=` of your own.
    """
    forward = unwrap(model).forward
    parameters = _arguments(getattr(forward, "__func__", forward), hasattr(forward, "__func__"))
    required = [
        p
        for p in parameters.values()
        if p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)
    ]
    if "edge_index" not in parameters:
        if len(required) == 1 or len(parameters) == 1:
            return one_tensor(model(batch))
        raise SuspectError(f"cannot tell how to call forward({', '.join(parameters)})", _FORWARD)
    given = {"x": batch.x, "edge_index": batch.edge_index, "batch": batch.batch}
    first = required[0].name if required else "x"
    given.setdefault(first, batch.x)  # some call the features h, feat or node_feats
    missing = [p.name for p in required if p.name not in given]
    if missing:
        raise SuspectError(f"forward() needs {', '.join(missing)}, which carriers lack", _FORWARD)
    return one_tensor(model(**{k: v for k, v in given.items() if k in parameters}))


_FORWARD = "pass forward=lambda model, batch: ... that calls the model on a PyG batch"
ADVICE = f"carriers have the features of the task they were drawn from; {_FORWARD}"


def one_tensor(scores: Any) -> Tensor:
    """A forward's result as it is, if it is one array of scores and not several things."""
    if isinstance(scores, Tensor | np.ndarray):
        return torch.as_tensor(scores)
    pick = '["logits"]' if isinstance(scores, dict) else "[0]"
    raise SuspectError(
        f"forward() returned a {type(scores).__name__}, not one tensor of scores",
        f"pass forward=lambda model, batch: model(...){pick}, or whichever part holds the scores",
    )


@contextmanager
def watching(modules: Sequence[nn.Module], inputs: bool) -> Iterator[list[Tensor | None]]:
    """What modules are given, or else give, while a block runs; the hooks are gone afterwards."""
    seen: list[Tensor | None] = []

    def before(module: nn.Module, args: Any, kwargs: Any) -> None:
        seen.append(_first_tensor([*args, *kwargs.values()]))

    def after(module: nn.Module, args: Any, output: Any) -> None:
        seen.append(_first_tensor(output if isinstance(output, tuple) else [output]))

    handles = []
    try:
        for module in modules:
            if inputs:
                handles.append(module.register_forward_pre_hook(before, with_kwargs=True))
            else:
                handles.append(module.register_forward_hook(after))
        yield seen
    finally:
        for handle in handles:
            handle.remove()


def _last(seen: list[Tensor | None], layer: str) -> Tensor:
    if not seen:
        raise SuspectError(f"the layer {layer!r} was never called", "name a layer the model uses")
    if layer == "auto" and len(seen) == 1:
        raise SuspectError(
            "this model has a single layer with weights, so it has no hidden representation",
            "read it at access='logits', or name a layer",
        )
    told = [value for value in seen if value is not None]  # tables are asked with whole numbers
    if not told:
        raise SuspectError("the watched layer carries no floating-point tensor", "name another layer")
    return told[-1]


def _first_tensor(values: Any) -> Tensor | None:
    return next((v for v in values if isinstance(v, Tensor) and v.is_floating_point()), None)


def _find(core: nn.Module, name: str) -> nn.Module:
    modules = dict(core.named_modules())
    if name not in modules or not name:
        raise SuspectError(
            f"the model has no layer named {name!r}",
            f"its layers: {', '.join(n for n in modules if n)}",
        )
    module: nn.Module = modules[name]
    return module


@contextmanager
def uncached(parts: Sequence[nn.Module]) -> Iterator[None]:
    """Convolutions that keep the first graph they saw (`cached=True`) forget it for a block."""
    held = [
        (module, name, value)
        for module in parts
        if isinstance(module, MessagePassing)
        for name, value in vars(module).items()
        if name.startswith("_cached_")
    ]
    try:
        for module, name, _ in held:
            setattr(module, name, None)
        yield
    finally:
        for module, name, value in held:
            setattr(module, name, value)


def observe(
    model: nn.Module, batch: Any, layer: str | None = None, forward: Forward | None = None
) -> Observation:
    """One forward pass in the model's present mode, with gradients, looking at `layer` if named."""
    found = walk(model)
    _require_weights(found.parts)
    with uncached(found.parts):
        if layer is None:
            return Observation(run(model, batch, forward), None, batch)
        name, _, side = layer.partition(":")
        watched = found.weighted if layer == "auto" else [_find(unwrap(model), name)]
        with watching(watched, inputs=layer == "auto" or side == "in") as seen:
            scores = run(model, batch, forward)
        return Observation(scores, _last(seen, layer), batch)


def run(model: nn.Module, batch: Any, forward: Forward | None) -> Tensor:
    """A model's scores, as its own `forward` or the user's has them."""
    try:
        return one_tensor((forward or call)(model, batch))
    except InvgnnError:
        raise
    except Exception as error:  # the user's own, with its traceback; only the advice is ours
        error.add_note(f"invgnn ran this model on carriers: {ADVICE}")
        raise


@torch.no_grad()
def executed(
    model: nn.Module, modules: Iterable[nn.Module], batch: Any, forward: Forward | None = None
) -> list[nn.Module]:
    """Those of the modules that a forward pass calls, in order, once per call."""
    called: list[nn.Module] = []
    handles: list[Any] = []
    try:
        for each in modules:
            handles.append(each.register_forward_hook(lambda module, *_: called.append(module)))
        with evaluation_mode(model):
            observe(model, batch, None, forward)
    finally:
        for handle in handles:
            handle.remove()
    return called


@contextmanager
def evaluation_mode(model: nn.Module) -> Iterator[None]:
    """Evaluation mode for a block; mode, buffers and random state are restored, come what may."""
    parts = parts_of(model)
    modes = [(module, module.training) for module in parts]
    buffers = [
        (module, name, value, value.clone())
        for module in parts
        for name, value in module._buffers.items()
        if value is not None
    ]
    try:
        with preserved_rng():
            if any(training for _, training in modes):
                model.eval()
            yield
    finally:
        for module, training in modes:
            if module.training != training:  # to set an attribute of a module takes long
                module.training = training
        with torch.no_grad():
            for module, name, value, before in buffers:
                module._buffers[name] = value.copy_(before)
