"""A forgery: somebody who never marked a model claims it, and what becomes of the claim."""

from __future__ import annotations

import copy
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal, final

import numpy as np
from numpy.typing import ArrayLike
from torch import nn

from invgnn.audit.provenance import digest_model
from invgnn.audit.verdict import Verdict
from invgnn.errors import FileError, InvgnnError
from invgnn.graphs.disjoint_union import Graphs
from invgnn.nn.rng import seeded
from invgnn.secret import Secret, public_stream
from invgnn.stats import laws, null
from invgnn.stats.evidence import decode, matches
from invgnn.training.tasks import Task
from invgnn.watermark.sampler import Sampler
from invgnn.watermark.mark import Watermark

Attempt = Callable[[], Verdict]
"""One way to put a forgery before the real verification; it may raise an `InvgnnError`."""

KEPT = Sampler(donors=None)
"""Forgers leave carriers the features of their seed graphs: an unmarked model has more to say of those."""

Kind = Literal["refused", "not owned", "another model", "owned"]
Accused = Literal["unmarked", "perceiving"]


@dataclass(frozen=True)
class Naive:
    """What a check without our rules says: the p-value it believes, and whether that passes.

    Guarantee: none. It is the number that the forger shows.
    """

    check: str
    log_p: float
    alpha: float = 1e-6

    @classmethod
    def count(
        cls, check: str, said: ArrayLike, claimed: ArrayLike, alpha: float = 1e-6, at: float | None = None
    ) -> Naive:
        """Count matches and believe that each came with probability one half, independently.

        Answers are decoded at their own median, or `at` a threshold.
        """
        bits = np.asarray(claimed).astype(bool)
        t = matches(decode(said, at), bits)
        return cls(check, null.NULLS["binomial"].log_tail(bits.size, t), alpha)

    @property
    def passes(self) -> bool:
        return self.log_p <= math.log(self.alpha)

    @property
    def bits(self) -> float:
        """The evidence that the naive check believes in."""
        return laws.evidence_bits(self.log_p)


@dataclass(frozen=True)
class Outcome:
    """What the real verification made of one attempt.

    `refused`: an error, no verdict. `another model`: a verdict whose digest is not that of the accused.
    `not owned`: a verdict on the accused, worth `bits`. `owned`: the forgery went through.
    """

    kind: Kind
    says: str
    bits: float = 0.0


@dataclass(frozen=True, eq=False)
class Forged:
    """What a forger presents: a claim that fools the naive check, and all his ways to the real one.

    `tried` counts every secret, reading and carrier set he looked at: he pays log2 of it.
    """

    accused: nn.Module
    naive: Naive
    attempts: tuple[Attempt, ...]
    tried: int = 1
    mark: Watermark | None = None
    suspect: nn.Module | None = None

    def outcomes(self) -> tuple[Outcome, ...]:
        """Every attempt, judged."""
        return tuple(self._judge(attempt) for attempt in self.attempts)

    def _judge(self, attempt: Attempt) -> Outcome:
        try:
            verdict = attempt()
        except InvgnnError as error:
            return Outcome("refused", error.message)
        bits, says = verdict.evidence_bits, verdict.reasons[0]
        if verdict.digests["suspect"] != digest_model(self.accused):
            return Outcome("another model", says, bits)
        if verdict.status != "owned":
            return Outcome("not owned", says, bits)
        return Outcome("owned", f"{says}; called {verdict.called}", bits)


class Forgery(ABC):
    """A way to claim a model that somebody else made.

    Subclasses write `forge`, which gets a copy of the model it may change and may draw from the global
    generators, which are seeded for it and restored.

    fools      the naive check that it passes
    stopped    what refuses or prices it here
    unsettled  why verification alone cannot settle it; empty if it can
    accuses    the model it needs: `unmarked`, or one that another owner taught to perceive the invariant
    """

    fools: str
    stopped: str
    unsettled: str = ""
    accuses: Accused = "unmarked"
    seed: int = 0

    @final
    def __call__(self, model: nn.Module, task: Task) -> Forged:
        """The forgery against this model; the model itself is left as it was."""
        with seeded(self.seed):
            return self.forge(copy.deepcopy(model).eval(), task)

    @abstractmethod
    def forge(self, model: nn.Module, task: Task) -> Forged:
        """Make a claim on this copy."""

    @abstractmethod
    def __repr__(self) -> str:
        """The name in tables and test ids."""

    def secret(self, *parts: str | int) -> Secret:
        """The forger's own secrets: published, so that everybody can repeat the forgery."""
        return Secret(public_stream("forger", repr(self), self.seed, *parts).bytes(32))


def bound_anew(mark: Watermark, carriers: Graphs) -> Watermark:
    """The forger's mark on carriers of his choice: it can be made, and its bits are not what they were."""
    context = {**mark.context, "m": len(carriers)}
    return replace(mark, context=context, carriers=carriers, rejected={})


@contextmanager
def scratch(name: str) -> Iterator[Path]:
    """A path of that name for the length of a block; errors do not tell where it was."""
    with TemporaryDirectory() as folder:
        try:
            yield Path(folder) / name
        except FileError as error:
            raise FileError(error.message.replace(folder, "…"), error.advice) from None
