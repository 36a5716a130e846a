"""Checks for authors of plug-ins: test that an edit or a scheme keeps the contract of all of them."""

from __future__ import annotations

import copy
import os
import random
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch_geometric.data import Batch, Data

from invgnn.attacks.edits import Edit
from invgnn.errors import ParameterError, SchemeError
from invgnn.nn.backbones import Level
from invgnn.nn.hidden_units import TOLERANCE, difference
from invgnn.nn.rng import seeded
from invgnn.schemes.scheme import Mark, Scheme
from invgnn.secret import Secret
from invgnn.training.batching import scores
from invgnn.training.fitting import FitOptions, fit_task
from invgnn.training.tasks import Task, motif_task, new_model

_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


def check_edit(edit: Edit, model: nn.Module | None = None, task: Task | None = None) -> None:
    """Apply an edit and check that it keeps the contract of all edits.

    An edit changes neither the original model nor the task nor the global random states. It returns a
    separate model in evaluation mode, with finite scores of the right shape, which is the same in every run
    and differs from the original only as far as `same_architecture` and `same_function` allow.

    Args:
        edit: The edit.
        model: The model to edit; a small GIN by default.
        task: The task of the model. By default two generated tasks are used, one on graphs and one on
            nodes.

    Raises:
        AssertionError: If the edit breaks the contract. The message names the violated rule.
        ParameterError: If a model is given without its task.
    """
    if task is not None:
        _check(edit, new_model(task, "GIN", 0, hidden_channels=8) if model is None else model, task)
    elif model is not None:
        raise ParameterError("a model was passed without a task", "pass task= with the task of the model")
    else:
        for level in ("graph", "node"):
            check_edit(edit, task=small_task(level))


def check_scheme(scheme: Scheme, task: Task | None = None, epochs: int = 30) -> None:
    """Prepare, embed and read a scheme, and check that it keeps the contract of all schemes.

    A mark depends on secret and task alone. Preparing and reading change neither the task nor a model nor
    the global random states. Training moves the model and its mark: the marked model gives more right
    answers than an unmarked one, and the unmarked one does not verify.

    Args:
        scheme: The scheme.
        task: The task. By default two generated tasks are used, one on graphs and one on nodes; a scheme
            may refuse one of them with a `SchemeError`.
        epochs: Number of epochs.

    Raises:
        AssertionError: If the scheme breaks the contract. The message names the violated rule.
    """
    _require(
        isinstance(scheme, Scheme), f"a {type(scheme).__name__} does not derive from invgnn.schemes.Scheme"
    )
    _check_name(repr(scheme), repr(copy.deepcopy(scheme)))
    if task is not None:
        _require(_check_marked(scheme, task, epochs), f"{scheme!r}: refuses {task.name}")
        return
    served = [_check_level(scheme, level, epochs) for level in ("graph", "node")]
    _require(any(served), f"{scheme!r}: serves neither graph tasks nor node tasks")


def _check_level(scheme: Scheme, level: Level, epochs: int) -> bool:
    """Check a scheme on a generated task; one that it cannot serve has to be refused, not to fail."""
    try:
        return _check_marked(scheme, small_task(level), epochs)
    except (AssertionError, SchemeError):
        raise
    except Exception as error:  # third-party code may raise anything
        failed = f"{scheme!r}: fails on a {level} task with {type(error).__name__}: {error}"
        raise AssertionError(
            f"{failed}; if it cannot serve such tasks, raise a SchemeError in prepare"
        ) from error


