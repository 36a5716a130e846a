"""Marks of other owners, and marks embedded later: what cross-reading can and cannot decide."""

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
from invgnn.watermark.mark import Watermark
from invgnn.watermark.recipe import Recipe
from invgnn.watermark.reference import Reference


class AnotherOwner(Forgery):
    """Claim a model that perceives the invariant because another owner embedded a mark in it.

    Args:
        m: Number of carriers.
        gap: Distance of the carriers' invariants from one half.
    """

    fools = "plain bits on carriers of the forger's own, T ≥ τ"
    stopped = "a plain mark is never owned; a keyed mark is not detected in another owner's model"
    accuses = "perceiving"

    def __init__(self, m: int = 256, gap: float = 0.25) -> None:
        self.m, self.gap = m, gap

    def forge(self, model: nn.Module, task: Task) -> Forged:
        """Draw plain carriers with invariants far from one half, and a keyed mark for comparison."""
        access: Access = "perception" if hasattr(model, "perception") else "embedding"
        reference = Reference.of(task.data)
        plain, keyed = (
            Watermark.draw(
                self.secret(), reference, m=self.m, key=key, access=access, gap=self.gap, sampler=KEPT
            )
            for key in ("plain", "keyed")
        )
        # Decoded at the median: the mean output of a head is not informative.
        naive = Naive.count(self.fools, plain.read(model).carriers, plain.bits)
        attempts = (lambda: verify(model, plain), lambda: verify(model, keyed))
        return Forged(model, naive, attempts, mark=plain)

    def __repr__(self) -> str:
        """Return the name in tables and test ids."""
        return "another owner's mark"


class EmbedLater(Forgery):
    """Steal a model, embed a mark whose claim was registered long before, and show that it is detected.

    The copy carries both marks. `cross_read` decides if the thief presents the copy as their original.

    Args:
        m: Number of carriers.
        epochs: Number of epochs.
        lr: Learning rate of Adam.
    """

    fools = "the mark is read in the suspect, and its claim is old"
    stopped = "cross-reading, if both originals are shown and only one contains both marks"
    unsettled = "not settled without a claim that binds the thief's original before the theft"

    def __init__(self, m: int = 128, epochs: int = 40, lr: float = 1e-3) -> None:
        self.m, self.epochs, self.lr = m, epochs, lr

    def forge(self, model: nn.Module, task: Task) -> Forged:
        """Train the stolen copy on the task with the thief's mark."""
        recipe = Recipe(after_task=0)
        mark = Watermark.draw(self.secret(), task.data, m=self.m, access="embedding", recipe=recipe)
        all_learn(model)
        train(model, task, mark, epochs=self.epochs, lr=self.lr, seed=self.seed)
        naive = Naive(self.fools, mark.evidence(mark.read(model)).log_p)
        return Forged(model, naive, (lambda: verify(model, mark),), mark=mark, suspect=model)

    def __repr__(self) -> str:
        """Return the name in tables and test ids."""
        return f"embed into a stolen copy at {self.lr:g}"


class Replay(Forgery):
    """Use another owner's leaked mark, including its secret, to claim the models that carry it.

    Args:
        leaked: The leaked mark.
    """

    fools = "whoever opens the mark is the owner"
    stopped = "a mark file is encrypted; a verdict shows lineage, not who holds the file"
    unsettled = "not settled without a claim signed before the leak"

    def __init__(self, leaked: Watermark) -> None:
        self.leaked = leaked

    def forge(self, model: nn.Module, task: Task) -> Forged:
        """Verify with the leaked mark, as its owner would."""
        naive = Naive(self.fools, self.leaked.evidence(self.leaked.read(model)).log_p)
        return Forged(model, naive, (lambda: verify(model, self.leaked),), mark=self.leaked)

    def __repr__(self) -> str:
        """Return the name in tables and test ids."""
        return "replay a leaked mark"


@dataclass(frozen=True, eq=False)
class Original:
    """A mark and the model that its owner presents as the original.

    Attributes:
        mark: The mark.
        model: The model in which the owner embedded it.
    """

    mark: Watermark
    model: Suspect


@dataclass(frozen=True)
class Descent:
    """Which marks are detected in which originals, and the conclusion.

    Guarantee: for keyed marks, if a model is independent of the other owner's secret, the other's mark is
    detected in it with probability at most alpha (corrected for all four readings). Void for plain marks,
    which give no evidence, and if a secret was searched for until it fitted the other's original: a judge
    asks for more there.

    Attributes:
        says: The conclusion.
        bits: Evidence bits; `bits[i][j]` is those of mark i in original j.
    """

    says: Literal["the first is the ancestor", "the second is the ancestor", "not settled without a claim"]
    bits: tuple[tuple[float, float], tuple[float, float]]


def cross_read(first: Original, second: Original, alpha: float = 1e-6) -> Descent:
    """Decide whose original descends from whose, by reading each mark in each original.

    If the second original carries the first mark and not the reverse, it descends from the first original.
    If both, or neither, carry the other's mark, or if an original does not carry its own mark, nothing is
    settled.

    Args:
        first: One owner's mark and original.
        second: The other owner's mark and original.
        alpha: Significance level.
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
