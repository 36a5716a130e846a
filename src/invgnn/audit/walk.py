"""Walk over a model and everything that its modules refer to, and record tensors, settings and code."""

from __future__ import annotations

import functools
import inspect
import weakref
from collections import OrderedDict, defaultdict
from collections.abc import Iterator
from functools import cached_property
from types import BuiltinFunctionType, CellType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize
from torch_geometric.inspector import Inspector

from invgnn.audit.origin import Code, Origin, is_library, is_library_module, name_of, source_digest

_HOOKS = (
    "_forward_hooks",
    "_forward_pre_hooks",
    "_propagate_forward_hooks",
    "_propagate_forward_pre_hooks",
    "_message_forward_hooks",
    "_message_forward_pre_hooks",
    "_aggregate_forward_hooks",
    "_aggregate_forward_pre_hooks",
    "_message_and_aggregate_forward_hooks",
    "_message_and_aggregate_forward_pre_hooks",
    "_edge_update_forward_hooks",
    "_edge_update_forward_pre_hooks",
    "_state_dict_hooks",
    "_state_dict_pre_hooks",
    "_load_state_dict_pre_hooks",
    "_load_state_dict_post_hooks",
)
_CACHES = ("_cached_edge_index", "_cached_adj_t", "_cached_x", "_cached_h")
"""Attributes in which PyG's convolutions cache the last graph; they are cleared before every query."""
_SCALARS = (bool, int, float, str, bytes, type(None))
_GENERATED = {"propagate", "collect", "edge_updater", "edge_collect"}
"""Methods that PyG generates for every class, in separate files."""
_DEEPEST = 8


class Walk:
    """Walk over all modules of a model and over everything that they refer to."""

    def __init__(self, model: nn.Module, author: Origin) -> None:
        self.author = author
        self.tensors: dict[str, Any] = {}
        self.settings: dict[str, str] = {}
        self.code: list[Code] = []
        self.unsaved: list[str] = []
        self.unknown: list[str] = []
        self._seen: set[int] = set()
        self._enter(model, "")
        for hook in _global_hooks():
            self._add("hook", hook, "every module: ")

    def _enter(self, model: nn.Module, at: str) -> None:
        """Visit a module and all modules below it."""
        todo = [(at, model)]
        while todo:
            name, part = todo.pop()
            if id(part) not in self._seen:
                self._seen.add(id(part))
                self._module(name, part)
                inner = part.named_children() if isinstance(part, torch.jit.ScriptModule) else ()
                held = {} if inner else object.__getattribute__(part, "__dict__").get("_modules", {})
                children = inner or [(key, dict.__getitem__(held, key)) for key in dict.__iter__(held)]
                todo += [(_join(name, key), child) for key, child in children if child is not None]

    def _module(self, name: str, part: nn.Module) -> None:
        """Record the class, hooks, tensors and attributes of one module."""
        if isinstance(part, torch.jit.ScriptModule):  # whatever was compiled, behind a class of torch's
            self.code.append(Code("class", f"scripted {part.original_name}", self.author, None))
            for key, tensor in (*part.named_parameters(name, False), *part.named_buffers(name, False)):
                self._tensor(key, tensor)
            return
        kind = _torch_made(part) or type(part)
        self._class(kind)
        for table, held in object.__getattribute__(part, "__dict__").items():
            if table in _PLAIN and isinstance(held, dict | set) and type(held) not in _TABLES:
                self._foreign("override", type(held), f"{name or 'the model'}.{table}: ")
        for table in _HOOKS:
            held = getattr(part, table, {})
            for hook in dict.values(held) if isinstance(held, dict) else held:
                self._add("hook", hook, f"{name or 'the model'}: ")
        for key, value in (*part._parameters.items(), *part._buffers.items()):
            if value is not None:
                self._tensor(_join(name, key), value)
        self.unsaved += [
            f"buffer {_join(name, key)}"
            for key, value in part._buffers.items()
            if value is not None and key in part._non_persistent_buffers_set
        ]
        for key, value in vars(part).items():
            if key in _PLAIN or key in _CACHES or type(value) is Inspector:
                continue
            if inspect.isfunction(inspect.getattr_static(kind, key, None)):
                self._foreign("override", value, f"{name or 'the model'}.{key}: ")
            self._value(_join(name, key), value, part, 0)

    def _class(self, kind: type) -> None:
        """Record a class, and the replaced methods of a library class."""
        self._add("class", kind)
        if not is_library(kind):
            return
        for base in kind.__mro__:
            for method, function in vars(base).items():
                plain = type(function) is FunctionType and not method.startswith("__")
                if plain and function.__name__ not in _GENERATED and not is_library(function):
                    self._add("override", function)  # a library's class whose method was replaced

    def _value(self, name: str, value: Any, part: nn.Module, depth: int) -> None:
        """Record an attribute other than a parameter, buffer or submodule, and what it refers to."""
        if isinstance(value, Tensor):
            if not any(value is known for known in (*part._parameters.values(), *part._buffers.values())):
                self._tensor(name, value)
                self.unsaved.append(f"attribute {name}")
        elif isinstance(value, nn.Module):
            self._enter(value, name)
        elif type(value) is np.ndarray:
            self.tensors[name] = value if value.dtype.kind in "biufc" else repr(value.tolist())
            self.unsaved.append(f"attribute {name}")
        elif type(value) in (*_SCALARS, *_INERT):
            self.settings[name] = repr(value)
        elif isinstance(value, type):
            self._add("class", value)
        elif depth >= _DEEPEST or id(value) in self._seen:
            if depth >= _DEEPEST:
                self.unknown.append(f"{name}, nested too deeply")
        else:
            self._seen.add(id(value))
            self._keep.append(value)
            self._object(name, value, part, depth + 1)

    @cached_property
    def _keep(self) -> list[Any]:
        """Objects that were visited, kept alive so that no other object gets their id."""
        return []

    def _object(self, name: str, value: Any, part: nn.Module, depth: int) -> None:
        """Record a container, a callable or any other object."""
        if isinstance(value, functools.partial):
            self._foreign("function", value.func, f"partial of {name}: ")
            held: Any = {"args": value.args, "keywords": value.keywords}
        elif type(value) is MethodType:
            self._foreign("function", value, f"{name}: ")
            held = {"self": value.__self__}
        elif type(value) in (FunctionType, BuiltinFunctionType):
            if not is_library(value):
                self._foreign("function", value, f"{name}: ")
            return
        elif type(value) is ModuleType:  # graphs of torch.fx hold the modules that they call into
            if not is_library_module(value):
                self.unknown.append(f"{name}, the module {value.__name__}")
            return
        elif type(value) in _MAPS:
            held = value
        elif type(value) in (list, tuple, set, frozenset):
            held = dict(enumerate(value))
        else:
            if not is_library(type(value)):
                self._foreign("class", type(value), f"{name}: ")
            held = getattr(value, "__dict__", None)
            if held is None:
                self.unknown.append(f"{name}, a {type(value).__qualname__}")
        for key, inner in (held or {}).items():
            self._value(f"{name}[{key}]", inner, part, depth)

    def _tensor(self, name: str, value: Tensor) -> None:
        """Record a tensor, and its class if that is not one of torch's."""
        if type(value) not in _TENSORS:
            self._add("class", type(value), f"{name}: ")  # a tensor with code of its own
        self.tensors[name] = _bits(value)

    def _foreign(self, what: str, thing: Any, where: str) -> None:
        """Record foreign code, and what it refers to."""
        self.code.append(Code(what, where + name_of(thing), self.author, source_digest(thing)))
        self._inside(where + name_of(thing), thing)

    def _add(self, what: str, thing: Any, where: str = "") -> None:
        """Record code, as library or as foreign code."""
        if is_library(thing):
            self.code.append(Code(what, where + name_of(thing), "library", None))
        else:
            self._foreign(what, thing, where)

    def _inside(self, name: str, thing: Any) -> None:
        """Record what foreign code refers to: closures and defaults of functions, attributes of classes."""
        thing = getattr(thing, "__func__", thing)
        if id(thing) in self._seen:
            return
        self._seen.add(id(thing))
        if inspect.isfunction(thing):
            cells = [cell.cell_contents for cell in thing.__closure__ or () if cell != EMPTY]
            for place, value in enumerate((*cells, *(thing.__defaults__ or ()))):
                self._value(f"{name}[{place}]", value, _NOTHING, 1)
        elif isinstance(thing, type):
            for key, value in vars(thing).items():
                if inspect.isfunction(value):
                    self._inside(f"{name}.{key}", value)
                elif isinstance(value, Tensor | np.ndarray | nn.Module | list | tuple | dict | set):
                    self._value(f"{name}.{key}", value, _NOTHING, 1)


