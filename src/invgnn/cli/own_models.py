"""Models and data of the user's own, named as MODULE:FUNCTION on the command line."""

from __future__ import annotations

import importlib
import os
import sys
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from invgnn.cli.console import fold, note, progress
from invgnn.errors import ParameterError, WeakMarkWarning

if TYPE_CHECKING:
    from torch import nn

    from invgnn.training.tasks import Task
    from invgnn.watermark.mark import Watermark


def load_function(name: str, returns: str) -> Any:
    """Return the object that MODULE:FUNCTION names; its module may be in the current folder.

    Args:
        name: The name.
        returns: What the function returns, for the error message.

    Raises:
        ParameterError: If there is no such function, or its module cannot be imported.
    """
    module, _, function = name.partition(":")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        return getattr(importlib.import_module(module), function)
    except (Exception, SystemExit) as error:  # foreign code must not decide the exit code
        raise _failed(name, returns, error) from error


def _failed(name: str, returns: str, error: BaseException) -> ParameterError:
    return ParameterError(
        f"{name!r} does not return {returns}: {type(error).__name__}: {error}",
        "give MODULE:FUNCTION; the module must be importable from here, and the function takes no "
        "arguments",
    )


def call_function(name: str, returns: str) -> Any:
    """Return what the user's function returns, as `load_function` names it."""
    function = load_function(name, returns)
    try:
        return function()
    except (Exception, SystemExit) as error:
        raise _failed(name, returns, error) from error


def load_transform(name: str) -> Any:
    """Return the transform of the user: an object that is called with a graph, or its class.

    Raises:
        ParameterError: If there is no such object.
    """
    found = load_function(name, "a transform")
    made = call_function(name, "a transform") if isinstance(found, type) else found
    if not callable(made):
        raise ParameterError(f"{name!r} is not a transform", "name a function from a graph to a graph")
    return made


def load_forward(name: str | None, data: Any = None) -> Any:
    """Return how models are called: by the function of the user, or as the types of his graphs say.

    Args:
        name: MODULE:FUNCTION, if it was given.
        data: The graphs of the user, if they were given.

    Raises:
        ParameterError: If there is no such function.
    """
    from invgnn.nn.typed_graphs import Schema, is_typed

    if name is None:
        typed = isinstance(data, list | tuple) and len(data) > 0 and is_typed(data[0])
        return Schema.of(data) if typed else None
    found = load_function(name, "scores")
    if not callable(found):
        raise ParameterError(f"{name!r} is not a function", "name a function of the model and a batch")
    return found


def build_model(name: str) -> nn.Module:
    """Return the model of the user's function or class.

    Raises:
        ParameterError: If it fails, or returns anything else.
    """
    from torch import nn

    model = call_function(name, "a model")
    if not isinstance(model, nn.Module):
        raise ParameterError(
            f"{name!r} must return a torch.nn.Module, not a {type(model).__name__}",
            "return the model itself",
        )
    return model


def load_data(name: str) -> Any:
    """Return the graphs of the user's function: a list, a data set, a loader or the graph of a node task.

    Raises:
        ParameterError: If it fails, or returns None.
    """
    data = call_function(name, "graphs")
    if data is None:
        raise ParameterError(f"{name!r} returned None", "return a list of PyG graphs, or one graph")
    from invgnn.training.tasks import Task

    return data.data if isinstance(data, Task) else data


def load_own_task(name: str, seed: int, forward: str | None = None) -> Task:
    """Return the task of the user's function, which returns labelled graphs or an `invgnn.Task`."""
    from invgnn.training.tasks import own_task

    return own_task(call_function(name, "graphs"), name, seed, load_forward(forward))


def load_weights(path: Path, architecture: str) -> nn.Module:
    """Return the user's model with the weights of a file."""
    from invgnn.nn.model_file import load_model

    return load_model(path, build_model(architecture))


def one_of(task: str | None, data: str | None) -> None:
    """Raise an error unless exactly one of --task and --data was given."""
    if (task is None) == (data is None):
        raise ParameterError(
            "give either --task or --data",
            "--task names a public data set, --data your own MODULE:FUNCTION",
        )


def both_or_neither(architecture: str | None, data: str | None) -> None:
    """Raise an error if only one of --architecture and --data was given."""
    if (data is None) != (architecture is None):
        raise ParameterError(
            "--data and --architecture belong together", "give both for a model of your own, or --task"
        )


def embed_own(
    mark: Watermark,
    architecture: str,
    data: Any,
    start: Path,
    output: Path,
    *,
    metric: str | None,
    options: dict[str, Any],
    overwrite: bool,
) -> Any:
    """Embed a mark in a trained model of the user's own, and write its weights as safetensors.

    Args:
        mark: The mark.
        architecture: MODULE:FUNCTION that builds the model.
        data: Its task inputs.
        start: The trained weights.
        output: Where to write the marked weights.
        metric: MODULE:FUNCTION that measures a model, if any.
        options: Passed on to `mark.embed`.
        overwrite: Whether to replace an existing file.
    """
    from safetensors.torch import save

    from invgnn.audit.verify import verify
    from invgnn.storage import atomic
    from invgnn.watermark.embed import DEFAULT

    model = load_weights(start, architecture)
    measure = None if metric is None else load_function(metric, "a number")
    steps = options.get("steps") or DEFAULT.steps
    with progress("embedding", steps) as tick, warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always", WeakMarkWarning)
        done = 0

        def report(step: int, total: int) -> None:
            nonlocal done
            tick(step - done)
            done = step

        found = mark.embed(model, data, metric=measure, progress=report, **options)
    _repeat(said, more=found.steps >= steps and 4 * steps)
    verdict = verify(model, mark)
    weights = {name: value.contiguous().clone() for name, value in model.state_dict().items()}
    atomic.write_bytes(output, save(weights), private=False, overwrite=overwrite)
    record = {
        "model": str(output),
        "mark": mark.digest,
        **found.record(),
        "verdict": verdict.to_json(),
    }
    return record, fold(f"wrote {output}: {found}\n{verdict}", 13), 0


def _repeat(said: Iterable[warnings.WarningMessage], *, more: int) -> None:
    """Print warnings about a weak mark, with the option to use; show all others as usual.

    Args:
        said: The warnings.
        more: How many steps to advise; 0 if the steps were enough.
    """
    for one in said:
        if not isinstance(one.message, WeakMarkWarning):
            warnings.showwarning(one.message, one.category, one.filename, one.lineno)
            continue
        advice = f"embed it in more steps: --steps {more}" if more else one.message.advice
        note(f"warning: {one.message.message}\nadvice: {advice}")
