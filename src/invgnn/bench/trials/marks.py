"""One marked model: its task, its evidence, and what nobody reports: embedding cost, questions, seconds."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from statistics import median
from typing import Any

from torch import Tensor, nn

from invgnn.bench.marked import measured
from invgnn.bench.trials.kept import kept
from invgnn.bench.trials.objects import told

AUDITS = 3
"""How often an audit is timed."""
COLUMNS = (
    *("test_accuracy", "val_accuracy", "matches", "asked", "bits", "null", "other_matches", "other_bits"),
    *("innocents", "at_alpha", "at_5", "seconds", "more", "questions", "audit_seconds"),
    "hyperparameters",
)


def measure_mark(setting: str, seed: int, scheme: str, epochs: int, controls: int) -> dict[str, Any]:
    """Train one model with the mark of a scheme, and read it and unmarked models.

    Args:
        setting: Task and backbone, such as `Cora/GCN`.
        seed: Seed of split, weights and training.
        scheme: Name of the scheme.
        epochs: Number of epochs.
        controls: Number of unmarked models.

    Returns:
        The figures. `seconds` is the processor time of the training, `audit_seconds` that of one audit, and
        `questions` the number of graphs that an audit shows to the model. `hyperparameters` are the
        settings of the scheme as they were used.
    """
    made = kept(setting, seed, scheme, epochs)
    figures = measured(made, controls)
    with counted(made.model) as shown:
        made.mark.read(made.model)
    took = [_seconds(made.mark, made.model) for _ in range(AUDITS)]
    figures |= {"questions": sum(shown), "audit_seconds": round(median(took), 4)}
    return figures | {"hyperparameters": told(made.scheme)}


def _seconds(mark: Any, model: nn.Module) -> float:
    """Return the processor time of one audit."""
    start = time.process_time()
    mark.read(model)
    return time.process_time() - start


@contextmanager
def counted(model: nn.Module) -> Iterator[list[int]]:
    """Count the graphs that a model is shown inside a `with` block, one number per call.

    Args:
        model: A model that takes features, edges and the graph of every node.
    """
    shown: list[int] = []

    def count(_: nn.Module, positional: tuple[Any, ...], named: dict[str, Any]) -> None:
        batch = named.get("batch", positional[2] if len(positional) > 2 else None)
        shown.append(int(batch.max()) + 1 if isinstance(batch, Tensor) and batch.numel() else 1)

    hook = model.register_forward_pre_hook(count, with_kwargs=True)
    try:
        yield shown
    finally:
        hook.remove()