def _torch_made(part: nn.Module) -> type | None:
    """Return the class that torch derived a parametrised module's class from; None for other modules.

    `torch.nn.utils.parametrize` gives each such module a class with one property per tensor and nothing
    else.
    """
    kind, held = type(part), part._modules.get("parametrizations")
    if (
        kind.__module__ != parametrize.__name__
        or type(held) is not nn.ModuleDict
        or len(kind.__bases__) != 1
    ):
        return None
    made = {key: value for key, value in vars(kind).items() if key not in {"__module__", "__doc__"}}
    functions = [one.fget if isinstance(one, property) else one for one in made.values()]
    sound = set(made) <= {*held, "__getstate__", "__deepcopy__"} and all(map(is_library, functions))
    return kind.__bases__[0] if sound else None


_NOTHING = nn.Module()
_MAPS = (dict, OrderedDict, defaultdict)
_TABLES = (*_MAPS, set)
EMPTY = CellType()
"""An empty closure cell."""
_TENSORS = (Tensor, nn.Parameter, nn.Buffer) if hasattr(nn, "Buffer") else (Tensor, nn.Parameter)
_PLAIN = frozenset(vars(nn.Module())) | {"_modules"}
_INERT = (weakref.ReferenceType, torch.dtype, torch.device, torch.Size, slice, range, complex)


def _global_hooks() -> Iterator[Any]:
    """Yield the hooks that torch runs for every module."""
    from torch.nn.modules import module

    for name in ("_global_forward_hooks", "_global_forward_pre_hooks"):
        yield from getattr(module, name, {}).values()


def _join(name: str, key: str) -> str:
    """Return the dotted name of an attribute."""
    return f"{name}.{key}" if name else key


def _bits(value: Tensor) -> dict[str, Any]:
    """Return a tensor as plain values: the name of its type, its shape and its bytes."""
    if nn.parameter.is_lazy(value) or value.is_meta:
        return {"dtype": str(value.dtype), "shape": None, "bytes": b""}
    if value.layout != torch.strided:
        value = value.to_dense()
    flat = value.detach().as_subclass(Tensor).cpu().resolve_conj().resolve_neg().contiguous()
    raw = flat.view(-1).view(torch.uint8).numpy().tobytes() if flat.numel() else b""
    return {"dtype": str(flat.dtype), "shape": list(flat.shape), "bytes": raw}
