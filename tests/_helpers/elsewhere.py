"""A device that is not the CPU, on a machine that has no other: real values, and the strictness of a GPU.

Tensors there hold an ordinary one inside. Whatever mixes both places, or needs doubles there, fails.
"""

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

PLACE = torch.device(
    "lazy"
)  # a name that torch knows and nobody has; its backward runs on the CPU's thread
aten = torch.ops.aten
COPIES = {aten._to_copy.default, aten.copy_.default}
INDEXING = {
    aten.index.Tensor,
    aten.index_put.default,
    aten.index_put_.default,
    aten._index_put_impl_.default,
}


class Far(torch.Tensor):
    """A tensor in the other place."""

    __torch_function__ = torch._C._disabled_torch_function_impl

    @staticmethod
    def __new__(cls, near):
        if near.dtype == torch.float64:
            raise TypeError("no doubles here")  # as on Apple's GPUs
        shape = {"strides": near.stride(), "storage_offset": near.storage_offset(), "dtype": near.dtype}
        return torch.Tensor._make_wrapper_subclass(cls, near.size(), device=PLACE, **shape)

    def __init__(self, near):
        self.near = near

    def __repr__(self):
        return f"Far({self.near})"

    def tolist(self):
        return self.near.tolist()  # torch refuses it for every class but its own

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        return run(func, args, kwargs or {})


class Elsewhere(TorchDispatchMode):
    """A block in which the other place exists."""

    def __enter__(self):
        self.making = Making()
        self.making.__enter__()
        return super().__enter__()

    def __exit__(self, *error):
        super().__exit__(*error)
        self.making.__exit__(*error)

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        return run(func, args, kwargs or {})


class Making(TorchFunctionMode):
    """`torch.tensor` makes its tensor where no mode sees it; then it is moved."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        if func is torch.tensor and kwargs.get("device") is not None:
            place = kwargs.pop("device")
            return func(*args, **kwargs).to(place)
        return func(*args, **kwargs)


def run(func, args, kwargs):
    """Compute on what is inside; the result is where a GPU would have put it."""
    tensors = [t for t in tree_leaves((args, kwargs)) if isinstance(t, torch.Tensor)]
    far = {id(t.near): t for t in tensors if isinstance(t, Far)}
    if far and func not in COPIES | INDEXING and any(t.dim() and not isinstance(t, Far) for t in tensors):
        raise RuntimeError(f"{func}: expected all tensors to be in the same place")
    there = isinstance(args[0], Far) if func is aten.copy_.default else bool(far)
    if kwargs.get("device") is not None:
        there = torch.device(kwargs["device"]) == PLACE
        kwargs = {**kwargs, "device": torch.device("cpu")}
    near_args, near_kwargs = tree_map(lambda t: t.near if isinstance(t, Far) else t, (args, kwargs))
    found = func(*near_args, **near_kwargs)
    if not there:
        return found

    def placed(value):
        if not isinstance(value, torch.Tensor):
            return value
        return far[id(value)] if id(value) in far else Far(value)  # in place, or new

    return tree_map(placed, found)
