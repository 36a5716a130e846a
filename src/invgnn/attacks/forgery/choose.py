"""Carriers chosen, ordered or repeated after looking at the suspect, and bits made to fit its answers."""

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
from invgnn.watermark.sampler import Sampler
from invgnn.watermark.reference import Reference
from invgnn.watermark.mark import Key, Watermark

SECRETS = 16
"""How many secrets are tried for one whose reading leans the right way: every second does."""


class Choice(Forgery):
    """What these have in common: m carriers, and marks of the forger's to read them with."""

    def __init__(self, m: int = 128) -> None:
        self.m = m

    def own(
        self, reference: Reference, key: Key = "keyed", *, m: int = 0, sampler: Sampler | None = None
    ) -> Watermark:
        """A mark of the forger's, drawn by the rules."""
        how: dict[str, Any] = {"key": key, "access": "embedding", "sampler": sampler or KEPT}
        return Watermark.draw(self.secret(key), reference, m=m or self.m, **how)


class ArrangeData(Choice):
    """Put the carriers in such an order that the model's high answers fall on the 1-positions."""

    fools = "bits from the secret alone, one per position"
    stopped = "bits are bound to the digest of the carriers in their order"

    def forge(self, model: nn.Module, task: Task) -> Forged:
        """Sort the carriers by what the model answers on them."""
        mark = self.own(Reference.of(task.data))
        said = mark.read(model).carriers
        place = np.empty(self.m, dtype=np.int64)
        place[np.argsort(mark.bits, kind="stable")] = np.argsort(said, kind="stable")
        arranged = bound_anew(mark, mark.carriers.take(place))
        naive = Naive.count(self.fools, said[place], mark.bits)
        return Forged(model, naive, (lambda: verify(model, arranged),), mark=arranged)

    def __repr__(self) -> str:
        return "arrange the data"


class Transcribe(Choice):
    """Call the model's own answers the bits, on carriers of the forger's or on overheard ones.

    overheard  carriers that somebody else asked about, as whoever serves the model can log them
    """

    fools = "carriers and bits handed over as a list"
    stopped = "bits are derived from the secret and stored nowhere"

    def __init__(self, m: int = 128, overheard: Graphs | None = None) -> None:
        super().__init__(m if overheard is None else len(overheard))
        self.overheard = overheard

    def forge(self, model: nn.Module, task: Task) -> Forged:
        """Ask, decode, and write down what was said."""
        mark = self.own(Reference.of(task.data))
        if self.overheard is not None:
            mark = bound_anew(mark, self.overheard)
        said = mark.read(model).carriers
        naive = Naive.count(self.fools, said, decode(said))
        return Forged(model, naive, (lambda: verify(model, mark),), mark=mark)

    def __repr__(self) -> str:
        return "transcribe answers" if self.overheard is None else "transcribe overheard queries"


class ChooseCarriers(Choice):
    """Look at single answers and keep the carriers that match: with plain bits every second one does."""

    fools = "plain bits, carriers that pass every test of the protocol, T ≥ τ"
    stopped = "a plain mark is never owned; keyed bits change with the set"

    def forge(self, model: nn.Module, task: Task) -> Forged:
        """Ask about a pool four times as large; take the best of each bit."""
        reference = Reference.of(task.data)
        marks = [self.own(reference, key) for key in ("plain", "keyed")]
        grounds = [Ground.prepare(model, mark, reference, 4 * self.m) for mark in marks]
        plain, keyed = (bound_anew(g.mark, g.pool.take(self._best(g))) for g in grounds)
        naive = Naive.count(self.fools, plain.read(model).carriers, plain.bits)
        attempts = (lambda: verify(model, plain), lambda: verify(model, keyed))
        return Forged(model, naive, attempts, mark=plain)

    def _best(self, ground: Ground) -> Ints:
        order = np.argsort(ground.answers, kind="stable")
        ones, zeros = (order[ground.bits[order] == bit] for bit in (1, 0))
        return np.sort(np.concatenate([ones[-self.m // 2 :], zeros[: self.m // 2]]))

    def __repr__(self) -> str:
        return "choose carriers after looking"


class ChooseSubset(Choice):
    """Draw four times as many carriers by the rules, and show only those that happened to match."""

    fools = "any subset of a sound mark, T ≥ τ"
    stopped = "m is bound: fewer carriers are refused, and bound anew they have other bits"

    def forge(self, model: nn.Module, task: Task) -> Forged:
        """Keep equally many right ones of each bit."""
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
        return "choose a subset after looking"


class RepeatCarriers(Choice):
    """Two carriers that match, each many times over: one lucky throw counted as m."""

    fools = "matches counted as independent"
    stopped = "carriers that look the same are refused; the exact null cares for none that pass"

    def forge(self, model: nn.Module, task: Task) -> Forged:
        """The 1-carrier answered highest and the 0-carrier answered lowest, m/2 times each."""
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
        if repeated.x is not None:  # compared with their features, a grain of dust tells graphs apart
            dusty = Graphs(repeated.ptr, repeated.edges, _dusted(repeated))
            lax = self.own(reference, sampler=replace(KEPT, wl="features"))
            attempts.append(lambda: verify(model, bound_anew(lax, dusty)))
        naive = Naive.count(self.fools, said[kept], plain.bits[kept])
        return Forged(model, naive, tuple(attempts), mark=plain)

    def __repr__(self) -> str:
        return "repeat carriers"


def _dusted(graphs: Graphs) -> NDArray[np.float32]:
    dust = 1e-4 * np.arange(len(graphs), dtype=np.float32)
    return np.asarray(graphs.x, dtype=np.float32) + dust[graphs.graph_of_node, None]


class UnbalanceKey(Choice):
    """Carriers that all have one bit: whoever always says that bit matches them all."""

    fools = "any key, answers decoded at zero, T ≥ τ"
    stopped = "a key that is not balanced is refused"

    def forge(self, model: nn.Module, task: Task) -> Forged:
        """Draw without balance, keep the commoner bit, and try secrets until the model mostly says it."""
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
        return "unbalance the key"
