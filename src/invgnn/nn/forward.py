"""Run the forward pass of any model and observe its layers without changing the model."""

from __future__ import annotations

import copy
import inspect
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy
from torch.optim.swa_utils import AveragedModel
from torch_geometric.data import Batch
from torch_geometric.nn import MessagePassing

from invgnn.errors import InvgnnError, ParameterError, SuspectError
from invgnn.graphs.attributed import Shown, uncarried
from invgnn.nn.layers import parts_of, walk
from invgnn.nn.observation import Observation, num_graphs
from invgnn.nn.rng import preserved_rng

Forward = Callable[[nn.Module, Any], Tensor]
"""A function that calls a model on a PyG batch and returns its scores."""

_BATCH = type(Batch())


def as_batch(**tensors: Tensor | None) -> Any:
    """Return a PyG batch of these tensors; faster than `Batch(...)`, which inspects its own signature."""
    return type.__call__(_BATCH, **tensors)


def to_batch(graphs: Shown, like: Tensor | None = None) -> Any:
    """Return graphs as one PyG batch, with all their tensors.

    Args:
        graphs: The graphs.
        like: A tensor that sets the device and the precision of the features. Integer features stay
            integers, because they may be indices into an embedding table.
    """
    batch = as_batch(
        x=None if graphs.x is None else torch.from_numpy(graphs.x.copy()),  # models may modify it in place
        edge_index=torch.from_numpy(graphs.directed()),
        batch=torch.from_numpy(graphs.graph_of_node.copy()),
        ptr=torch.from_numpy(graphs.ptr.copy()),
        **{name: torch.from_numpy(value.copy()) for name, (_, value) in graphs.more.items()},
    )
    batch.num_nodes = graphs.num_nodes
    kinds = {name: kind for name, (kind, _) in graphs.more.items()}
    make_separable(batch, batch.ptr.clone(), torch.from_numpy(graphs.arrow_ptr.copy()), kinds)
    return batch if like is None else placed(batch, like)


def make_separable(batch: Any, ptr: Tensor, arrow_ptr: Tensor, more: Mapping[str, str]) -> None:
    """Let `to_data_list` and `get_example` work, as on a batch that PyG collated.

    Args:
        batch: The batch, whose edges come graph by graph.
        ptr: Where the nodes of every graph start, and end.
        arrow_ptr: The same for edges.
        more: What its further tensors have one row of: `node`, `edge` or `graph`.
    """
    count = len(ptr) - 1
    rows = {"node": ptr, "edge": arrow_ptr, "graph": torch.arange(count + 1)}
    batch._num_graphs = count
    if batch.x is None:
        batch._num_nodes = ptr.diff().tolist()
    batch._slice_dict = {"edge_index": arrow_ptr} | ({} if batch.x is None else {"x": ptr})
    batch._slice_dict |= {name: rows[kind] for name, kind in more.items()}
    none = torch.zeros_like(ptr[:-1])
    batch._inc_dict = {"edge_index": ptr[:-1], "x": none} | dict.fromkeys(more, none)


def placed(batch: Any, like: Tensor) -> Any:
    """Return a batch on the device of a tensor, with floating-point tensors of the same precision.

    Args:
        batch: A PyG batch.
        like: The tensor.
    """
    if batch.edge_index.device != like.device:
        batch = copy.copy(batch).to(like.device)
    if not like.is_floating_point():
        return batch
    other = {
        name: value
        for name, value in batch._store.items()
        if isinstance(value, Tensor) and value.is_floating_point() and value.dtype != like.dtype
    }
    if other:
        batch = copy.copy(batch)
        for name, value in other.items():
            batch[name] = value.to(like.dtype)
    return batch


def weight_of(model: nn.Module) -> Tensor | None:
    """Return a weight that has the device and the precision of a model, or None if there is none.

    Raises:
        SuspectError: If the model has uninitialised lazy layers or is on the meta device.
    """
    parts = parts_of(model)
    _require_weights(parts)
    held = (p for part in parts for p in part._parameters.values() if p is not None)
    weight = next((p for p in held if p.is_floating_point()), None)
    if weight is not None and weight.is_meta:
        raise SuspectError("the model is on the meta device and has no weights", "load its weights first")
    return weight


def _require_weights(parts: Sequence[nn.Module]) -> None:
    # Called before every forward pass; torch's own iteration over all parameters is far slower.
    """Raise `SuspectError` if a module has an uninitialised lazy layer."""
    tables = [table for part in parts for table in (part._parameters, part._buffers) if table]
    if any(value is not None and is_lazy(value) for table in tables for value in table.values()):
        raise SuspectError(
            "the model has lazy layers whose width is not set yet",
            "run one batch through the model first",
        )


