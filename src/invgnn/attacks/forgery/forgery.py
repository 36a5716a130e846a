"""The base class of forgeries: a claim on a model that the claimant never marked, and its outcomes."""

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
from invgnn.watermark.mark import Watermark
from invgnn.watermark.sampler import Sampler

Attempt = Callable[[], Verdict]
"""One way to submit a forgery to the real verification; it may raise an `InvgnnError`."""

KEPT = Sampler(donors=None)
"""Forgers keep the features of the seed graphs, on which the answers of an unmarked model vary more."""

Kind = Literal["refused", "not owned", "another model", "owned"]
Accused = Literal["unmarked", "perceiving"]


@dataclass(frozen=True)
class Naive:
    """The result of a check without the rules of this library: its p-value, and whether it passes.

    Guarantee: none. It is the number that the forger presents.

    Attributes:
        check: The naive check in words.
        log_p: Its log p-value.
        alpha: The level at which it passes.
    """

    check: str
    log_p: float
    alpha: float = 1e-6

    @classmethod
    def count(
        cls, check: str, said: ArrayLike, claimed: ArrayLike, alpha: float = 1e-6, at: float | None = None
    ) -> Naive:
        """Count matches as if each occurred with probability one half, independently.

        Args:
            check: The naive check in words.
            said: The model's answers.
            claimed: The claimed bits.
            alpha: The level at which the check passes.
            at: The threshold of decoding; by default the median of the answers.
        """
        bits = np.asarray(claimed).astype(bool)
        t = matches(decode(said, at), bits)
        return cls(check, null.NULLS["binomial"].log_tail(bits.size, t), alpha)

    @property
    def passes(self) -> bool:
        """Whether the naive check accepts the claim."""
        return self.log_p <= math.log(self.alpha)

    @property
    def bits(self) -> float:
        """Evidence bits according to the naive check."""
        return laws.evidence_bits(self.log_p)


@dataclass(frozen=True)
class Outcome:
    """The result of the real verification of one attempt.

    Attributes:
        kind: `refused`: an error and no verdict. `another model`: a verdict with a digest that is not that
            of the accused model. `not owned`: a verdict on the accused model. `owned`: the forgery
            succeeded.
        says: The error message, or the reason in the verdict.
        bits: Evidence bits of the verdict.
    """

    kind: Kind
    says: str
    bits: float = 0.0


@dataclass(frozen=True, eq=False)
class Forged:
    """The claim of a forger: it passes the naive check, and `attempts` are all ways to verify it.

    Attributes:
        accused: The model that is claimed.
        naive: The result of the naive check.
        attempts: The ways to submit the claim to the real verification.
        tried: Number of secrets, readings and carrier sets that were tested; the correction is its log2.
        mark: The forger's mark.
        suspect: The model that the forger presents, if it is not the accused model.
    """

    accused: nn.Module
    naive: Naive
    attempts: tuple[Attempt, ...]
    tried: int = 1
    mark: Watermark | None = None
    suspect: nn.Module | None = None

    def outcomes(self) -> tuple[Outcome, ...]:
        """Verify every attempt and return its outcome."""
        return tuple(self._judge(attempt) for attempt in self.attempts)

    def _judge(self, attempt: Attempt) -> Outcome:
        """Return the outcome of one attempt."""
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

    Subclasses implement `forge`, which receives a copy of the model that it may change, and may draw from
    the global random generators; they are seeded before and restored after.

    Attributes:
        fools: The naive check that the forgery passes.
        stopped: What refuses it here, or makes it expensive.
        unsettled: Why verification alone cannot decide; empty if it can.
        accuses: The model that it needs: `unmarked`, or `perceiving`, in which another owner embedded a
            mark with plain bits, so that it perceives the invariant.
        seed: Seed of the forger's secrets and of the global generators during `forge`.
    """

    fools: str
    stopped: str
    unsettled: str = ""
    accuses: Accused = "unmarked"
    seed: int = 0

    @final
    def __call__(self, model: nn.Module, task: Task) -> Forged:
        """Return the forgery against this model.

        Args:
            model: The model; left unchanged.
            task: Its task.
        """
        with seeded(self.seed):
            return self.forge(copy.deepcopy(model).eval(), task)

    @abstractmethod
    def forge(self, model: nn.Module, task: Task) -> Forged:
        """Make a claim on this copy of the model.

        Args:
            model: A copy of the model, in evaluation mode.
            task: Its task.
        """

    @abstractmethod
    def __repr__(self) -> str:
        """Return the name in tables and test ids."""

    def secret(self, *parts: str | int) -> Secret:
        """Return a secret of the forger, which is public so that the forgery is reproducible."""
        return Secret(public_stream("forger", repr(self), self.seed, *parts).bytes(32))


def bound_anew(mark: Watermark, carriers: Graphs) -> Watermark:
    """Return the forger's mark on other carriers; its bits are derived from them and differ from before.

    Args:
        mark: The forger's mark.
        carriers: The carriers.
    """
    context = {**mark.context, "m": len(carriers)}
    return replace(mark, context=context, carriers=carriers, rejected={}, shown=None)


@contextmanager
def scratch(name: str) -> Iterator[Path]:
    """Yield a temporary path with this name; error messages do not reveal the folder."""
    with TemporaryDirectory() as folder:
        try:
            yield Path(folder) / name
        except FileError as error:
            raise FileError(error.message.replace(folder, "…"), error.advice) from None
