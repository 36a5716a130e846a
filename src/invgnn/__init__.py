"""Prove that a graph neural network is yours.

>>> import invgnn
>>> secret = invgnn.Secret.generate()

Draw a mark with `Watermark.draw`, add `mark.loss(model)` to your loss, and `verify` a suspect.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from invgnn.carriers import Reference as Reference
    from invgnn.carriers import Sampler as Sampler
    from invgnn.errors import InvgnnError as InvgnnError
    from invgnn.graphs import Graphs as Graphs
    from invgnn.models import load_model as load_model
    from invgnn.models import save_model as save_model
    from invgnn.perception import attach_head as attach_head
    from invgnn.reading import Reading as Reading
    from invgnn.recipe import Recipe as Recipe
    from invgnn.report import write_report as write_report
    from invgnn.secret import Secret as Secret
    from invgnn.stiffness import stiffen as stiffen
    from invgnn.tasks import Task as Task
    from invgnn.tasks import load_task as load_task
    from invgnn.tasks import new_model as new_model
    from invgnn.training import train as train
    from invgnn.verdict import Verdict as Verdict
    from invgnn.verdict import verify as verify
    from invgnn.version import __version__ as __version__
    from invgnn.watermark import Watermark as Watermark

_HOMES = {
    "Graphs": "graphs",
    "InvgnnError": "errors",
    "Reading": "reading",
    "Recipe": "recipe",
    "Reference": "carriers",
    "Sampler": "carriers",
    "Secret": "secret",
    "Task": "tasks",
    "Verdict": "verdict",
    "Watermark": "watermark",
    "__version__": "version",
    "attach_head": "perception",
    "load_model": "models",
    "load_task": "tasks",
    "new_model": "tasks",
    "save_model": "models",
    "stiffen": "stiffness",
    "train": "training",
    "verify": "verdict",
    "write_report": "report",
}
# Names are loaded on first use: torch and PyG take seconds to import.
__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'invgnn' has no attribute {name!r}")
    return getattr(importlib.import_module(f"invgnn.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return __all__