def require_module(model: Any) -> None:
    """Refuse anything but a module where a mark is embedded.

    Raises:
        ParameterError: If it is not a module.
    """
    if not isinstance(model, nn.Module):
        raise ParameterError(
            f"a mark is embedded in an nn.Module, not in a {type(model).__name__}",
            "pass the model first, as in mark.loss(model) and mark.joint_loss(model, task_loss)",
        )


def unwrap(model: nn.Module) -> nn.Module:
    """Return the module inside the wrappers of torch; other modules are returned unchanged.

    Unwrapped are data-parallel, compiled (`torch.compile`) and averaged (`AveragedModel`) models, also one
    inside the other. Subclasses of the wrappers are not unwrapped. What is read and trained is the inner
    module; its parameters are those of the wrapper.
    """
    while type(model) in _wrappers():
        inner = getattr(model, "_orig_mod", None) if _is_compiled(model) else model.module
        if not isinstance(inner, nn.Module):
            return model
        model = inner
    return model


def _is_compiled(model: nn.Module) -> bool:
    """Return whether a module is the result of `torch.compile`."""
    return type(model) in _wrappers()[3:]


def _wrappers() -> tuple[type[nn.Module], ...]:
    """Return the wrappers of torch; that of compiled models exists once the compiler is imported."""
    parallel = nn.parallel.DistributedDataParallel, nn.DataParallel, AveragedModel
    compiler = sys.modules.get("torch._dynamo.eval_frame")
    return parallel if compiler is None else (*parallel, compiler.OptimizedModule)


@lru_cache(maxsize=256)
def _arguments(function: Callable[..., Any], bound: bool) -> dict[str, inspect.Parameter]:
    """Return the parameters of a function by name, without the first one if it is bound."""
    found = dict(inspect.signature(function).parameters)
    return dict(list(found.items())[1:]) if bound else found


