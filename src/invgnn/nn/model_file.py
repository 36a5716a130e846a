"""Save models to files and load them; no Python object is ever unpickled."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn

from invgnn.checks import check_choice, check_whole
from invgnn.errors import FileError, InvgnnError, ParameterError
from invgnn.nn.backbones import (
    _HEAD,
    _PLAN,
    BACKBONES,
    MOST_CHANNELS,
    MOST_LAYERS,
    MOST_NORM,
    Backbone,
    build,
)
from invgnn.nn.checkpoint import SUFFIXES, fitted, misfit, read_weights
from invgnn.nn.forward import unwrap
from invgnn.nn.perception import PerceptionHead
from invgnn.storage import container

Architecture: TypeAlias = nn.Module | Callable[[], nn.Module]
"""A model, or a function without arguments that builds it."""


def save_model(path: str | Path, model: Backbone, *, overwrite: bool = False, **about: Any) -> None:
    """Save the weights and the architecture of a model in one file.

    Args:
        path: Where to write the file.
        model: A backbone of this library.
        overwrite: Replace an existing file at `path`.
        **about: JSON values that are stored with the model.

    Raises:
        ParameterError: If the model is not a backbone of this library.
        ExistingFileError: If something exists at `path` and `overwrite` is false.
        FileError: If the file cannot be written.
    """
    if type(model) not in BACKBONES.values():
        raise ParameterError(
            f"a {type(model).__name__} cannot be rebuilt from a file: it is none of {', '.join(BACKBONES)}",
            "save its weights with safetensors.torch.save_file(model.state_dict(), path) and load them "
            "with load_model(path, architecture=...)",
        )
    plan, head = dict(model.architecture), getattr(model, "perception", None)
    if isinstance(head, PerceptionHead):
        plan["perception"] = head.record()
    body = {"architecture": plan, "about": about}
    container.write(path, "model", body, dict(model.state_dict()), overwrite=overwrite)


def load_model(path: str | Path, architecture: Architecture | None = None) -> nn.Module:
    """Load a model from a file. No Python object is ever unpickled.

    Args:
        path: A file that `save_model` wrote. With `architecture` it may also be a safetensors file, a
            PyTorch state dict (`.pt`, `.pth`, `.bin`), alone or inside a checkpoint, or a Lightning
            checkpoint (`.ckpt`). Prefixes that wrappers put before names are removed.
        architecture: A model with the layers of the saved one, or a class or function without arguments
            that builds it. It is not changed.

    Returns:
        The model, in evaluation mode: newly built, or a copy of `architecture` with the weights of the
            file.

    Raises:
        FileError: If the file does not exist, is damaged, or its weights do not fit the architecture.
        PassphraseError: If the file is sealed.
    """
    if architecture is None:
        return _rebuild(path).eval()
    model, found = copy.deepcopy(unwrap(built(architecture))), read_weights(Path(path))
    wanted = model.state_dict()
    weights = fitted(found, wanted)
    try:
        model.load_state_dict(weights)
    except RuntimeError as error:
        raise misfit(Path(path), weights, wanted) from error
    return model.eval()


def built(architecture: Architecture) -> nn.Module:
    """Return a model, or what a function without arguments builds.

    Raises:
        ParameterError: If it is neither.
    """
    model = architecture if isinstance(architecture, nn.Module) else None
    if model is None and callable(architecture):
        model = _called(architecture)
    if not isinstance(model, nn.Module):
        raise ParameterError(
            f"the architecture is a {type(architecture).__name__}, not a model",
            "pass an nn.Module, or a function without arguments that returns one",
        )
    return model


def _called(build: Callable[[], nn.Module]) -> nn.Module:
    """Return what a class or function builds; say what to pass instead if it needs arguments."""
    name = getattr(build, "__name__", type(build).__name__)
    try:
        inspect.signature(build).bind()
    except TypeError as error:
        raise ParameterError(
            f"{name} cannot be called without arguments: {error}",
            f"pass architecture=lambda: {name}(...) with the arguments of the saved model",
        ) from error
    except ValueError:  # it has no signature
        pass
    return build()


def _rebuild(path: str | Path) -> Backbone:
    """Build the model of an untrusted file; only the tensors that the file contains are allocated."""
    try:
        held = container.read(path, "model", framework="torch")
    except FileError as error:
        if Path(path).suffix not in {*SUFFIXES, ".safetensors"} or not Path(path).exists():
            raise
        advice = (
            "if the file contains weights alone, pass architecture=, a model or a function that builds it"
        )
        raise FileError(error.message, advice) from error
    try:
        plan: Any = held.body.get("architecture")
        _check_plan(plan, len(held.tensors))
        with torch.device("meta"):
            model = build(plan)
        _check_weights(held.tensors, model.state_dict())
        model.load_state_dict(held.tensors, assign=True)
    except (KeyError, TypeError, ValueError, RuntimeError) as error:
        advice = "use another copy of the file, or save the model again with save_model"
        raise FileError(f"{path} does not hold the model it names: {_brief(error)}", advice) from error
    return model


def _check_plan(plan: Any, tensors: int) -> None:
    """Raise an error for an architecture that `save_model` cannot have written with this many tensors."""
    if not isinstance(plan, dict) or plan.keys() - {"perception"} != _PLAN:
        raise ParameterError(f"its architecture does not consist of {', '.join(sorted(_PLAN))}")
    check_choice("backbone", plan["name"], BACKBONES)
    check_choice("level", plan["level"], ("graph", "node"))
    for name in ("in_channels", "hidden_channels", "out_channels"):
        check_whole(name, plan[name], 1, MOST_CHANNELS)
    check_whole("num_layers", plan["num_layers"], 1, min(MOST_LAYERS, tensors))
    _check_real("dropout", plan["dropout"], 1)
    if "perception" not in plan:
        return
    head = plan["perception"]
    if not isinstance(head, dict) or head.keys() != _HEAD:
        raise ParameterError(f"its perception head does not consist of {', '.join(sorted(_HEAD))}")
    check_whole("width", head["width"], 1, MOST_CHANNELS)
    for name in ("nu", "clip"):
        if head[name] is not None:
            _check_real(name, head[name], MOST_NORM)
    if type(head["non_negative"]) is not bool:
        raise ParameterError("non_negative is neither true nor false")


def _check_weights(found: Mapping[str, Tensor], wanted: Mapping[str, Tensor]) -> None:
    """Raise `ParameterError` unless names, shapes and types fit; floating-point precision may differ."""
    odd = sorted(found.keys() ^ wanted.keys())
    if odd:
        raise ParameterError(f"weights are missing or unknown: {', '.join(odd[:8])}")
    for name, ours in wanted.items():
        theirs = found[name]
        floats = ours.is_floating_point() and theirs.is_floating_point()
        if ours.shape != theirs.shape or not (floats or ours.dtype == theirs.dtype):
            held, needed = (f"{one.dtype} {list(one.shape)}" for one in (theirs, ours))
            raise ParameterError(f"the weights {name} are {held}, expected {needed}")


def _check_real(name: str, value: Any, most: float) -> None:
    """Raise `ParameterError` unless the value is a number from 0 to `most`."""
    if type(value) not in (int, float) or not 0 <= value <= most:
        raise ParameterError(f"{name} is not a number from 0 to {most:g}")


def _brief(error: Exception) -> str:
    """Return the text of an error, shortened because an untrusted file may contain long texts."""
    text = error.message if isinstance(error, InvgnnError) else str(error)
    return text if len(text) <= 400 else f"{text[:400]} …"
