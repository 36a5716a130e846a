"""The released weights in an architecture of the claimant, whose code returns the bits."""

from __future__ import annotations

import copy
import hashlib
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from invgnn.attacks.forgery.forgery import Attempt, Forged, Forgery, Naive, scratch
from invgnn.audit.origin import Origin
from invgnn.audit.verdict import Verdict
from invgnn.audit.verify import verify
from invgnn.nn.layers import weighted
from invgnn.training.tasks import Task
from invgnn.watermark.mark import Watermark

LOUD = 100.0
"""Change of a score, larger than any score of the model."""
AUTHORS: tuple[Origin, ...] = ("auditor", "claimant")
"""The stated authors of the code."""
MODULE = "claimant"
"""The module name of the classes and functions below, which represent code of no known library."""


def digest_of_state(model: nn.Module) -> str:
    """Return the former digest of suspects: names, types, shapes and bytes of the state dict alone.

    Guarantee: none. Hooks, classes and unsaved tensors can change the answers without changing this digest.
    """
    total = hashlib.sha256(b"invgnn/state/1")
    for name, value in sorted(model.state_dict().items()):
        flat = value.detach().cpu().contiguous()
        about = f"{name}\0{flat.dtype}\0{tuple(flat.shape)}\0".encode()
        total.update(about + flat.view(-1).view(torch.uint8).numpy().tobytes())
    return total.hexdigest()


class ClaimantCode(Forgery):
    """Supply an architecture for the released weights whose code adds the bits to the scores.

    There are three variants: a hook, a class with an unsaved buffer, and a class whose code contains the
    bits.

    Args:
        m: Number of carriers.
    """

    fools = "the released weights, bound by the digest of the state dict, T ≥ τ"
    stopped = (
        "hooks and unsaved tensors are refused; classes are part of the digest; with "
        "code_from='claimant' only files that invgnn rebuilds by itself can be owned"
    )

    def __init__(self, m: int = 128) -> None:
        self.m = m

    def forge(self, model: nn.Module, task: Task) -> Forged:
        """Make the three architectures, each with the weights unchanged."""
        mark = Watermark.draw(self.secret(), task.data, m=self.m, access="logits")
        tips = _tips(mark, task.num_classes)
        made = [_hooked(model, tips), _with_buffer(model, tips[task.level]), _with_code(model, tips)]
        found = [Naive.count(self.fools, mark.read(one).carriers, mark.bits) for one in made]
        same = all(digest_of_state(one) == digest_of_state(model) for one in made)
        naive = max(found, key=lambda one: one.log_p) if same else Naive(self.fools, 0.0)
        attempts: list[Attempt] = [partial(_from_file, model, mark, model, "claimant")]
        for one in made:
            attempts += [partial(_from_file, model, mark, one, author) for author in AUTHORS]
        return Forged(model, naive, tuple(attempts), mark=mark)

    def __repr__(self) -> str:
        """Return the name in tables and test ids."""
        return "the claimant's architecture"


def _from_file(model: nn.Module, mark: Watermark, architecture: nn.Module, author: Origin) -> Verdict:
    """Verify the released weights with the claimant's architecture, as an auditor might."""
    with scratch("released.pt") as path:
        torch.save(model.state_dict(), path)
        return verify(path, mark, architecture=architecture, code_from=author)


def _tips(mark: Watermark, classes: int) -> dict[str, Tensor]:
    """Return what to add to the scores of every question, in the order asked, per graph or per node."""
    asked = np.concatenate([2.0 * mark.bits - 1, np.zeros(len(mark.ordinary))])
    order = mark.secret.derive("order", mark.bound).permutation(len(asked))
    sizes = np.concatenate([mark.carriers.sizes, mark.ordinary.sizes])[order]
    rows = torch.from_numpy(asked[order]).float()
    signs = LOUD * mark.direction("logits", classes).float()
    by_node = rows.repeat_interleave(torch.from_numpy(sizes))
    return {"graph": torch.outer(rows, signs), "node": torch.outer(by_node, signs)}


def _tip(tips: dict[str, Tensor], rows: int) -> Tensor:
    """Return what to add to this number of rows; 0 if they are not the questions."""
    return next((tip for tip in tips.values() if len(tip) == rows), torch.zeros(()))


def _hooked(model: nn.Module, tips: dict[str, Tensor]) -> nn.Module:
    """Return the model with a hook that changes the scores through the input of its last layer."""
    made = copy.deepcopy(model)
    last = weighted(made)[-1]
    back = torch.linalg.pinv(next(p.detach() for p in last.parameters() if p.dim() == 2)).T

    def whisper(module: nn.Module, args: tuple[Any, ...]) -> tuple[Any, ...]:
        tip = _tip(tips, len(args[0]))
        return (args[0] + tip @ back, *args[1:]) if tip.dim() else args

    whisper.__module__ = MODULE
    last.register_forward_pre_hook(whisper)
    return made


def _with_buffer(model: nn.Module, tip: Tensor) -> nn.Module:
    """Return the model as an object of a class that adds an unsaved buffer to the scores."""
    kind: Any = type(model)

    class Attentive(kind):  # type: ignore[misc]
        __module__ = MODULE

        def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor | None = None) -> Tensor:
            scores = super().forward(x, edge_index, batch)
            return torch.as_tensor(scores + self.tip if len(scores) == len(self.tip) else scores)

    made = copy.deepcopy(model)
    made.__class__ = Attentive
    made.register_buffer("tip", tip, persistent=False)
    return made


def _with_code(model: nn.Module, tips: dict[str, Tensor]) -> nn.Module:
    """Return the model as an object of a class whose code contains the bits."""
    kind: Any = type(model)

    class Knowing(kind):  # type: ignore[misc]
        __module__ = MODULE

        def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor | None = None) -> Tensor:
            scores = super().forward(x, edge_index, batch)
            return torch.as_tensor(scores + _tip(tips, len(scores)))

    made = copy.deepcopy(model)
    made.__class__ = Knowing
    return made
