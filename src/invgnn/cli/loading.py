"""Load suspects, architectures and data that a command names."""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path
from typing import Any

from invgnn.errors import FileError, ParameterError


def load_data(task: str | None, seed: int) -> Any:
    """Load the training data of a task, if one is named.

    Args:
        task: Name of the task, with or without a backbone.
        seed: Seed of the split.
    """
    if task is None:
        return None
    from invgnn.training.tasks import load_task

    return load_task(task.partition("/")[0], seed).data


def load_suspect(path: Path, architecture: str | None) -> Any:
    """Return the path of a model file, which `verify` rebuilds, or load weights into the architecture.

    Args:
        path: The file.
        architecture: MODULE:FUNCTION of the architecture, for weights alone.
    """
    from invgnn.audit.provenance import require_plain
    from invgnn.nn.model_file import load_model
    from invgnn.storage import container

    try:
        ours = container.peek(path)["kind"] == "model"
    except FileError as error:
        if architecture is None:
            advice = "if the file contains weights alone, give --architecture MODULE:FUNCTION"
            raise FileError(error.message, advice) from None
        ours = False
    if ours or architecture is None:
        return path
    built = build_model(architecture)
    require_plain(built)
    return load_model(path, built)


def build_model(name: str) -> Any:
    """Return the model of the user's function; its module may be in the current folder.

    Args:
        name: MODULE:FUNCTION.
    """
    from torch import nn

    model = call_function(name, "a model")
    if not isinstance(model, nn.Module):
        raise ParameterError(
            f"{name!r} must return a torch.nn.Module, not a {type(model).__name__}",
            "return the model itself",
        )
    return model


def call_function(name: str, what: str) -> Any:
    """Call a function of the user; its module may be in the current folder.

    Args:
        name: MODULE:FUNCTION.
        what: What it should return, for the error.
    """
    module, _, function = name.partition(":")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        return getattr(importlib.import_module(module), function)()
    except (Exception, SystemExit) as error:  # foreign code must not decide the exit code
        raise ParameterError(
            f"{name!r} does not return {what}: {type(error).__name__}: {error}",
            "give MODULE:FUNCTION; the module must be importable from here, and the function takes no "
            "arguments",
        ) from error
