"""Forgeries against schemes: claims on a model that the claimant never marked.

Each passes a check that is made in practice. The protocol of `Scheme` stops it: questions and key derive
from one secret, sets are disjoint, and every statistic has a null that is valid for it.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np
from scipy.stats import norm
from torch import nn

from invgnn.errors import InvgnnError, SchemeError
from invgnn.graphs.disjoint_union import Ints
from invgnn.schemes.backdoor import NAT, BackdoorMark
from invgnn.schemes.chance import log_p_labels
from invgnn.schemes.cosine import COS
from invgnn.schemes.edge_signs import WGLE
from invgnn.schemes.explanation import match_index
from invgnn.schemes.explanations import EXPL, SETS, ExplanationMark
from invgnn.schemes.keyed import Keyed
from invgnn.schemes.published import Published
from invgnn.schemes.questions import Questions
from invgnn.schemes.random_graphs import TRIG
from invgnn.schemes.scheme import Found, Mark, Scheme
from invgnn.schemes.secret_sets import shown_sets
from invgnn.secret import Secret, public_stream
from invgnn.stats.laws import log_p_times
from invgnn.training.tasks import Task


@dataclass(frozen=True)
class Forged:
    """The result of a forgery.

    Attributes:
        forgery: Name of the forgery.
        scheme: Name of the scheme.
        naive: Log p-value of the check that the forger wants to be made.
        found: What the scheme finds by its own rules; None if it refuses the claim.
        tried: Number of secrets that were tried.
        refusal: Why the claim is refused; empty if it is not.
    """

    forgery: str
    scheme: str
    naive: float
    found: Found | None
    tried: int = 1
    refusal: str = ""

    def succeeds(self, alpha: float = 1e-6) -> bool:
        """Return whether the claim is accepted by the scheme's own rules, corrected for all tries.

        Args:
            alpha: Significance level.
        """
        if self.found is None or self.found.log_p is None:
            return False
        return log_p_times(self.found.log_p, self.tried) <= math.log(alpha)


class Forgery(ABC):
    """A way to claim a model that somebody else made, under the rules of a scheme.

    Attributes:
        name: Name of the forgery.
        fools: The check that it passes.
        stopped: What stops it.
        schemes: The schemes to which it applies.
    """

    name: str
    fools: str
    stopped: str
    schemes: tuple[type[Scheme], ...]

    def applies(self, scheme: Scheme) -> bool:
        """Return whether the forgery applies to a scheme.

        Args:
            scheme: The scheme.
        """
        return isinstance(scheme, self.schemes)

    @abstractmethod
    def forge(self, scheme: Scheme, model: nn.Module, task: Task, innocents: list[nn.Module]) -> Forged:
        """Claim a model.

        Args:
            scheme: The scheme.
            model: The accused model.
            task: Its task.
            innocents: Unmarked models, for schemes without an exact law.

        Raises:
            SchemeError: If the scheme cannot serve the task.
        """

    def secret(self, number: int = 0) -> Secret:
        """Return a secret of the forger, which is public so that the forgery is reproducible.

        Args:
            number: Number of the secret.
        """
        return Secret(public_stream("schemes/forger", self.name, number).bytes(32))

    def __repr__(self) -> str:
        """Return the name in tables and test ids."""
        return self.name


class Transcribe(Forgery):
    """Hand over questions with the model's own answers as the key."""

    name = "transcribe answers"
    fools = "questions and key handed over as a list"
    stopped = "the key is derived from the secret and the questions, and cannot be chosen"
    schemes = (TRIG, COS, WGLE, EXPL, Keyed)

    def forge(self, scheme: Scheme, model: nn.Module, task: Task, innocents: list[nn.Module]) -> Forged:
        """Count every answer as right, and read the same model with the derived key.

        Args:
            scheme: The scheme.
            model: The accused model.
            task: Its task.
            innocents: Unmarked models.
        """
        found = scheme.prepare(self.secret(), task).read(model)
        classes = task.num_classes if isinstance(scheme, TRIG) else 2
        return Forged(self.name, scheme.name, log_p_labels(found.asked, found.asked, classes), found)


class Grind(Forgery):
    """Try many secrets and present the best.

    Args:
        tries: Number of secrets.
    """

    name = "grind secrets"
    fools = "the evidence of one secret, without the number of tries"
    stopped = "the secret is committed before the model exists, or the tries are paid for"
    schemes = (Scheme,)

    def __init__(self, tries: int = 6) -> None:
        self.tries = tries

    def forge(self, scheme: Scheme, model: nn.Module, task: Task, innocents: list[nn.Module]) -> Forged:
        """Return the secret with the most evidence.

        Args:
            scheme: The scheme.
            model: The accused model.
            task: Its task.
            innocents: Unmarked models.
        """
        marks = [scheme.prepare(self.secret(number), task) for number in range(self.tries)]
        found = [compared(mark, model, innocents) for mark in marks]
        best = min(found, key=lambda one: 0.0 if one.log_p is None else one.log_p)
        naive = 0.0 if best.log_p is None else best.log_p
        return Forged(self.name, scheme.name, naive, best, self.tries)


