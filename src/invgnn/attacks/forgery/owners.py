"""Marks that are somebody else's, or that came later: what cross-reading decides and what it cannot."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from torch import nn

from invgnn.attacks.forgery.forgery import KEPT, Forged, Forgery, Naive
from invgnn.audit.verify import verify
from invgnn.nn.layers import all_learn
from invgnn.readout.query import Suspect
from invgnn.readout.reading import Access
from invgnn.stats import laws
from invgnn.training.tasks import Task
from invgnn.training.trainer import train
from invgnn.watermark.reference import Reference
from invgnn.watermark.mark import Watermark
from invgnn.watermark.recipe import Recipe


class AnotherOwner(Forgery):
    """Claim a model that perceives the invariant because another owner taught it to."""

    fools = "plain bits on carriers of one's own, T ≥ τ"
    stopped = "a plain mark is never owned; a keyed one reads nothing in another's model"
    accuses = "perceiving"

    def __init__(self, m: int = 256, gap: float = 0.25) -> None:
        self.m, self.gap = m, gap

    def forge(self, model: nn.Module, task: Task) -> Forged:
        """Draw plain carriers far from one half, and a keyed mark beside them."""
        access: Access = "perception" if hasattr(model, "perception") else "embedding"
        reference = Reference.of(task.data)
        plain, keyed = (
            Watermark.draw(
                self.secret(), reference, m=self.m, key=key, access=access, gap=self.gap, sampler=KEPT
            )
            for key in ("plain", "keyed")
        )
        # Decoded at the median: how high a head answers on average says nothing.
        naive = Naive.count(self.fools, plain.read(model).carriers, plain.bits)
        attempts = (lambda: verify(model, plain), lambda: verify(model, keyed))
        return Forged(model, naive, attempts, mark=plain)

    def __repr__(self) -> str:
        return "another owner's mark"


class EmbedLater(Forgery):
    """Steal a model, teach it a mark whose claim was registered long before, and show that it is read.

    The copy does carry both marks. `cross_read` decides if the thief shows the copy as his original.
    """

    fools = "the mark is read in the suspect, and its claim is old"
    stopped = "one-way cross-reading, where both originals are shown"
    unsettled = "not settled without a claim that binds the thief's original before the theft"

    def __init__(self, m: int = 128, epochs: int = 40, lr: float = 1e-3) -> None:
        self.m, self.epochs, self.lr = m, epochs, lr

    def forge(self, model: nn.Module, task: Task) -> Forged:
        """Train the stolen copy on the task with the thief's mark."""
        recipe = Recipe(after_task=False)
        mark = Watermark.draw(self.secret(), task.data, m=self.m, access="embedding", recipe=recipe)
        all_learn(model)
        train(model, task, mark, epochs=self.epochs, lr=self.lr, seed=self.seed)
        naive = Naive(self.fools, mark.evidence(mark.read(model)).log_p)
        return Forged(model, naive, (lambda: verify(model, mark),), mark=mark, suspect=model)

    def __repr__(self) -> str:
        return f"embed into a stolen copy at {self.lr:g}"


class Replay(Forgery):
    """Open another's leaked mark, secret and all, and claim the models that carry it."""

    fools = "whoever opens the mark is the owner"
    stopped = "a mark on disk is encrypted; what is read says whose lineage, not who holds the file"
    unsettled = "not settled without a claim signed before the leak"

    def __init__(self, leaked: Watermark) -> None:
        self.leaked = leaked

    def forge(self, model: nn.Module, task: Task) -> Forged:
        """Verify with the leaked mark, as its owner would."""
        naive = Naive(self.fools, self.leaked.evidence(self.leaked.read(model)).log_p)
        return Forged(model, naive, (lambda: verify(model, self.leaked),), mark=self.leaked)

    def __repr__(self) -> str:
        return "replay a leaked mark"


@dataclass(frozen=True, eq=False)
class Original:
    """A mark and the model that its owner shows as the one he taught it to."""

    mark: Watermark
    model: Suspect


@dataclass(frozen=True)
class Descent:
    """Which marks are read in which originals, and what follows.

    Guarantee: for keyed marks, if a model is independent of the other's secret, the other's mark is read
    in it with probability at most alpha (all four readings paid for). Void for plain marks, whose
    evidence is none.
    """

    says: Literal["the first is the ancestor", "the second is the ancestor", "not settled without a claim"]
    bits: tuple[tuple[float, float], tuple[float, float]]


def cross_read(first: Original, second: Original, alpha: float = 1e-6) -> Descent:
    """You get whose original descends from whose: `bits[i][j]` is what mark i reads in original j.

    One way settles it: if the second's original carries the first's mark and not the reverse, then it
    descends from the first's. Both ways, neither way, or an original without its own mark settle nothing.
    """
    both = (first, second)
    found = [[one.mark.evidence(one.mark.read(other.model)) for other in both] for one in both]
    (aa, ab), (ba, bb) = [[laws.evidence_bits(each.log_p, 4) for each in row] for row in found]
    laws.check_alpha(alpha)
    limit = -math.log2(alpha)
    sound, forth, back = min(aa, bb) >= limit, ab >= limit, ba >= limit
    bits = ((aa, ab), (ba, bb))
    if not sound or forth == back:
        return Descent("not settled without a claim", bits)
    return Descent("the first is the ancestor" if forth else "the second is the ancestor", bits)