def _check_marked(scheme: Scheme, task: Task, epochs: int) -> bool:
    """Check a scheme on one task; return whether it serves the task."""
    name, data = repr(scheme), _data(task)
    marked, plain = (new_model(task, "GIN", seed, hidden_channels=16) for seed in (0, 1))
    before = _seen(marked)
    try:
        mark, again = (_prepared(scheme, marked, task) for _ in range(2))
    except SchemeError:
        return False
    several = [marked, *(new_model(task, "GIN", seed, hidden_channels=16) for seed in range(2, 6))]
    read = [[each.read(model) for model in several] for each in (mark, again)]
    changed = [what for what, value in _seen(marked).items() if value != before[what]]
    _require(not changed, f"{name}: reading or preparing changed the model's {', '.join(changed)}")
    _require(_data(task) == data, f"{name}: the task's own data changed; clone it before changing it")
    _require(read[0] == read[1], f"{name}: the same secret gives two different marks")
    start = _weights(marked)
    mark.train(marked, task, FitOptions(epochs, decay=True))
    fit_task(plain, task, FitOptions(epochs, seed=1, decay=True))
    _require(_weights(marked) != start, f"{name}: training leaves the model as it was")
    _require(_data(task) == data, f"{name}: training changed the task's own data")
    _require(not marked.training, f"{name}: the model is left in training mode; call eval()")
    own, chance = mark.read(marked), mark.read(plain)
    for found in (own, chance):
        fair = 0 <= found.matches <= found.asked and (found.log_p is None or found.log_p <= 0)
        _require(fair, f"{name}: {found} has more matches than answers, or a p-value above 1")
    more = own.score > chance.score
    _require(more, f"{name}: the marked model scores {own.score:g}, an unmarked one {chance.score:g}")
    _require(not chance.shows(1e-6), f"{name}: an unmarked model verifies, with {chance.bits:.1f} bits")
    return True


def _prepared(scheme: Scheme, model: nn.Module, task: Task) -> Mark:
    """Prepare a mark under another global random state each time, which must not matter."""
    with seeded(int.from_bytes(os.urandom(3), "little")):
        return scheme.suited(model, task).prepare(Secret(b"1" * 32), task)


def small_task(level: Level) -> Task:
    """Generate a small task.

    Args:
        level: "graph" for 40 graphs; "node" for the nodes of these graphs in one graph.
    """
    whole = motif_task(0, count=40)
    if level == "graph":
        return whole
    union = Batch.from_data_list(whole.graphs)
    degree = torch.bincount(union.edge_index[0], minlength=int(union.num_nodes))
    graph = Data(x=union.x, edge_index=union.edge_index, y=(degree > degree.median()).long())
    order = torch.arange(len(degree))
    return Task("motif nodes", "node", [graph], order[:400], order[400:500], order[500:], 2, "generated")


def _check(edit: Edit, model: nn.Module, task: Task) -> None:
    """Check an edit on one model and task."""
    _require(
        isinstance(edit, Edit), f"a {type(edit).__name__} does not derive from invgnn.attacks.edits.Edit"
    )
    name = repr(edit)
    _check_name(name, repr(copy.deepcopy(edit)))
    original = copy.deepcopy(model).train()  # protects the caller's model and reveals a change of mode
    before, data = _seen(original), _data(task)
    first = edit(original, task)
    changed = [what for what, value in _seen(original).items() if value != before[what]]
    _require(not changed, f"{name}: the original's {', '.join(changed)} changed; edit the copy")
    _require(_data(task) == data, f"{name}: the task's own data changed; clone it before changing it")
    _check_result(edit, original, first, task)
    with seeded(1):  # other global random states than before: they must not matter
        again = edit(original, task)
    _require(
        _weights(first) == _weights(again),
        f"{name}: two runs differ; draw from the global generators inside `apply`, which are seeded for it",
    )
    _require(
        repr(edit) == name, f"{name}: repr() became {edit!r} after use; it is the name of a row in tables"
    )


def _check_name(name: str, of_copy: str) -> None:
    """Check that the `repr` of an edit is one short line and stable."""
    plain = bool(name.strip()) and len(name.splitlines()) == 1
    _require(plain, f"repr() gives {name!r}; it must be one short line, because it names a row in tables")
    stable = " at 0x" not in name and name == of_copy
    _require(stable, f"repr() gives {name!r}, which names one object in memory; describe the edit instead")


