"""Forgeries that choose, order or repeat carriers after seeing the suspect, or fit bits to its answers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import nn

from invgnn.attacks.forgery.forgery import KEPT, Attempt, Forged, Forgery, Naive, bound_anew
from invgnn.attacks.forgery.hunt import Ground
from invgnn.audit.verify import verify
from invgnn.graphs.disjoint_union import Graphs, Ints
from invgnn.graphs.invariants import find_invariant, plain_bits
from invgnn.readout.query import answers_on
from invgnn.stats.evidence import decode
from invgnn.training.tasks import Task
from invgnn.watermark.carriers import Carriers
from invgnn.watermark.mark import Key, Watermark
from invgnn.watermark.reference import Reference
from invgnn.watermark.sampler import Sampler

SECRETS = 16
"""Number of secrets tested for one whose reading favours the wanted bit; about every second does."""


class Choice(Forgery):
    """The base class of these forgeries: m carriers, and marks that the forger draws.

    Args:
        m: Number of carriers.
    """

    def __init__(self, m: int = 128) -> None:
        self.m = m

    def own(
        self, reference: Reference, key: Key = "keyed", *, m: int = 0, sampler: Sampler | None = None
    ) -> Watermark:
        """Draw a mark of the forger by the rules.

        Args:
            reference: The reference data.
            key: Kind of the key.
            m: Number of carriers; by default that of the forgery.
            sampler: The sampler; by default carriers keep the features of their seed graphs.
        """
        how: dict[str, Any] = {"key": key, "access": "embedding", "sampler": sampler or KEPT}
        return Watermark.draw(self.secret(key), reference, m=m or self.m, **how)


class ArrangeData(Choice):
    """Order the carriers so that the model's high answers fall on the positions of 1-bits."""

    fools = "bits from the secret alone, one per position"
    stopped = "bits are bound to the digest of the carriers in their order"

    def forge(self, model: nn.Module, task: Task) -> Forged:
        """Sort the carriers by the model's answers."""
        mark = self.own(Reference.of(task.data))
        said = mark.read(model).carriers
        place = np.empty(self.m, dtype=np.int64)
        place[np.argsort(mark.bits, kind="stable")] = np.argsort(said, kind="stable")
        arranged = bound_anew(mark, mark.carriers.take(place))
        naive = Naive.count(self.fools, said[place], mark.bits)
        return Forged(model, naive, (lambda: verify(model, arranged),), mark=arranged)

    def __repr__(self) -> str:
        """Return the name in tables and test ids."""
        return "arrange the data"


class Transcribe(Choice):
    """Claim the model's own answers as the bits, on carriers of the forger or on overheard ones.

    Args:
        m: Number of carriers.
        overheard: Carriers of somebody else's queries, as logged by whoever serves the model.
    """

    fools = "carriers and bits handed over as a list"
    stopped = "bits are derived from the secret and are not stored"

    def __init__(self, m: int = 128, overheard: Graphs | None = None) -> None:
        super().__init__(m if overheard is None else len(overheard))
        self.overheard = overheard

    def forge(self, model: nn.Module, task: Task) -> Forged:
        """Query the model, decode its answers, and claim them as bits."""
        mark = self.own(Reference.of(task.data))
        if self.overheard is not None:
            mark = bound_anew(mark, self.overheard)
        said = mark.read(model).carriers
        naive = Naive.count(self.fools, said, decode(said))
        return Forged(model, naive, (lambda: verify(model, mark),), mark=mark)

    def __repr__(self) -> str:
        """Return the name in tables and test ids."""
        return "transcribe answers" if self.overheard is None else "transcribe overheard queries"


