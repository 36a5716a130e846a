"""Pack metadata and tensors into the bytes of a safetensors file, and unpack them.

Tensors may be secrets: their bytes are concealed, and no error shows them. Changing what `pack` returns
breaks every file in the field; golden vectors in the tests guard it.
"""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from safetensors import SafetensorError, deserialize

from invgnn.concealed import ConcealedBytes
from invgnn.errors import FileError, ParameterError
from invgnn.storage.atomic import AnyPath
from invgnn.storage.canonical_json import canonical_json

MAX_HEADER = 100_000_000
"""Largest size of a header in bytes; safetensors itself rejects more."""

# The safetensors name of each dtype, and the little-endian numpy dtype that holds its bytes.
# numpy has no bfloat16: its bits are held as int16 and interpreted by torch.
_FLOATS = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<i2", "C64": "<c8"}
_INTS = {"I64": "<i8", "I32": "<i4", "I16": "<i2", "I8": "|i1", "BOOL": "|b1"}
DTYPES = {**_FLOATS, **_INTS, "U64": "<u8", "U32": "<u4", "U16": "<u2", "U8": "|u1"}
_NAMES = {carrier: name for name, carrier in DTYPES.items() if name != "BF16"}


class Raw(NamedTuple):
    """A tensor as stored in a file. `data` is concealed because it may be a secret."""

    dtype: str
    shape: tuple[int, ...]
    data: bytes

    def __repr__(self) -> str:
        return f"<{self.dtype} tensor of shape {list(self.shape)}>"


def raws_of(tensors: Mapping[str, Any]) -> dict[str, Raw]:
    """Return the stored form of concealed tensors; on failure no local variable shows any content."""
    raws: dict[str, Raw] = {}
    for name in tensors:
        raw = _raw(tensors[name])
        if raw is None or not isinstance(name, str) or name in ("", "__metadata__"):
            what = getattr(tensors[name], "dtype", type(tensors[name]))
            advice = "Use named, dense numpy arrays or torch tensors of numbers or booleans."
            raise ParameterError(f"the tensor {name!r} cannot be stored ({what})", advice)
        raws[name] = raw
    return raws


def _raw(tensor: Any) -> Raw | None:
    """Return the stored form of a tensor, or None if it cannot be stored."""
    array, dtype = tensor, None
    if "torch" in sys.modules and isinstance(tensor, sys.modules["torch"].Tensor):
        array, dtype = _array_of(tensor)
    if not isinstance(array, np.ndarray):
        return None
    little = array.dtype.newbyteorder("<")
    dtype = dtype or _NAMES.get(little.str)
    if dtype is None:
        return None
    return Raw(dtype, array.shape, ConcealedBytes(array.astype(little, copy=False).tobytes()))


def _array_of(tensor: Any) -> tuple[Any, str | None]:
    """Return a numpy array with the bytes of a tensor, and the name of its dtype if numpy lacks it."""
    import torch

    with contextlib.suppress(TypeError, ValueError, RuntimeError):  # sparse, quantised, float8
        dense = tensor.detach().cpu().resolve_conj().resolve_neg().contiguous()
        if dense.dtype == torch.bfloat16:
            return dense.view(torch.int16).numpy(), "BF16"
        return dense.numpy(), None
    return None, None


def tensor_of(name: str, raw: Raw, framework: str) -> Any:
    """Return a stored tensor as a new numpy array or torch tensor."""
    if raw.dtype == "BF16" and framework != "torch":
        advice = 'Read the file with framework="torch".'
        raise ParameterError(
            f"the tensor {name!r} has the dtype bfloat16, which numpy does not support", advice
        )
    array = np.frombuffer(raw.data, DTYPES[raw.dtype]).reshape(raw.shape)
    array = array.astype(array.dtype.newbyteorder("="))  # a writable copy in native byte order
    if framework == "numpy":
        return array
    import torch

    tensor = torch.from_numpy(array)
    return tensor.view(torch.bfloat16) if raw.dtype == "BF16" else tensor


def pack(meta: dict[str, Any], raws: Mapping[str, Raw]) -> bytes:
    """Return the bytes of a container.

    The bytes are assembled here and not by safetensors, so that they do not depend on its version. Wide
    dtypes come first, which keeps every tensor aligned.
    """
    header: dict[str, Any] = {"__metadata__": {"invgnn": canonical_json(meta).decode()}}
    order = sorted(raws, key=lambda name: (-np.dtype(DTYPES[raws[name].dtype]).itemsize, name))
    end = 0
    for name in order:
        raw = raws[name]
        start, end = end, end + len(raw.data)
        header[name] = {"dtype": raw.dtype, "shape": raw.shape, "data_offsets": [start, end]}
    head = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    head += b" " * (-len(head) % 8)
    if len(head) > MAX_HEADER:
        advice = f"Stay below {MAX_HEADER} bytes; store long lists of numbers as tensors."
        raise ParameterError(f"the body is too large ({len(head)} bytes)", advice)
    return ConcealedBytes(b"".join([len(head).to_bytes(8, "little"), head, *(raws[n].data for n in order)]))


def unpack(data: bytes, path: AnyPath) -> tuple[dict[str, Any], dict[str, Raw]]:
    """Return the metadata and the tensors of any safetensors file. `data` is concealed."""
    size = int.from_bytes(data[:8], "little")
    if size > MAX_HEADER:
        raise foreign(path, "not a safetensors file: its header is too long")
    if size == 0 or len(data) < 8 + size:
        raise damaged(path, "it is truncated" if data else "it is empty")
    header = loads(data[8 : 8 + size])
    if header is None:
        raise foreign(path, "not a safetensors file, or its header is damaged")
    try:
        raws = {
            name: Raw(view["dtype"], tuple(view["shape"]), ConcealedBytes(view["data"]))
            for name, view in deserialize(data)  # type: ignore[no-untyped-call]
        }
    except SafetensorError as error:
        why = f"it is truncated or not a valid safetensors file ({str(error)[:200]})"
        raise damaged(path, why) from None
    if unknown := {raw.dtype for raw in raws.values()} - DTYPES.keys():
        raise foreign(path, f"a file with tensors that invgnn cannot read: {sorted(unknown)}")
    if not all(possible(raw) for raw in raws.values()):
        raise damaged(path, "a tensor has an impossible shape, or a boolean that is neither 0 nor 1")
    return header.get("__metadata__") or {}, raws


def loads(text: str | bytes) -> Any:
    """Return a JSON value, or None if the text is not JSON.

    Errors of `json` carry the whole text. If a damaged length makes a header extend into the tensors, the
    text may contain a secret: no such error may become the context of another.
    """
    with contextlib.suppress(ValueError, RecursionError):
        return json.loads(text)
    return None


def possible(raw: Raw) -> bool:
    """Return whether the shape of a tensor is possible and its booleans are 0 or 1."""
    if len(raw.shape) > 32 or any(length >= 2**48 for length in raw.shape):
        return False
    return raw.dtype != "BOOL" or not raw.data.translate(None, b"\0\1")


def damaged(path: AnyPath, why: str) -> FileError:
    """Return the error to raise for a damaged file."""
    return FileError(f"{path} is damaged: {why}", "Use another copy of the file, or create it again.")


def foreign(path: AnyPath, why: str) -> FileError:
    """Return the error to raise for a file that invgnn did not write."""
    return FileError(f"{path} is {why}", "Pass a file that invgnn wrote.")
