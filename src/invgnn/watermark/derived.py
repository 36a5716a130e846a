"""Everything that derives from a secret and what it is bound to: bits, targets, directions, questions."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from invgnn.errors import ParameterError
from invgnn.graphs.attributed import Attributed, Shown
from invgnn.graphs.disjoint_union import Graphs, Ints
from invgnn.graphs.invariants import Scale, find_invariant, keyed_targets, plain_bits
from invgnn.nn.forward import Forward
from invgnn.readout.reading import Access, Direction, Reading
from invgnn.secret import Secret
from invgnn.storage import encoding
from invgnn.watermark.baseline import Baseline
from invgnn.watermark.context import bind, check_context
from invgnn.watermark.directions import directions
from invgnn.watermark.questions import Questions
from invgnn.watermark.recipe import Recipe
from invgnn.watermark.sampler import Sampler, distinct

MOST_NODES = 2_000_000
"""How many nodes all carriers, or all ordinary inputs, may have together."""


@dataclass(frozen=True, eq=False)
class Derived:
    """The fields of a mark and what derives from them. An unsound mark cannot be constructed.
    The fields are described in `Watermark`.
    """

    secret: Secret
    context: dict[str, Any]
    carriers: Graphs
    ordinary: Graphs
    scale: Scale
    recipe: Recipe = field(default_factory=Recipe)
    rejected: dict[str, int] = field(default_factory=dict)
    forward: Forward | None = None
    baseline: Baseline | None = None
    labels: Ints | None = None
    shown: Attributed | None = None

    def __post_init__(self) -> None:
        """Refuse an unsound mark."""
        check_context(self.context)
        if max(self.carriers.num_nodes, self.ordinary.num_nodes) > MOST_NODES:
            raise ParameterError(
                f"more than {MOST_NODES:,} nodes", "draw the mark anew, from smaller graphs"
            )
        if len(self.carriers) != self.m:
            raise ParameterError(f"{len(self.carriers)} carriers for m={self.m}", "draw the mark anew")
        if not distinct(self.carriers, Sampler.recall(self.context["sampler"])):
            raise ParameterError("some carriers are the same graph", "draw the mark anew")
        if not 1 <= len(self.ordinary) <= self.context["ordinary"]:
            raise ParameterError(
                f"{len(self.ordinary)} ordinary inputs for ordinary={self.context['ordinary']}",
                "draw the mark anew",
            )
        self._check_labels()
        self._check_shown()
        if self.complete and int(self.bits.sum()) * 2 != self.m:
            raise ParameterError("the key is not balanced", "draw the mark anew")
        if self.baseline is not None and self.score_channel is None:
            raise ParameterError(
                "baseline scores belong to a score channel, and this mark has none",
                "draw it with score_channel=128",
            )

    def _check_labels(self) -> None:
        if self.labels is None:
            return
        if self.format == 1:
            raise ParameterError("format 1 binds no labels, so it keeps none", "draw the mark anew")
        rows = len(self.ordinary) if self.context["level"] == "graph" else self.ordinary.num_nodes
        known = np.asarray(self.labels)
        if known.shape != (rows,) or known.dtype != np.int64:
            raise ParameterError(f"labels of shape {known.shape} for {rows} inputs", "draw the mark anew")
        if self.classes is None or known.min() < -1 or known.max() >= self.classes:
            raise ParameterError("a label is no class of the task", "draw the mark anew")

    def _check_shown(self) -> None:
        """Refuse tensors that do not belong to these questions."""
        if self.shown is None:
            return
        count = self.m + len(self.ordinary)
        if self.format == 1 or len(self.shown) != count or self.shown.num_nodes > 2 * MOST_NODES:
            raise ParameterError(
                f"tensors of {len(self.shown)} graphs for {count} questions", "draw the mark anew"
            )
        if (
            self.labels is not None
            and self.level == "node"
            and self.shown.num_nodes != sum(part.num_nodes for part in (self.carriers, self.ordinary))
        ):
            raise ParameterError(
                "questions of a node task are shown with more or fewer nodes than they have",
                "use a transform that keeps the number of nodes",
            )
        looks = {encoding.encode(self.shown.take([number]).record()) for number in range(self.m)}
        if len(looks) < self.m:
            raise ParameterError(
                "some carriers look the same with their tensors", "draw the mark anew, without transform="
            )

    @property
    def m(self) -> int:
        """Number of carriers, and so of bits."""
        return int(self.context["m"])

    @property
    def format(self) -> int:
        """The format of this mark, which says how everything derives from the secret."""
        return int(self.context["format"])

    @property
    def level(self) -> str:
        """`graph` for a graph task, `node` for a node task."""
        return str(self.context["level"])

    @property
    def classes(self) -> int | None:
        """Number of classes of the task; None if it was not known when the mark was drawn."""
        if self.format == 1:  # known only where labels are read
            return next((r.classes for r in self.readings if r.classes is not None), None)
        known = self.context["classes"]
        return None if known is None else int(known)

    @property
    def shared_halves(self) -> bool:
        """Whether `logits` and `labels` are read along the same direction."""
        return "shared_halves" in self.context

    @property
    def complete(self) -> bool:
        """Whether this mark has a key; one with a score channel has none before it has a baseline."""
        return self.score_channel is None or self.baseline is not None

    @cached_property
    def bound(self) -> str:
        """Digest of the context that every derivation is bound to."""
        return bind(self.context)

    @cached_property
    def readings(self) -> list[Reading]:
        """The declared readings; the first is the default."""
        return [Reading.recall(record) for record in self.context["readings"]]

    @property
    def layer(self) -> str | None:
        """The hidden layer to observe, if a declared reading needs one."""
        return next((r.layer for r in self.readings if r.hidden), None)

    @cached_property
    def perceived(self) -> NDArray[np.float64]:
        """The normalised invariant of every carrier, in [0, 1]."""
        return self.scale(find_invariant(self.context["invariant"])(self.carriers.skeleton))

    @cached_property
    def bits(self) -> NDArray[np.int64]:
        """The balanced key, one bit per carrier.

        A mark with a score channel has one key for each set of baseline scores and none before, so that
        nobody can search for the two channels separately.

        Raises:
            ParameterError: If the mark has a score channel and no baseline yet.
        """
        if not self.complete:
            raise ParameterError(
                "this mark has no key yet: its score channel has no baseline scores",
                "train the model, then mark = mark.with_baseline(model, data); to verify, use the mark "
                "that was embedded (`invgnn embed` wrote it into its file)",
            )
        if self.context["key"] == "plain":
            return plain_bits(self.perceived).astype(np.int64)
        return self.secret.derive("bits", self.bound, *self._asked_about).balanced(self.m)

    @cached_property
    def questions(self) -> Questions:
        """All that a suspect is asked."""
        return Questions(self.carriers, self.ordinary, self.labels, self.shown)

    @cached_property
    def presented(self) -> tuple[Shown, Shown]:
        """Carriers and ordinary inputs as a model is given them, with all their tensors."""
        if self.shown is None:
            return self.carriers, self.ordinary
        return self.shown.take(np.arange(self.m)), self.shown.take(np.arange(self.m, len(self.shown)))

    @cached_property
    def _asked_about(self) -> list[str]:
        """Digests of the questions and of the baseline scores, which bits and score channel are bound to.

        Whoever changes a part of them gets other bits, so nobody can arrange inputs to fit known bits.
        """
        if self.format == 1:
            held = [self.carriers.digest_1(), self.ordinary.digest_1()]
        else:
            held = [self.questions.digest]
        return held if self.baseline is None else [*held, self.baseline.digest(self.format)]

    @cached_property
    def targets(self) -> NDArray[np.float64]:
        """What the model should perceive on each carrier, in [0, 1]."""
        if self.context["key"] == "plain":
            return self.perceived
        return keyed_targets(self.perceived, self.bits, self.context["gap"])

    @cached_property
    def direction(self) -> Direction:
        """The secret's ±1 vector for an access level and a width."""
        return directions(self.secret, self.bound, self.format, self.classes, self.shared_halves)

    def reading(self, access: Access | None = None) -> Reading:
        """Return the declared reading at an access level, by default the first.

        Raises:
            ParameterError: If the level was not declared when the mark was drawn.
        """
        for reading in self.readings:
            if access in {None, reading.access}:
                return reading
        declared = ", ".join(r.access for r in self.readings)
        raise ParameterError(
            f"access {access!r} was not declared when this mark was drawn",
            f"declared: {declared}; a reading chosen after looking at the suspect proves nothing",
        )

    @property
    def score_channel(self) -> int | None:
        """Number of features of the score channel; None without one."""
        size = self.context.get("function")
        return None if size is None else int(size)

    @cached_property
    def _order(self) -> NDArray[np.int64]:
        """The order of the questions, independent of the bits."""
        count = self.m + len(self.ordinary)
        return self.secret.derive("order", self.bound).permutation(count)

    @property
    def order(self) -> Ints:
        """The order of the questions: numbers below m are carriers, the others ordinary inputs."""
        return self._order

    @cached_property
    def asked(self) -> tuple[Shown, Ints | None]:
        """The questions in the order in which they are asked, and their classes."""
        return self.questions.in_order(self._order, self.level)

    @cached_property
    def digest(self) -> str:
        """Digest of the context and of all questions, without the secret."""
        if self.format != 1:
            return encoding.digest("invgnn/mark/2", [self.bound, *self._asked_about])
        return hashlib.sha256("".join([self.bound, *self._asked_about]).encode()).hexdigest()