def call(model: nn.Module, batch: Any) -> Tensor:
    """Run a model on a batch; the names of its forward arguments decide what is passed.

    Models with `edge_index` receive `x`, `edge_index` and, where they have arguments of these names,
    `batch` and the further tensors of the batch, such as `edge_attr` and `edge_weight`. Models with one
    argument receive the batch object. Other models need a user-defined `forward=`.

    Args:
        model: The model.
        batch: A PyG batch.

    Returns:
        The scores.

    Raises:
        SuspectError: If the arguments are unknown, or the result is not one tensor.
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
        typed = "x_dict" in parameters or "edge_index_dict" in parameters
        raise SuspectError(
            f"it is unknown how to call forward({', '.join(parameters)})", _TYPED if typed else _FORWARD
        )
    given = {"x": batch.x, "edge_index": batch.edge_index, "batch": batch.batch}
    first = required[0].name if required else "x"
    more = (name for name in parameters if name not in given and not uncarried(name) and name in batch)
    given |= {name: batch[name] for name in more if isinstance(batch[name], Tensor)}
    given.setdefault(first, batch.x)  # the features may also be called h, feat or node_feats
    missing = [p.name for p in required if p.name not in given]
    if missing:
        raise SuspectError(
            f"forward() requires {', '.join(missing)}, which carriers lack",
            f"draw the mark from data that have it, with one row per node, edge or graph; or {_FORWARD}",
        )
    return one_tensor(model(**{k: v for k, v in given.items() if k in parameters}))


_FORWARD = (
    "pass forward=lambda model, batch: ... that calls the model on a PyG batch, to Watermark.draw, "
    "Watermark.load or mark.replace (--forward on the command line)"
)
_TYPED = (
    "draw the mark from a list of HeteroData; where it is loaded from a file, pass "
    "forward=invgnn.Schema.of(graphs) (--data on the command line)"
)
ADVICE = (
    "carriers have the tensors of the data that the mark was drawn from, passed by the names of forward's "
    f"arguments; leave out those that the model does not use with tensors=(...), or {_FORWARD}"
)


def one_tensor(scores: Any) -> Tensor:
    """Return the result of a forward pass if it is a single array of scores.

    Raises:
        SuspectError: If it is a tuple, a dictionary or anything else.
    """
    if isinstance(scores, Tensor | np.ndarray):
        return torch.as_tensor(scores)
    pick = '["logits"]' if isinstance(scores, dict) else "[0]"
    raise SuspectError(
        f"forward() returned a {type(scores).__name__}, not one tensor of scores",
        f"pass forward=lambda model, batch: model(...){pick}, or another part that holds the scores, to "
        "Watermark.draw, Watermark.load or mark.replace (--forward on the command line)",
    )


@contextmanager
def watching(modules: Sequence[nn.Module], inputs: bool) -> Iterator[list[Tensor | None]]:
    """Collect the inputs or outputs of modules while a block runs; the hooks are removed afterwards.

    Args:
        modules: The modules.
        inputs: Collect inputs if true, outputs otherwise.

    Yields:
        A list that receives the first floating-point tensor of every call, or None if there is none.
    """
    seen: list[Tensor | None] = []

    def before(module: nn.Module, args: Any, kwargs: Any) -> None:
        """Store the first tensor of the input."""
        seen.append(_first_tensor([*args, *kwargs.values()]))

    def after(module: nn.Module, args: Any, output: Any) -> None:
        """Store the first tensor of the output."""
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


def _last(seen: list[Tensor | None], layer: str, batch: Any) -> Tensor:
    """Return the last tensor that was observed at a layer.

    If `forward` called the model once for every graph of the batch, these are the last ones of all graphs.
    """
    if not seen:
        raise SuspectError(f"the layer {layer!r} was never called", "name a layer that the model uses")
    if layer == "auto" and len(seen) == 1:
        raise _without_hidden()
    tensors = [value for value in seen if value is not None]  # the input of an embedding table is integer
    if not tensors:
        raise SuspectError("the observed layer has no floating-point tensor", "name another layer")
    calls, last = num_graphs(batch), tensors[-1]
    if len(tensors) % calls == 0 and last.dim() and len(last) not in (calls, int(batch.num_nodes)):
        each = len(tensors) // calls
        rows = tensors[each - 1 :: each]
        alike = all(row.shape[1:] == last.shape[1:] for row in rows)
        if alike and sum(map(len, rows)) in (calls, int(batch.num_nodes)):
            if layer == "auto" and each == 1:
                raise _without_hidden()
            return torch.cat(rows)
    return last


def _without_hidden() -> SuspectError:
    return SuspectError(
        "this model has a single layer with weights, so it has no hidden representation",
        "read it at access='logits', or name a layer",
    )


def _first_tensor(values: Any) -> Tensor | None:
    """Return the first floating-point tensor, or None."""
    return next((v for v in values if isinstance(v, Tensor) and v.is_floating_point()), None)


def _find(core: nn.Module, name: str) -> nn.Module:
    """Return the layer of a name."""
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
    """Clear the cached graph of convolutions with `cached=True` while a block runs.

    Args:
        parts: The modules of a model.
    """
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
    """Run one forward pass in the current mode of the model, with gradients.

    Args:
        model: The model.
        batch: A PyG batch.
        layer: The layer to observe: the name of a module (its output), "name:in" (its input) or "auto" (the
            input of the last layer with weights); None for none.
        forward: Calls the model on a batch; by default the names of its arguments decide.

    Returns:
        The scores and the observed layer.

    Raises:
        SuspectError: If the model cannot be called, or the layer cannot be observed.
    """
    if _is_compiled(model):  # compiled code neither calls hooks nor sees that caches are cleared
        model = unwrap(model)
    found = walk(model)
    _require_weights(found.parts)
    with uncached(found.parts):
        if layer is None:
            return Observation(run(model, batch, forward), None, batch)
        name, _, side = layer.partition(":")
        watched = found.weighted if layer == "auto" else [_find(unwrap(model), name)]
        with watching(watched, inputs=layer == "auto" or side == "in") as seen:
            scores = run(model, batch, forward)
        return Observation(scores, _last(seen, layer, batch), batch)


def run(model: nn.Module, batch: Any, forward: Forward | None) -> Tensor:
    """Return the scores of a model on a batch.

    Args:
        model: The model.
        batch: A PyG batch.
        forward: Calls the model on a batch; by default the names of its arguments decide.
    """
    try:
        return one_tensor((forward or call)(model, batch))
    except InvgnnError:
        raise
    except Exception as error:  # keep the user's error and its traceback; only add advice
        error.add_note(f"invgnn ran this model on carriers, or on inputs that you passed: {ADVICE}")
        raise


@torch.no_grad()
def executed(
    model: nn.Module, modules: Iterable[nn.Module], batch: Any, forward: Forward | None = None
) -> list[nn.Module]:
    """Return those of the modules that a forward pass calls, in order, once per call.

    Args:
        model: The model.
        modules: Modules of the model.
        batch: A PyG batch.
        forward: Calls the model on a batch; by default the names of its arguments decide.
    """
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
    """Put a model into evaluation mode for a block.

    The training mode of every module, all buffers and the global random states are restored afterwards,
    also after an error.
    """
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
            if module.training != training:  # setting an attribute of a module is slow
                module.training = training
        with torch.no_grad():
            for module, name, value, before in buffers:
                module._buffers[name] = value.copy_(before)
