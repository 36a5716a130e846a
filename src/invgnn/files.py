"""One container on disk for every kind of file: never pickle, never half written.

A container is a safetensors file whose only metadata key, `invgnn`, holds canonical JSON;
`docs/file-format.md` is the whole format in one page.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import numpy as np
from safetensors import SafetensorError, deserialize

from invgnn import disk, seal
from invgnn.disk import AnyPath
from invgnn.disk import write_text as write_text
from invgnn.errors import FileError, ParameterError, PassphraseError
from invgnn.seal import STRONG, Kdf

FORMAT = 1  # the version this library writes, and the newest it reads
MAX_HEADER = 100_000_000  # bytes; safetensors itself refuses more

# The safetensors name of each dtype, and the little-endian numpy dtype that carries its bytes.
# numpy has no bfloat16: its bits travel as int16, and only torch gives them a meaning.
_FLOATS = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<i2", "C64": "<c8"}
_INTS = {"I64": "<i8", "I32": "<i4", "I16": "<i2", "I8": "|i1", "BOOL": "|b1"}
_DTYPES = {**_FLOATS, **_INTS, "U64": "<u8", "U32": "<u4", "U16": "<u2", "U8": "|u1"}
_NAMES = {carrier: name for name, carrier in _DTYPES.items() if name != "BF16"}


@dataclass(frozen=True)
class Container:
    """What a file held, its digest already checked."""

    kind: str
    version: int
    body: dict[str, Any] = field(repr=False)  # may be private: not for logs and tracebacks
    tensors: dict[str, Any] = field(repr=False)
    digest: str


class _Raw(NamedTuple):
    dtype: str
    shape: tuple[int, ...]
    data: bytes


def canonical_json(value: object) -> bytes:
    """The one byte string for a JSON value: sorted keys, no spaces, UTF-8, finite numbers."""
    advice = "Use finite numbers, text, booleans, None, lists, and dicts with text keys."
    form = {"sort_keys": True, "ensure_ascii": False, "allow_nan": False}
    try:
        text = json.dumps(value, separators=(",", ":"), **form)  # type: ignore[arg-type]
        data = text.encode()
        # json makes a list of a tuple and "1" of the key 1: what is read must be what was written
        if json.loads(text) != value:
            raise TypeError("it would not come back as it is")
    except (TypeError, ValueError, RecursionError) as error:
        raise ParameterError(f"this value has no canonical JSON: {error}", advice) from None
    return data


def digest_of(kind: str, version: int, body: Mapping[str, Any], tensors: Mapping[str, Any]) -> str:
    """The SHA-256, in hex, that a file with this content carries."""
    return _digest(kind, version, body, {name: _raw(name, t) for name, t in tensors.items()})


def write(
    path: AnyPath,
    kind: str,
    body: Mapping[str, Any],
    tensors: Mapping[str, Any],
    *,
    passphrase: str | None = None,
    private: bool = False,
    overwrite: bool = False,
    _kdf: Kdf = STRONG,  # weaker only in tests
) -> str:
    """The digest of the container that is now at `path`, sealed if there is a passphrase.

    The file appears whole or not at all. An existing one stays unless `overwrite`. Only its
    owner may read it (mode 0600) if it is `private` or sealed.
    """
    if not overwrite and os.path.lexists(path):  # early, before the work; the disk decides
        raise disk.existing(path)
    if not re.fullmatch(r"[a-z][a-z0-9-]{0,31}", kind):
        raise ParameterError(f"{kind!r} is no kind of file", "Use a short lower-case word.")
    raws = {name: _raw(name, tensor) for name, tensor in tensors.items()}
    digest = _digest(kind, FORMAT, body, raws)
    data = _pack({"kind": kind, "version": FORMAT, "digest": digest, "body": dict(body)}, raws)
    if passphrase is not None:
        data = _seal(data, kind, passphrase, _kdf)
    disk.write_bytes(path, data, private or passphrase is not None, overwrite)
    return digest


def read(
    path: AnyPath,
    kind: str,
    *,
    passphrase: str | None = None,
    framework: Literal["numpy", "torch"] = "numpy",
) -> Container:
    """The container at `path`, if it is of this kind and intact.

    The tensors are fresh numpy arrays, or torch tensors on the CPU. A passphrase for a file that
    is not sealed is ignored.
    """
    if framework not in ("numpy", "torch"):
        raise ParameterError(f"there is no framework {framework!r}", 'Use "numpy" or "torch".')
    meta, raws = _parse(disk.read_bytes(path), path)
    if meta["kind"] != kind:
        wrong = f"{path} is a {meta['kind']} file; a {kind} file was expected"
        raise FileError(wrong, "Check which file you gave for what.")
    if "sealed" in meta:
        version = meta["version"]
        meta, raws = _parse(_unseal(meta, raws, passphrase, path), path)
        if (meta["kind"], meta["version"]) != (kind, version) or "sealed" in meta:
            raise _damaged(path, "what is sealed in it is not what its label says")
    _check_digest(meta, raws, path)
    tensors = {name: _tensor(name, raw, framework) for name, raw in raws.items()}
    return Container(kind, meta["version"], meta["body"], tensors, meta["digest"])


def peek(path: AnyPath) -> dict[str, Any]:
    """What anyone can see of a file without a passphrase.

    `kind`, `version`, `sealed`; and if it is not sealed, `digest`, `body` and, under `tensors`,
    the dtype and shape of each.
    """
    meta, raws = _parse(disk.read_bytes(path), path)
    seen = {"kind": meta["kind"], "version": meta["version"], "sealed": "sealed" in meta}
    if seen["sealed"]:
        return seen
    _check_digest(meta, raws, path)
    shapes = {name: {"dtype": r.dtype, "shape": list(r.shape)} for name, r in raws.items()}
    return {**seen, "digest": meta["digest"], "body": meta["body"], "tensors": shapes}


def read_tensors(path: AnyPath) -> dict[str, Any]:
    """The torch tensors of any safetensors file that is not sealed, ours or not."""
    notes, raws = _unpack(disk.read_bytes(path), path)
    if "invgnn" in notes:
        meta = _meta(notes, path)
        if "sealed" in meta:
            raise PassphraseError(f"{path} is sealed", "Open it as what it is, with its passphrase.")
        _check_digest(meta, raws, path)
    return {name: _tensor(name, raw, "torch") for name, raw in raws.items()}


def _damaged(path: AnyPath, why: str) -> FileError:
    return FileError(f"{path} is damaged: {why}", "Use another copy of it, or make it again.")


def _foreign(path: AnyPath, why: str) -> FileError:
    return FileError(f"{path} is {why}", "Give a file that invgnn wrote.")


# --- tensors and bytes


def _raw(name: str, tensor: Any) -> _Raw:
    array, dtype = tensor, None
    if "torch" in sys.modules and isinstance(tensor, sys.modules["torch"].Tensor):
        array, dtype = _array_of(tensor)
    if isinstance(array, np.ndarray) and name not in ("", "__metadata__"):
        little = array.dtype.newbyteorder("<")
        dtype = dtype or _NAMES.get(little.str)
        if dtype is not None:
            return _Raw(dtype, array.shape, array.astype(little, copy=False).tobytes())
    raise ParameterError(
        f"the tensor {name!r} cannot be stored ({getattr(tensor, 'dtype', type(tensor))})",
        "Use named, dense numpy arrays or torch tensors of numbers or booleans.",
    )


def _array_of(tensor: Any) -> tuple[Any, str | None]:
    """A numpy array of the tensor's bytes, and the dtype's name where numpy has none."""
    import torch

    with contextlib.suppress(TypeError, ValueError, RuntimeError):  # sparse, quantised, float8
        dense = tensor.detach().cpu().resolve_conj().resolve_neg().contiguous()
        if dense.dtype == torch.bfloat16:
            return dense.view(torch.int16).numpy(), "BF16"
        return dense.numpy(), None
    return None, None


def _tensor(name: str, raw: _Raw, framework: str) -> Any:
    array = np.frombuffer(raw.data, _DTYPES[raw.dtype]).reshape(raw.shape)
    array = array.astype(array.dtype.newbyteorder("="))  # a copy: native and writable
    if framework == "torch":
        import torch

        tensor = torch.from_numpy(array)
        return tensor.view(torch.bfloat16) if raw.dtype == "BF16" else tensor
    if raw.dtype == "BF16":
        advice = 'Read the file with framework="torch".'
        raise ParameterError(f"the tensor {name!r} is bfloat16, which numpy lacks", advice)
    return array


def _digest(kind: str, version: int, body: Mapping[str, Any], raws: Mapping[str, _Raw]) -> str:
    fields = [b"invgnn/file", kind.encode(), b"%d" % version, canonical_json(dict(body))]
    for name, raw in sorted(raws.items()):
        fields += [name.encode(), raw.dtype.encode(), canonical_json(list(raw.shape)), raw.data]
    sha = hashlib.sha256()
    for part in fields:
        sha.update(len(part).to_bytes(8, "little"))
        sha.update(part)
    return sha.hexdigest()


def _check_digest(meta: dict[str, Any], raws: dict[str, _Raw], path: AnyPath) -> None:
    if _digest(meta["kind"], meta["version"], meta["body"], raws) != meta["digest"]:
        raise _damaged(path, "it was altered; its content does not match its digest")


def _pack(meta: dict[str, Any], raws: Mapping[str, _Raw]) -> bytes:
    # Written here, not by safetensors, so that the bytes are the same under every version of it.
    # Wide dtypes come first: that keeps every tensor aligned.
    header: dict[str, Any] = {"__metadata__": {"invgnn": canonical_json(meta).decode()}}
    order = sorted(raws, key=lambda name: (-np.dtype(_DTYPES[raws[name].dtype]).itemsize, name))
    end = 0
    for name in order:
        dtype, shape, data = raws[name]
        start, end = end, end + len(data)
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [start, end]}
    head = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    head += b" " * (-len(head) % 8)
    if len(head) > MAX_HEADER:
        advice = f"Stay under {MAX_HEADER} bytes: long lists of numbers belong into tensors."
        raise ParameterError(f"the body is too large ({len(head)} bytes)", advice)
    return b"".join([len(head).to_bytes(8, "little"), head, *(raws[n].data for n in order)])


def _parse(data: bytes, path: AnyPath) -> tuple[dict[str, Any], dict[str, _Raw]]:
    """The metadata, of a known version and sound, and the tensors; the digest is not checked."""
    notes, raws = _unpack(data, path)
    if "invgnn" not in notes:
        raise _foreign(path, "a safetensors file, but not one that invgnn wrote")
    return _meta(notes, path), raws


def _unpack(data: bytes, path: AnyPath) -> tuple[dict[str, Any], dict[str, _Raw]]:
    """The metadata and the tensors of any safetensors file."""
    size = int.from_bytes(data[:8], "little")
    if size > MAX_HEADER:
        raise _foreign(path, f"not a safetensors file: a header of {size} bytes is too long")
    if size == 0 or len(data) < 8 + size:
        raise _damaged(path, "it is truncated" if data else "it is empty")
    try:
        header = json.loads(data[8 : 8 + size])
        views = deserialize(data)  # type: ignore[no-untyped-call]
    except SafetensorError as error:
        raise _damaged(path, f"it is truncated or no sound safetensors file ({error})") from None
    except (ValueError, RecursionError):
        raise _foreign(path, "not a safetensors file, or its header is damaged") from None
    raws = {name: _Raw(v["dtype"], tuple(v["shape"]), bytes(v["data"])) for name, v in views}
    if unknown := {raw.dtype for raw in raws.values()} - _DTYPES.keys():
        raise _foreign(path, f"a file with tensors that invgnn cannot read: {sorted(unknown)}")
    return header.get("__metadata__") or {}, raws


def _meta(notes: dict[str, str], path: AnyPath) -> dict[str, Any]:
    try:
        meta: Any = json.loads(notes["invgnn"])
    except (ValueError, RecursionError):
        raise _damaged(path, "its metadata is not JSON") from None
    kind, version = (meta.get("kind"), meta.get("version")) if isinstance(meta, dict) else (0, 0)
    if type(kind) is not str or type(version) is not int or version < 1:
        raise _damaged(path, "its metadata does not say kind and version")
    if version > FORMAT:  # before all else: what else a later version holds is not known here
        newer = f"{path} has the newer format version {version}; this invgnn reads up to {FORMAT}"
        raise FileError(newer, "Upgrade: pip install --upgrade invgnn")
    clear = meta.keys() == {"kind", "version", "digest", "body"} and type(meta["body"]) is dict
    if not clear and meta.keys() != {"kind", "version", "sealed"}:
        raise _damaged(path, "its metadata is malformed")
    try:
        canonical = canonical_json(meta).decode()
    except ParameterError:  # NaN or a lone surrogate, say
        canonical = ""
    if notes != {"invgnn": canonical}:
        raise _damaged(path, "its metadata is not in canonical form")
    return dict(meta)


def _seal(data: bytes, kind: str, passphrase: str, kdf: Kdf) -> bytes:
    """A container that shows its kind and hides the rest, which is bound to what it shows."""

    def label(how: dict[str, Any]) -> dict[str, Any]:
        return {"kind": kind, "version": FORMAT, "sealed": how}

    how, box = seal.close(data, passphrase, kdf, lambda how: canonical_json(label(how)))
    return _pack(label(how), {"sealed": _Raw("U8", (len(box),), box)})


def _unseal(meta: dict[str, Any], raws: dict[str, _Raw], passphrase: str | None, path: AnyPath) -> bytes:
    if list(raws) != ["sealed"]:
        raise _damaged(path, "its seal is malformed")
    return seal.open_box(meta["sealed"], raws["sealed"].data, passphrase, canonical_json(meta), path)
