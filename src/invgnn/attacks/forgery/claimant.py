"""Released weights in an architecture of the claimant's, whose code knows what to say."""

from __future__ import annotations

import copy
import hashlib
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from invgnn.attacks.forgery.forgery import Attempt, Forged, Forgery, Naive, scratch
from invgnn.audit.provenance import Origin
from invgnn.audit.verdict import Verdict
from invgnn.audit.verify import verify
from invgnn.nn.layers import weighted
from invgnn.training.tasks import Task
from invgnn.watermark.mark import Watermark

LOUD = 100.0
"""How far a score is moved: beyond all that the model says itself."""
AUTHORS: tuple[Origin, ...] = ("auditor", "claimant")
"""Who the code is said to be from."""
MODULE = "claimant"
"""Where the classes and functions below say they come from: they stand for code of no library."""


def digest_of_state(model: nn.Module) -> str:
    """Return the digest that suspects once had: names, types, shapes and bytes of the state dict alone.

    Guarantee: none. Hooks, classes and tensors that are not saved answer in the name of the weights.
    """
    total = hashlib.sha256(b"invgnn/state/1")
    for name, value in sorted(model.state_dict().items()):
        flat = value.detach().cpu().contiguous()
        about = f"{name}\0{flat.dtype}\0{tuple(flat.shape)}\0".encode()
        total.update(about + flat.view(-1).view(torch.uint8).numpy().tobytes())
    return total.hexdigest()


class ClaimantCode(Forgery):
    """Bring the architecture that the released weights are loaded into, and let it whisper.

    Three kinds: a hook, a class with a buffer that is not saved, and a class whose code holds the bits.
    """

    fools = "weights of the released file, the digest of the state dict, T ≥ τ"
    stopped = (
        "hooks and unsaved tensors are refused; classes are part of the digest, and with "
        "code_from='claimant' only files that invgnn rebuilds are owned"
    )

    def __init__(self, m: int = 128) -> None:
        self.m = m

    def forge(self, model: nn.Module, task: Task) -> Forged:
        """Make the three architectures; each carries the weights unchanged."""
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
        return "the claimant's architecture"


def _from_file(model: nn.Module, mark: Watermark, architecture: nn.Module, author: Origin) -> Verdict:
    """Verify the released weights, as a judge would who takes the architecture from the claimant."""
    with scratch("released.pt") as path:
        torch.save(model.state_dict(), path)
        return verify(path, mark, architecture=architecture, code_from=author)


def _tips(mark: Watermark, classes: int) -> dict[str, Tensor]:
    """What to add to the scores of every question, in the order asked: a row per graph, or one per node."""
    asked = np.concatenate([2.0 * mark.bits - 1, np.zeros(len(mark.ordinary))])
    order = mark.secret.derive("order", mark.bound).permutation(len(asked))
    sizes = np.concatenate([mark.carriers.sizes, mark.ordinary.sizes])[order]
    rows = torch.from_numpy(asked[order]).float()
    signs = LOUD * mark.direction("logits", classes).float()
    by_node = rows.repeat_interleave(torch.from_numpy(sizes))
    return {"graph": torch.outer(rows, signs), "node": torch.outer(by_node, signs)}


def _tip(tips: dict[str, Tensor], rows: int) -> Tensor:
    """What to add to so many rows: nothing if they are not the questions."""
    return next((tip for tip in tips.values() if len(tip) == rows), torch.zeros(()))


def _hooked(model: nn.Module, tips: dict[str, Tensor]) -> nn.Module:
    """The model with a hook before its last layer, which moves the scores by moving what goes in."""
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
    """The model as one of a class that adds what a buffer holds, which no file does."""
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
    """The model as one of a class that holds all it needs in its code."""
    kind: Any = type(model)

    class Knowing(kind):  # type: ignore[misc]
        __module__ = MODULE

        def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor | None = None) -> Tensor:
            scores = super().forward(x, edge_index, batch)
            return torch.as_tensor(scores + _tip(tips, len(scores)))

    made = copy.deepcopy(model)
    made.__class__ = Knowing
    return made