class OverlapSets(Forgery):
    """Explain a model on four sets that share most of their members.

    Args:
        shared: Share of the members that all sets have.
    """

    name = "overlapping sets"
    fools = "the match index under its theoretical null"
    stopped = "sets with common members are refused"
    schemes = (EXPL,)

    def __init__(self, shared: float = 0.8) -> None:
        self.shared = shared

    def forge(self, scheme: Scheme, model: nn.Module, task: Task, innocents: list[nn.Module]) -> Forged:
        """Compute the match index of overlapping sets, then claim them.

        Args:
            scheme: The scheme.
            model: The accused model.
            task: Its task.
            innocents: Unmarked models.
        """
        if not isinstance(scheme, EXPL):
            raise SchemeError("this forgery needs explanations", "use it against EXPL")
        fair = scheme.prepare(self.secret(), task)
        sets = self.overlapping(task, max(20, scheme.least))
        try:
            scheme.on_sets(self.secret(), task, sets, len(fair.bits))
        except SchemeError as error:
            naive = self.naive(fair, model, task, sets)
            return Forged(self.name, scheme.name, naive, None, refusal=error.message)
        raise AssertionError("overlapping sets were accepted")

    def overlapping(self, task: Task, size: int) -> list[Ints]:
        """Return sets of training inputs that share most of their members.

        Args:
            task: The task.
            size: Number of members.
        """
        order = task.train.numpy()[self.secret().derive("order").permutation(len(task.train))]
        common = round(self.shared * size)
        own = size - common
        rest = [order[common + i * own : common + (i + 1) * own] for i in range(SETS)]
        return [np.sort(np.concatenate([order[:common], one])) for one in rest]

    def naive(self, fair: ExplanationMark, model: nn.Module, task: Task, sets: list[Ints]) -> float:
        """Return the log p-value of the match index under the theoretical null.

        Args:
            fair: A mark by the rules, which the forger changes.
            model: The accused model.
            task: The task.
            sets: The overlapping sets.
        """
        private, rows = shown_sets(task, sets)
        asked = Questions.of(private, task, self.secret().derive("ordinary"))
        said = asked.ask(model)[0].logs
        parts = ExplanationMark(asked, rows, fair.marked, fair.bits, fair.tuples, 0.0, 0.0)
        index = int(match_index(np.sign(parts.coefficients(said)).astype(np.int8)))
        features, chance = task.num_features, 2.0 ** (1 - SETS)
        spread = math.sqrt(features * chance * (1 - chance))
        return float(norm.logsf((index - features * chance) / spread))


class ChanceNull(Forgery):
    """Choose the target class that the model returns most often, and call anything above 1/C evidence."""

    name = "null of 1/C"
    fools = "a binomial test of the target class against 1/C"
    stopped = "unmarked models return the target class as often"
    schemes = (NAT,)

    def forge(self, scheme: Scheme, model: nn.Module, task: Task, innocents: list[nn.Module]) -> Forged:
        """Return the secret whose target class the model returns most often.

        Args:
            scheme: The scheme.
            model: The accused model.
            task: Its task.
            innocents: Unmarked models.
        """
        tries = 4 * task.num_classes
        marks = [scheme.prepare(self.secret(number), task) for number in range(tries)]
        backdoors = [mark for mark in marks if isinstance(mark, BackdoorMark)]
        best = max(backdoors, key=lambda mark: mark.read(model).accuracy)
        found = compared(best, model, innocents)
        naive = log_p_labels(found.matches, found.asked, task.num_classes)
        return Forged(self.name, scheme.name, naive, found, tries)


class AnotherOwner(Forgery):
    """Claim a model that perceives the invariant because another owner embedded a mark in it."""

    name = "another owner's mark"
    fools = "plain bits counted as if each matched with probability one half"
    stopped = "the null is that of models, and the comparison shows the second owner's score"
    schemes = (Published,)

    def forge(self, scheme: Scheme, model: nn.Module, task: Task, innocents: list[nn.Module]) -> Forged:
        """Read the model with carriers of the forger's own.

        Args:
            scheme: The scheme.
            model: The accused model.
            task: Its task.
            innocents: Unmarked models.
        """
        found = compared(scheme.prepare(self.secret(), task), model, innocents)
        return Forged(self.name, scheme.name, log_p_labels(found.matches, found.asked, 2), found)


def compared(mark: Mark, model: nn.Module, innocents: list[nn.Module]) -> Found:
    """Return what a mark finds in a model, compared with unmarked models if it has no exact law.

    Args:
        mark: The mark.
        model: The model.
        innocents: Unmarked models.
    """
    found = mark.read(model)
    return found if found.log_p is not None else found.against([mark.read(one).score for one in innocents])


def suite() -> list[Forgery]:
    """Return every forgery, in the order of the tables."""
    return [Transcribe(), Grind(), OverlapSets(), ChanceNull(), AnotherOwner()]


def forge_all(
    scheme: Scheme, model: nn.Module, task: Task, innocents: list[nn.Module] | None = None
) -> list[Forged]:
    """Put the claim of a scheme before every forgery that applies to it.

    Args:
        scheme: The scheme.
        model: The accused model.
        task: Its task.
        innocents: Unmarked models, for schemes without an exact law.
    """
    found = []
    for forgery in suite():
        if forgery.applies(scheme):
            try:
                found.append(forgery.forge(scheme, model, task, innocents or []))
            except InvgnnError as error:
                found.append(Forged(forgery.name, scheme.name, 0.0, None, refusal=error.message))
    return found
