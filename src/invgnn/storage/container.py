"""The container format of all files: safetensors with canonical JSON metadata, without pickle.

A container is a safetensors file whose only metadata key, `invgnn`, holds canonical JSON.
`docs/reference/file-format.md` describes the whole format. Changing this breaks every mark in the field;
golden vectors in the tests guard it.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from invgnn.concealed import conceal
from invgnn.errors import FileError, ParameterError, PassphraseError
from invgnn.storage import atomic, encryption
from invgnn.storage.atomic import AnyPath
from invgnn.storage.atomic import write_text as write_text
from invgnn.storage.canonical_json import canonical_json as canonical_json
from invgnn.storage.encoding import digest
from invgnn.storage.encryption import STRONG, Kdf
from invgnn.storage.packing import Raw, damaged, foreign, loads, pack, raws_of, tensor_of, unpack

FORMAT = 2
"""The format version that this library writes, and the newest that it reads. It also reads version 1."""
_KIND = re.compile(r"[a-z][a-z0-9-]{0,31}")


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
    return _digest(kind, version, body, raws_of(tensors))


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
    raws = raws_of(tensors)
    found = _digest(kind, FORMAT, body, raws)
    data = pack({"kind": kind, "version": FORMAT, "digest": found, "body": dict(body)}, raws)
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
            raise damaged(path, "the sealed content does not match its label")
    _check_digest(meta, raws, path)
    tensors = conceal({name: tensor_of(name, raw, framework) for name, raw in raws.items()})
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
    notes, raws = unpack(atomic.read_bytes(path), path)
    if "invgnn" in notes:
        meta = _meta(notes, path)
        if "sealed" in meta:
            advice = f"Open it as a {meta['kind']} file, with its passphrase."
            raise PassphraseError(f"{path} is sealed with a passphrase", advice)
        _check_digest(meta, raws, path)
    return {name: tensor_of(name, raw, "torch") for name, raw in raws.items()}


def _digest(kind: str, version: int, body: Mapping[str, Any], raws: Mapping[str, Raw]) -> str:
    """Return the digest of a content in the given format version."""
    if version == 1:
        return _legacy_digest(kind, body, raws)
    tensors = {
        name: {"dtype": raw.dtype, "shape": list(raw.shape), "data": raw.data} for name, raw in raws.items()
    }
    content = {"kind": kind, "version": version, "body": body, "tensors": tensors}
    return digest(f"invgnn/file/{version}", content)


def _legacy_digest(kind: str, body: Mapping[str, Any], raws: Mapping[str, Raw]) -> str:
    """Return the digest of format version 1, which is no longer written but still read."""
    fields = [b"invgnn/file", kind.encode(), b"1", canonical_json(dict(body))]
    for name, raw in sorted(raws.items()):
        fields += [name.encode(), raw.dtype.encode(), canonical_json(list(raw.shape)), raw.data]
    sha = hashlib.sha256()
    for part in fields:
        sha.update(len(part).to_bytes(8, "little"))
        sha.update(part)
    return sha.hexdigest()


def _check_digest(meta: dict[str, Any], raws: dict[str, Raw], path: AnyPath) -> None:
    """Raise `FileError` unless the content matches the digest in the metadata."""
    try:
        found = _digest(meta["kind"], meta["version"], meta["body"], raws)
    except ParameterError as error:  # an integer that is too long, or lists nested too deeply
        raise damaged(path, f"its body cannot be hashed ({error.message})") from None
    if found != meta["digest"]:
        raise damaged(path, "it was altered; its content does not match its digest")


def _parse(data: bytes, path: AnyPath) -> tuple[dict[str, Any], dict[str, Raw]]:
    """Return the checked metadata and the tensors of a container. The digest is not checked."""
    notes, raws = unpack(data, path)
    if "invgnn" not in notes:
        raise foreign(path, "a safetensors file, but not one that invgnn wrote")
    return _meta(notes, path), raws


def _meta(notes: dict[str, str], path: AnyPath) -> dict[str, Any]:
    """Return the metadata of a container, checked."""
    meta = loads(notes["invgnn"])
    if meta is None:
        raise damaged(path, "its metadata is not JSON")
    kind, version = (meta.get("kind"), meta.get("version")) if isinstance(meta, dict) else (0, 0)
    named = type(kind) is str and _KIND.fullmatch(kind) is not None
    if not named or type(version) is not int or not 1 <= version < 2**31:
        raise damaged(path, "its metadata lacks a valid kind and version")
    if version > FORMAT:  # checked first: the other fields of later versions are unknown
        newer = f"{path} has the newer format version {version}; this invgnn reads up to {FORMAT}"
        raise FileError(newer, "Use a newer version of invgnn.")
    clear = meta.keys() == {"kind", "version", "digest", "body"} and type(meta["body"]) is dict
    if not clear and meta.keys() != {"kind", "version", "sealed"}:
        raise damaged(path, "its metadata is malformed")
    try:
        canonical = canonical_json(meta).decode()
    except ParameterError:  # NaN or a lone surrogate, say
        canonical = ""
    if notes != {"invgnn": canonical}:
        raise damaged(path, "its metadata is not in canonical form")
    return dict(meta)


def _seal(data: bytes, kind: str, passphrase: str, kdf: Kdf) -> bytes:
    """Return a container that shows its kind and encrypts the rest; both are bound to each other."""

    def label(how: dict[str, Any]) -> dict[str, Any]:
        """Return the visible metadata of a sealed file."""
        return {"kind": kind, "version": FORMAT, "sealed": how}

    how, box = encryption.close(data, passphrase, kdf, lambda how: canonical_json(label(how)))
    return pack(label(how), {"sealed": Raw("U8", (len(box),), box)})


def _unseal(meta: dict[str, Any], raws: dict[str, Raw], passphrase: str | None, path: AnyPath) -> bytes:
    """Return the decrypted content of a sealed file."""
    if list(raws) != ["sealed"]:
        raise damaged(path, "its seal is malformed")
    return encryption.open_box(meta["sealed"], raws["sealed"].data, passphrase, canonical_json(meta), path)
