"""Find the weights of a model in a checkpoint as people save them; no Python object is ever unpickled."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from invgnn.errors import FileError
from invgnn.storage import container

SUFFIXES = {".pt", ".pth", ".ckpt", ".bin"}
"""File names that end like this hold what `torch.save` wrote."""
WRAPPINGS = ("state_dict", "model_state_dict", "model", "net", "module")
"""Entries of a checkpoint under which its weights are stored, the usual ones first."""
_COMPILED = "_orig_mod."
"""What `torch.compile` puts into the names of weights."""
_SHOWN = 4
"""How many names an error lists."""


def read_weights(path: Path) -> dict[str, Tensor]:
    """Return the state dict in a file of `torch.save`, of Lightning or of safetensors.

    Args:
        path: The file. A state dict may be wrapped, as in `{"state_dict": ..., "epoch": 3}`.

    Raises:
        FileError: If the file does not exist, is damaged, or holds no state dict.
    """
    if path.suffix not in SUFFIXES:
        return container.read_tensors(path)
    try:
        held = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:
        raise _unreadable(path, error) from error
    found = _state_in(held)
    if found is None:
        shown = f"the entries {_listed(held)}" if isinstance(held, Mapping) else f"a {type(held).__name__}"
        raise FileError(
            f"{path} contains no state dict, but {shown}",
            "save model.state_dict(), alone or as the entry state_dict of a dictionary",
        )
    return found


def _state_in(held: Any) -> dict[str, Tensor] | None:
    """Return the state dict itself, or the one inside a checkpoint."""
    if _is_state(held):
        return dict(held)
    if not isinstance(held, Mapping):
        return None
    usual = [held[name] for name in WRAPPINGS if _is_state(held.get(name))]
    others = [value for value in held.values() if _is_state(value)]
    if usual:
        return dict(usual[0])
    return dict(others[0]) if len(others) == 1 else None


def _is_state(held: Any) -> bool:
    """Return whether an object maps names to tensors; it may hold extra state of modules as well."""
    named = isinstance(held, Mapping) and bool(held) and all(isinstance(name, str) for name in held)
    return named and all(isinstance(v, Tensor) or k.endswith("_extra_state") for k, v in held.items())


def fitted(found: Mapping[str, Tensor], wanted: Collection[str]) -> dict[str, Tensor]:
    """Return weights under the names that an architecture uses.

    Wrappers put prefixes before names: `module.` (data-parallel and averaged models), `_orig_mod.`
    (compiled models), `model.` and others (Lightning). Names of other parts of a wrapper, such as metrics,
    are left out. Weights that already fit, or fit with no prefix or with several, are returned unchanged.

    Args:
        found: The weights of a checkpoint.
        wanted: The names of the architecture's weights.
    """
    names = set(wanted)
    if found.keys() == names or not names:
        return dict(found)
    plain = {name.replace(_COMPILED, ""): value for name, value in found.items()}
    plain = plain if len(plain) == len(found) else dict(found)
    if plain.keys() == names:
        return plain
    inside = [p for p in _prefixes(plain, names) if {p + name for name in names} <= plain.keys()]
    if len(inside) == 1:
        return {name: plain[inside[0] + name] for name in wanted}
    outside = [p for p in _prefixes(dict.fromkeys(names), set(plain)) if {p + n for n in plain} == names]
    return {outside[0] + name: value for name, value in plain.items()} if outside else plain


def _prefixes(long: Mapping[str, Any], short: set[str]) -> list[str]:
    """Return the prefixes, each ending with a dot, that some long name has before one of the short ones."""
    first = min(short)
    return sorted({name.removesuffix(first) for name in long if name.endswith(f".{first}")})


def misfit(path: Path, found: Mapping[str, Tensor], wanted: Mapping[str, Tensor]) -> FileError:
    """Return the error to raise for weights that do not fit an architecture, with advice that fits it.

    Args:
        path: The file.
        found: Its weights, under the names that come closest.
        wanted: The weights of the architecture.
    """
    shapes = [
        f"{name} is {list(found[name].shape)}, not {list(ours.shape)}"
        for name, ours in wanted.items()
        if isinstance(found.get(name), Tensor) and found[name].shape != ours.shape
    ]
    missing, extra = sorted(wanted.keys() - found.keys()), sorted(found.keys() - wanted.keys())
    if shapes and not missing and not extra:
        why, advice = (
            "; ".join(shapes[:_SHOWN]),
            "build the architecture with the widths of the saved model",
        )
    elif not wanted.keys() & found.keys():
        why = f"it has {_listed(extra)}, the architecture {_listed(missing)}"
        advice = "pass the architecture whose weights were saved: no name is the same in both"
    else:
        why = "; ".join(
            f"{what} {_listed(names)}"
            for what, names in (("missing", missing), ("unknown", extra))
            if names
        )
        advice = "build the architecture with the layers of the saved model, norms and biases included"
    return FileError(f"the weights in {path} do not fit this architecture: {why}", advice)


def _listed(names: Any) -> str:
    shown = [str(name)[:80] for name in list(names)[:_SHOWN]]
    more = len(names) - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more > 0 else "")


def _unreadable(path: Path, error: Exception) -> FileError:
    """Return the error to raise for a file that torch does not load without Python objects."""
    text = str(error)
    named = re.search(r"GLOBAL ([\w.]+)", text)
    if isinstance(error, FileNotFoundError):
        return FileError(f"there is no file {path}", "check the path")
    if "TorchScript" in text:
        why, advice = "a TorchScript archive", "save torch.jit.load(path).state_dict() instead"
    elif named:
        why = f"not weights alone: it contains the Python object {named[1][:80]}, which is never loaded"
        advice = (
            "where you trust the file, load it yourself and save its tensors: torch.save(state_dict, path)"
        )
    else:
        first = text.splitlines()[0][:200] if text else type(error).__name__
        why = f"not a plain PyTorch state dict: {first}"
        advice = "save model.state_dict(), or use safetensors"
    return FileError(f"{path} is {why}", advice)
