"""The container format of all files: safetensors with canonical JSON metadata, without pickle.

A container is a safetensors file whose only metadata key, `invgnn`, holds canonical JSON.
`docs/reference/file-format.md` describes the whole format. Changing this breaks every mark in the field;
golden vectors in the tests guard it.
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

from invgnn.concealed import ConcealedBytes, conceal
from invgnn.errors import FileError, ParameterError, PassphraseError
from invgnn.storage import atomic, encryption
from invgnn.storage.atomic import AnyPath
from invgnn.storage.atomic import write_text as write_text
from invgnn.storage.encoding import digest
from invgnn.storage.encryption import STRONG, Kdf

FORMAT = 2
"""The format version that this library writes, and the newest that it reads. It also reads version 1."""
MAX_HEADER = 100_000_000
"""Largest size of a header in bytes; safetensors itself rejects more."""

_KIND = re.compile(r"[a-z][a-z0-9-]{0,31}")

# The safetensors name of each dtype, and the little-endian numpy dtype that holds its bytes.
# numpy has no bfloat16: its bits are held as int16 and interpreted by torch.
_FLOATS = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<i2", "C64": "<c8"}
_INTS = {"I64": "<i8", "I32": "<i4", "I16": "<i2", "I8": "|i1", "BOOL": "|b1"}
_DTYPES = {**_FLOATS, **_INTS, "U64": "<u8", "U32": "<u4", "U16": "<u2", "U8": "|u1"}
_NAMES = {carrier: name for name, carrier in _DTYPES.items() if name != "BF16"}


@dataclass(frozen=True)
class Container:
    """The content of a file whose digest has been verified.

    Attributes:
        kind: The kind of file, such as "mark" or "secret".
        version: The version of the file format.
        body: The JSON values. They may be private, so `repr` does not show them.
        tensors: The arrays or tensors by name. The dictionary is concealed.
        digest: The digest of the content.
    """

    kind: str
    version: int
    body: dict[str, Any] = field(repr=False)
    tensors: dict[str, Any] = field(repr=False)
    digest: str


class _Raw(NamedTuple):
    """A tensor as stored in a file. `data` is concealed because it may be a secret."""

    dtype: str
    shape: tuple[int, ...]
    data: bytes

    def __repr__(self) -> str:
        return f"<{self.dtype} tensor of shape {list(self.shape)}>"


def canonical_json(value: object) -> bytes:
    """Return the unique byte string of a JSON value: sorted keys, no spaces, UTF-8, finite numbers.

    Raises:
        ParameterError: If the value is not JSON, or would change when it is read back.
    """
    advice = "Use finite numbers, text, booleans, None, lists, and dicts with text keys."
    form = {"sort_keys": True, "ensure_ascii": False, "allow_nan": False}
    try:
        text = json.dumps(value, separators=(",", ":"), **form)  # type: ignore[arg-type]
        data = text.encode()
        # json turns a tuple into a list and the key 1 into "1"; reading back must give the same value
        if json.loads(text) != value:
            raise TypeError("it would change when it is read back")
    except (TypeError, ValueError, RecursionError) as error:
        raise ParameterError(f"this value has no canonical JSON: {error}", advice) from None
    return data


def digest_of(kind: str, version: int, body: Mapping[str, Any], tensors: Mapping[str, Any]) -> str:
    """Return the SHA-256 digest, in hex, that a file with this content carries.

    Args:
        kind: The kind of file.
        version: The version of the file format, 1 or 2. The versions hash differently.
        body: The JSON values.
        tensors: Numpy arrays or torch tensors by name.

    Raises:
        ParameterError: If the version is unknown, or a value or a tensor cannot be stored.
    """
    tensors = conceal(tensors)
    if type(version) is not int or not 1 <= version <= FORMAT:
        raise ParameterError(f"unknown format version {version!r}", f"Use a number from 1 to {FORMAT}.")
    return _digest(kind, version, body, _raws(tensors))


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
    """Write a container, completely or not at all.

    Args:
        path: Where to write the file.
        kind: The kind of file: a short lower-case word.
        body: JSON values by name.
        tensors: Dense numpy arrays or torch tensors by name.
        passphrase: Encrypts (seals) the file. A sealed file is always private.
        private: Make the file readable by its owner only (mode 0600).
        overwrite: Replace an existing file at `path`.
        _kdf: The parameters of the key derivation. Only tests use weaker ones.

    Returns:
        The digest of the content.

    Raises:
        ParameterError: If the kind, the body or a tensor cannot be stored.
        PassphraseError: If the passphrase is empty or not text.
        ExistingFileError: If something exists at `path` and `overwrite` is false.
        FileError: If the file cannot be written.
    """
    passphrase, tensors = conceal(passphrase), conceal(tensors)
    if not overwrite and os.path.lexists(
        path
    ):  # fail early; the final check is made when the file is placed
        raise atomic.existing(path)
    if not isinstance(kind, str) or not _KIND.fullmatch(kind):
        raise ParameterError(f"{kind!r} is not a valid kind of file", "Use a short lower-case word.")
    raws = _raws(tensors)
    found = _digest(kind, FORMAT, body, raws)
    data = _pack({"kind": kind, "version": FORMAT, "digest": found, "body": dict(body)}, raws)
    if passphrase is not None:
        data = _seal(data, kind, passphrase, _kdf)
    atomic.write_bytes(path, data, private or passphrase is not None, overwrite)
    return found


def read(
    path: AnyPath,
    kind: str,
    *,
    passphrase: str | None = None,
    framework: Literal["numpy", "torch"] = "numpy",
) -> Container:
    """Read a container and verify its digest.

    Args:
        path: The file.
        kind: The kind that the file must have.
        passphrase: The passphrase of a sealed file. Ignored if the file is not sealed.
        framework: Return numpy arrays ("numpy") or torch tensors on the CPU ("torch").

    Returns:
        The content. Its tensors are new and writable.

    Raises:
        FileError: If the file does not exist, is damaged or altered, is of another kind, or has a newer
            version.
        PassphraseError: If the passphrase is missing or wrong.
        ParameterError: If the framework is unknown or does not support a dtype of the file.
    """
    passphrase = conceal(passphrase)
    if framework not in ("numpy", "torch"):
        raise ParameterError(f"unknown framework {framework!r}", 'Use "numpy" or "torch".')
    meta, raws = _parse(atomic.read_bytes(path), path)
    if meta["kind"] != kind:
        wrong = f"{path} is a {meta['kind']} file; a {kind} file was expected"
        raise FileError(wrong, f"Pass the {kind} file.")
    if "sealed" in meta:
        version = meta["version"]
        meta, raws = _parse(_unseal(meta, raws, passphrase, path), path)
        if (meta["kind"], meta["version"]) != (kind, version) or "sealed" in meta:
            raise _damaged(path, "the sealed content does not match its label")
    _check_digest(meta, raws, path)
    tensors = conceal({name: _tensor(name, raw, framework) for name, raw in raws.items()})
    return Container(kind, meta["version"], meta["body"], tensors, meta["digest"])


def peek(path: AnyPath) -> dict[str, Any]:
    """Return the parts of a file that can be read without a passphrase.

    Returns:
        `kind`, `version` and `sealed`. If the file is not sealed, also `digest`, `body` and, under
            `tensors`, the dtype and shape of each tensor.

    Raises:
        FileError: If the file does not exist, is damaged or altered, or has a newer version.
    """
    meta, raws = _parse(atomic.read_bytes(path), path)
    seen = {"kind": meta["kind"], "version": meta["version"], "sealed": "sealed" in meta}
    if seen["sealed"]:
        return seen
    _check_digest(meta, raws, path)
    shapes = {name: {"dtype": r.dtype, "shape": list(r.shape)} for name, r in raws.items()}
    return {**seen, "digest": meta["digest"], "body": meta["body"], "tensors": shapes}


def read_tensors(path: AnyPath) -> dict[str, Any]:
    """Return the torch tensors of any safetensors file that is not sealed, also of one from other software.

    Raises:
        FileError: If the file does not exist, or is damaged or altered.
        PassphraseError: If the file is sealed.
    """
    notes, raws = _unpack(atomic.read_bytes(path), path)
    if "invgnn" in notes:
        meta = _meta(notes, path)
        if "sealed" in meta:
            advice = f"Open it as a {meta['kind']} file, with its passphrase."
            raise PassphraseError(f"{path} is sealed with a passphrase", advice)
        _check_digest(meta, raws, path)
    return {name: _tensor(name, raw, "torch") for name, raw in raws.items()}


def _damaged(path: AnyPath, why: str) -> FileError:
    """Return the error to raise for a damaged file."""
    return FileError(f"{path} is damaged: {why}", "Use another copy of the file, or create it again.")


def _foreign(path: AnyPath, why: str) -> FileError:
    """Return the error to raise for a file that invgnn did not write."""
    return FileError(f"{path} is {why}", "Pass a file that invgnn wrote.")


# --- tensors and bytes


def _raws(tensors: Mapping[str, Any]) -> dict[str, _Raw]:
    """Return the stored form of concealed tensors; on failure no local variable shows any content."""
    raws: dict[str, _Raw] = {}
    for name in tensors:
        raw = _raw(tensors[name])
        if raw is None or not isinstance(name, str) or name in ("", "__metadata__"):
            what = getattr(tensors[name], "dtype", type(tensors[name]))
            advice = "Use named, dense numpy arrays or torch tensors of numbers or booleans."
            raise ParameterError(f"the tensor {name!r} cannot be stored ({what})", advice)
        raws[name] = raw
    return raws


def _raw(tensor: Any) -> _Raw | None:
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
    return _Raw(dtype, array.shape, ConcealedBytes(array.astype(little, copy=False).tobytes()))


def _array_of(tensor: Any) -> tuple[Any, str | None]:
    """Return a numpy array with the bytes of a tensor, and the name of its dtype if numpy lacks it."""
    import torch

    with contextlib.suppress(TypeError, ValueError, RuntimeError):  # sparse, quantised, float8
        dense = tensor.detach().cpu().resolve_conj().resolve_neg().contiguous()
        if dense.dtype == torch.bfloat16:
            return dense.view(torch.int16).numpy(), "BF16"
        return dense.numpy(), None
    return None, None


def _tensor(name: str, raw: _Raw, framework: str) -> Any:
    """Return a stored tensor as a new numpy array or torch tensor."""
    if raw.dtype == "BF16" and framework != "torch":
        advice = 'Read the file with framework="torch".'
        raise ParameterError(
            f"the tensor {name!r} has the dtype bfloat16, which numpy does not support", advice
        )
    array = np.frombuffer(raw.data, _DTYPES[raw.dtype]).reshape(raw.shape)
    array = array.astype(array.dtype.newbyteorder("="))  # a writable copy in native byte order
    if framework == "numpy":
        return array
    import torch

    tensor = torch.from_numpy(array)
    return tensor.view(torch.bfloat16) if raw.dtype == "BF16" else tensor


def _digest(kind: str, version: int, body: Mapping[str, Any], raws: Mapping[str, _Raw]) -> str:
    """Return the digest of a content in the given format version."""
    if version == 1:
        return _legacy_digest(kind, body, raws)
    tensors = {
        name: {"dtype": raw.dtype, "shape": list(raw.shape), "data": raw.data} for name, raw in raws.items()
    }
    content = {"kind": kind, "version": version, "body": body, "tensors": tensors}
    return digest(f"invgnn/file/{version}", content)


def _legacy_digest(kind: str, body: Mapping[str, Any], raws: Mapping[str, _Raw]) -> str:
    """Return the digest of format version 1, which is no longer written but still read."""
    fields = [b"invgnn/file", kind.encode(), b"1", canonical_json(dict(body))]
    for name, raw in sorted(raws.items()):
        fields += [name.encode(), raw.dtype.encode(), canonical_json(list(raw.shape)), raw.data]
    sha = hashlib.sha256()
    for part in fields:
        sha.update(len(part).to_bytes(8, "little"))
        sha.update(part)
    return sha.hexdigest()


def _check_digest(meta: dict[str, Any], raws: dict[str, _Raw], path: AnyPath) -> None:
    """Raise `FileError` unless the content matches the digest in the metadata."""
    try:
        found = _digest(meta["kind"], meta["version"], meta["body"], raws)
    except ParameterError as error:  # an integer that is too long, or lists nested too deeply
        raise _damaged(path, f"its body cannot be hashed ({error.message})") from None
    if found != meta["digest"]:
        raise _damaged(path, "it was altered; its content does not match its digest")


def _pack(meta: dict[str, Any], raws: Mapping[str, _Raw]) -> bytes:
    """Return the bytes of a container.

    The bytes are assembled here and not by safetensors, so that they do not depend on its version. Wide
    dtypes come first, which keeps every tensor aligned.
    """
    header: dict[str, Any] = {"__metadata__": {"invgnn": canonical_json(meta).decode()}}
    order = sorted(raws, key=lambda name: (-np.dtype(_DTYPES[raws[name].dtype]).itemsize, name))
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


def _parse(data: bytes, path: AnyPath) -> tuple[dict[str, Any], dict[str, _Raw]]:
    """Return the checked metadata and the tensors of a container. The digest is not checked."""
    notes, raws = _unpack(data, path)
    if "invgnn" not in notes:
        raise _foreign(path, "a safetensors file, but not one that invgnn wrote")
    return _meta(notes, path), raws


def _unpack(data: bytes, path: AnyPath) -> tuple[dict[str, Any], dict[str, _Raw]]:
    """Return the metadata and the tensors of any safetensors file. `data` is concealed."""
    size = int.from_bytes(data[:8], "little")
    if size > MAX_HEADER:
        raise _foreign(path, "not a safetensors file: its header is too long")
    if size == 0 or len(data) < 8 + size:
        raise _damaged(path, "it is truncated" if data else "it is empty")
    header = _loads(data[8 : 8 + size])
    if header is None:
        raise _foreign(path, "not a safetensors file, or its header is damaged")
    try:
        raws = {
            name: _Raw(view["dtype"], tuple(view["shape"]), ConcealedBytes(view["data"]))
            for name, view in deserialize(data)  # type: ignore[no-untyped-call]
        }
    except SafetensorError as error:
        why = f"it is truncated or not a valid safetensors file ({str(error)[:200]})"
        raise _damaged(path, why) from None
    if unknown := {raw.dtype for raw in raws.values()} - _DTYPES.keys():
        raise _foreign(path, f"a file with tensors that invgnn cannot read: {sorted(unknown)}")
    if not all(_possible(raw) for raw in raws.values()):
        raise _damaged(path, "a tensor has an impossible shape, or a boolean that is neither 0 nor 1")
    return header.get("__metadata__") or {}, raws


def _loads(text: str | bytes) -> Any:
    """Return a JSON value, or None if the text is not JSON.

    Errors of `json` carry the whole text. If a damaged length makes a header extend into the tensors, the
    text may contain a secret: no such error may become the context of another.
    """
    with contextlib.suppress(ValueError, RecursionError):
        return json.loads(text)
    return None


def _possible(raw: _Raw) -> bool:
    """Return whether the shape of a tensor is possible and its booleans are 0 or 1."""
    if len(raw.shape) > 32 or any(length >= 2**48 for length in raw.shape):
        return False
    return raw.dtype != "BOOL" or not raw.data.translate(None, b"\0\1")


def _meta(notes: dict[str, str], path: AnyPath) -> dict[str, Any]:
    """Return the metadata of a container, checked."""
    meta = _loads(notes["invgnn"])
    if meta is None:
        raise _damaged(path, "its metadata is not JSON")
    kind, version = (meta.get("kind"), meta.get("version")) if isinstance(meta, dict) else (0, 0)
    named = type(kind) is str and _KIND.fullmatch(kind) is not None
    if not named or type(version) is not int or not 1 <= version < 2**31:
        raise _damaged(path, "its metadata lacks a valid kind and version")
    if version > FORMAT:  # checked first: the other fields of later versions are unknown
        newer = f"{path} has the newer format version {version}; this invgnn reads up to {FORMAT}"
        raise FileError(newer, "Use a newer version of invgnn.")
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
    """Return a container that shows its kind and encrypts the rest; both are bound to each other."""

    def label(how: dict[str, Any]) -> dict[str, Any]:
        """Return the visible metadata of a sealed file."""
        return {"kind": kind, "version": FORMAT, "sealed": how}

    how, box = encryption.close(data, passphrase, kdf, lambda how: canonical_json(label(how)))
    return _pack(label(how), {"sealed": _Raw("U8", (len(box),), box)})


def _unseal(meta: dict[str, Any], raws: dict[str, _Raw], passphrase: str | None, path: AnyPath) -> bytes:
    """Return the decrypted content of a sealed file."""
    if list(raws) != ["sealed"]:
        raise _damaged(path, "its seal is malformed")
    return encryption.open_box(meta["sealed"], raws["sealed"].data, passphrase, canonical_json(meta), path)
