"""Load suspects and data that a command names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from invgnn.cli.own_models import build_model
from invgnn.errors import FileError


def load_task_data(task: str | None, seed: int) -> Any:
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
