"""Prove that a graph neural network is yours.

>>> import invgnn
>>> secret = invgnn.Secret.generate()

Draw a mark with `Watermark.draw`, add `mark.loss(model)` to your loss, and `verify` a suspect.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from invgnn.audit.remote import Endpoint as Endpoint
    from invgnn.audit.remote import Transcript as Transcript
    from invgnn.audit.report import write_report as write_report
    from invgnn.audit.sequential import Sequential as Sequential
    from invgnn.audit.verdict import Verdict as Verdict
    from invgnn.audit.verify import verify as verify
    from invgnn.errors import InvgnnError as InvgnnError
    from invgnn.errors import InvgnnWarning as InvgnnWarning
    from invgnn.graphs.disjoint_union import Graphs as Graphs
    from invgnn.nn.model_file import load_model as load_model
    from invgnn.nn.model_file import save_model as save_model
    from invgnn.nn.perception import attach_head as attach_head
    from invgnn.nn.typed_graphs import Schema as Schema
    from invgnn.nn.weight_scaling import scale_weights as scale_weights
    from invgnn.nn.weight_scaling import unscale_weights as unscale_weights
    from invgnn.readout.reading import Reading as Reading
    from invgnn.secret import Secret as Secret
    from invgnn.stress_test.run import stress as stress
    from invgnn.training.tasks import Task as Task
    from invgnn.training.tasks import load_task as load_task
    from invgnn.training.tasks import new_model as new_model
    from invgnn.training.tasks import own_task as own_task
    from invgnn.training.trainer import train as train
    from invgnn.version import __version__ as __version__
    from invgnn.watermark.embedded import Embedded as Embedded
    from invgnn.watermark.mark import Watermark as Watermark
    from invgnn.watermark.recipe import Recipe as Recipe
    from invgnn.watermark.reference import Reference as Reference
    from invgnn.watermark.sampler import Sampler as Sampler

_HOMES = {
    "Embedded": "watermark.embedded",
    "Endpoint": "audit.remote",
    "Graphs": "graphs.disjoint_union",
    "InvgnnError": "errors",
    "InvgnnWarning": "errors",
    "Reading": "readout.reading",
    "Recipe": "watermark.recipe",
    "Reference": "watermark.reference",
    "Sampler": "watermark.sampler",
    "Schema": "nn.typed_graphs",
    "Secret": "secret",
    "Sequential": "audit.sequential",
    "Task": "training.tasks",
    "Transcript": "audit.remote",
    "Verdict": "audit.verdict",
    "Watermark": "watermark.mark",
    "__version__": "version",
    "attach_head": "nn.perception",
    "load_model": "nn.model_file",
    "load_task": "training.tasks",
    "new_model": "training.tasks",
    "own_task": "training.tasks",
    "save_model": "nn.model_file",
    "scale_weights": "nn.weight_scaling",
    "stress": "stress_test.run",
    "train": "training.trainer",
    "unscale_weights": "nn.weight_scaling",
    "verify": "audit.verify",
    "write_report": "audit.report",
}
# Names are loaded on first use: torch and PyG take seconds to import.
__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'invgnn' has no attribute {name!r}")
    return getattr(importlib.import_module(f"invgnn.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return __all__