class ChooseCarriers(Choice):
    """Keep carriers whose answers match; with plain bits about every second one does."""

    fools = "plain bits, carriers that pass every test of the protocol, T ≥ τ"
    stopped = "a plain mark is never owned; keyed bits change with the carrier set"

    def forge(self, model: nn.Module, task: Task) -> Forged:
        """Query the model on a pool four times as large, and keep the best carriers for each bit."""
        reference = Reference.of(task.data)
        marks = [self.own(reference, key) for key in ("plain", "keyed")]
        grounds = [Ground.prepare(model, mark, reference, 4 * self.m) for mark in marks]
        plain, keyed = (bound_anew(g.mark, g.pool.take(self._best(g))) for g in grounds)
        naive = Naive.count(self.fools, plain.read(model).carriers, plain.bits)
        attempts = (lambda: verify(model, plain), lambda: verify(model, keyed))
        return Forged(model, naive, attempts, mark=plain)

    def _best(self, ground: Ground) -> Ints:
        """Return the carriers of the pool with the highest answers for 1 and the lowest answers for 0."""
        order = np.argsort(ground.answers, kind="stable")
        ones, zeros = (order[ground.bits[order] == bit] for bit in (1, 0))
        return np.sort(np.concatenate([ones[-self.m // 2 :], zeros[: self.m // 2]]))

    def __repr__(self) -> str:
        """Return the name in tables and test ids."""
        return "choose carriers after looking"


class ChooseSubset(Choice):
    """Draw four times as many carriers by the rules, and present only those that match."""

    fools = "any subset of a valid mark, T ≥ τ"
    stopped = "m is bound: fewer carriers are refused; if bound again, they have other bits"

    def forge(self, model: nn.Module, task: Task) -> Forged:
        """Keep the best carriers, equally many for each bit."""
        mark = self.own(Reference.of(task.data), m=4 * self.m)
        said = mark.read(model).carriers
        order = np.argsort(said, kind="stable")
        ones, zeros = (order[mark.bits[order] == bit] for bit in (1, 0))
        kept = np.sort(np.concatenate([ones[-self.m // 2 :], zeros[: self.m // 2]]))
        carriers = mark.carriers.take(kept)
        naive = Naive.count(self.fools, said[kept], mark.bits[kept])
        attempts = (
            lambda: verify(model, replace(mark, carriers=carriers)),
            lambda: verify(model, bound_anew(mark, carriers)),
        )
        return Forged(model, naive, attempts, mark=mark)

    def __repr__(self) -> str:
        """Return the name in tables and test ids."""
        return "choose a subset after looking"


class RepeatCarriers(Choice):
    """Present two matching carriers many times, so that one coincidence counts m times."""

    fools = "matches counted as independent"
    stopped = "carriers that look the same are refused; the exact null holds for any that pass"

    def forge(self, model: nn.Module, task: Task) -> Forged:
        """Repeat the 1-carrier with the highest answer and the 0-carrier with the lowest, m/2 times."""
        reference = Reference.of(task.data)
        plain, keyed = self.own(reference, "plain"), self.own(reference)
        said = plain.read(model).carriers
        high = int(np.where(plain.bits == 1, said, -np.inf).argmax())
        low = int(np.where(plain.bits == 0, said, np.inf).argmin())
        kept = np.repeat([low, high], self.m // 2)
        repeated = plain.carriers.take(kept)
        attempts: list[Attempt] = [
            lambda: verify(model, bound_anew(plain, repeated)),
            lambda: verify(model, bound_anew(keyed, repeated)),
        ]
        if repeated.x is not None:  # if features are compared, a tiny perturbation makes graphs different
            dusty = Graphs(repeated.ptr, repeated.edges, _dusted(repeated))
            lax = self.own(reference, sampler=replace(KEPT, wl="features"))
            attempts.append(lambda: verify(model, bound_anew(lax, dusty)))
        naive = Naive.count(self.fools, said[kept], plain.bits[kept])
        return Forged(model, naive, tuple(attempts), mark=plain)

    def __repr__(self) -> str:
        """Return the name in tables and test ids."""
        return "repeat carriers"


def _dusted(graphs: Graphs) -> NDArray[np.float32]:
    """Return the features with a different tiny constant added for every graph."""
    dust = 1e-4 * np.arange(len(graphs), dtype=np.float32)
    return np.asarray(graphs.x, dtype=np.float32) + dust[graphs.graph_of_node, None]


class UnbalanceKey(Choice):
    """Present carriers that all have the same bit: a model that mostly returns this bit matches them."""

    fools = "any key, answers decoded at zero, T ≥ τ"
    stopped = "a key that is not balanced is refused"

    def forge(self, model: nn.Module, task: Task) -> Forged:
        """Draw without balance, keep the more frequent bit, and choose the secret that favours it most."""
        reference = Reference.of(task.data)
        first = self.own(reference, "plain")
        marks = [replace(first, secret=self.secret(number)) for number in range(SECRETS)]
        drawn = Carriers.draw(reference, 2 * self.m, first.secret.derive("pool"))
        bits = plain_bits(first.scale(find_invariant("lambda2")(drawn.graphs)))
        common = int(2 * bits.sum() >= bits.size)
        kept = np.flatnonzero(bits == common)[: self.m]
        skewed = drawn.graphs.take(kept)
        said = [answers_on(model, skewed, mark.reading(), mark.direction) for mark in marks]
        best = int(np.argmax([np.mean((one >= 0) == common) for one in said]))
        naive = Naive.count(self.fools, said[best], bits[kept], at=0.0)
        unbalanced = (lambda: verify(model, bound_anew(marks[best], skewed)),)
        return Forged(model, naive, unbalanced, tried=SECRETS, mark=marks[best])

    def __repr__(self) -> str:
        """Return the name in tables and test ids."""
        return "unbalance the key"