def _check_result(edit: Edit, original: nn.Module, edited: nn.Module, task: Task) -> None:
    """Check the edited model against the original."""
    shared = _storage(original) & _storage(edited)
    _require(not shared, f"{edit!r}: the edited model shares memory with the original; clone its tensors")
    training = [name or "the model" for name, part in edited.named_modules() if part.training]
    _require(not training, f"{edit!r}: {', '.join(training)} left in training mode; call eval()")
    _require(
        _weights(edited) != _weights(original), f"{edit!r}: nothing changed; raise an EditError instead"
    )
    finite = all(bool(value.isfinite().all()) for value in _tensors(edited).values())
    _require(finite, f"{edit!r}: weights are NaN or infinite")
    if edit.same_architecture:
        _require(
            _shapes(edited) == _shapes(original),
            f"{edit!r}: the state dict has other names, shapes or types; set same_architecture = False",
        )
        _require(_hooks(edited) == _hooks(original), f"{edit!r}: hooks stay behind; remove them")
    ours, theirs = scores(original, task), scores(edited, task)
    wrong = f"scores of shape {tuple(theirs.shape)}, not {tuple(ours.shape)}"
    _require(ours.shape == theirs.shape, f"{edit!r}: the edited model returns {wrong}")
    _require(bool(theirs.isfinite().all()), f"{edit!r}: scores are NaN or infinite")
    if edit.same_function:
        error = difference(ours, theirs)
        _require(error <= TOLERANCE, f"{edit!r}: scores differ by {error:.1e}, but same_function = True")


def _require(holds: bool, otherwise: str) -> None:
    """Raise `AssertionError` with a message unless a condition holds."""
    if not holds:
        raise AssertionError(otherwise)


def _tensors(model: nn.Module) -> dict[str, Tensor]:
    """Return the tensors of a state dict."""
    return {name: value for name, value in model.state_dict().items() if torch.is_tensor(value)}


def _weights(model: nn.Module) -> dict[str, bytes]:
    """Return the exact bytes of parameters and buffers by name."""
    return {name: _bytes(value) for name, value in _tensors(model).items()}


def _bytes(value: Tensor) -> bytes:
    """Return the bytes of a tensor."""
    flat = value.detach().cpu().contiguous().view(-1).view(torch.uint8)
    return bytes(flat.numpy().tobytes())


def _shapes(model: nn.Module) -> dict[str, tuple[Any, Any]]:
    """Return shape and dtype of every tensor by name."""
    return {name: (value.shape, value.dtype) for name, value in _tensors(model).items()}


def _hooks(model: nn.Module) -> list[int]:
    """Return the number of hooks of every module and kind."""
    return [len(getattr(part, kind)) for part in model.modules() for kind in _HOOKS]


def _storage(model: nn.Module) -> set[int]:
    """Return the memory addresses of parameters and buffers."""
    values = (*model.parameters(), *model.buffers())
    return {value.untyped_storage().data_ptr() for value in values if value.numel()}


def _data(task: Task) -> list[bytes]:
    """Return the bytes of every tensor of a task that an edit could change by mistake."""
    held = [value for graph in task.graphs for value in graph.to_dict().values()]
    return [_bytes(value) for value in (*held, task.train, task.val, task.test) if torch.is_tensor(value)]


def _seen(model: nn.Module) -> dict[str, object]:
    """Return the observable state of a model and of the random generators, as comparable values."""
    parameters = list(model.parameters())
    return {
        "weights or buffers": _weights(model),
        "tensors": [id(value) for value in (*parameters, *model.buffers())],
        "gradients": [None if p.grad is None else _bytes(p.grad) for p in parameters],
        "requires_grad": [p.requires_grad for p in parameters],
        "modules or training mode": [(n, type(m), m.training) for n, m in model.named_modules()],
        "hooks": _hooks(model),
        "surroundings, the random state of torch,": _bytes(torch.get_rng_state()),
        "surroundings, the random state of numpy,": str(np.random.get_state()),  # noqa: NPY002 - to compare
        "surroundings, the random state of Python,": random.getstate(),
    }
