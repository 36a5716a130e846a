"""Readable: how a mark asks a suspect and reads its answers, and how its score channel is set up."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from torch import nn

from invgnn.errors import DataError, ParameterError
from invgnn.nn.forward import Forward
from invgnn.readout.answers import Answers
from invgnn.readout.query import Suspect, ask
from invgnn.readout.reading import Access, Reading
from invgnn.readout.replies import Replies
from invgnn.stats.evidence import Evidence, evidence_of
from invgnn.watermark.baseline import Baseline
from invgnn.watermark.derived import Derived
from invgnn.watermark.inputs import Inputs
from invgnn.watermark.reference import Reference
from invgnn.watermark.score_channel import ScoreChannel


@dataclass(frozen=True, eq=False)
class Readable(Derived):
    """A mark that can be read; see `Watermark`."""

    def read(
        self, suspect: Suspect, access: Access | None = None, forward: Forward | None = None
    ) -> Answers:
        """Ask a suspect and read its replies at one access level.

        Columns are taken for the task's classes in their order. `verify` also finds out which column is
        which class.

        Args:
            suspect: A module, or a function from a PyG batch to scores.
            access: A declared level; by default the first.
            forward: How to call an unusual model.

        Returns:
            One answer per carrier and per ordinary input.

        Raises:
            SuspectError: If the suspect cannot be read at this level or answers no ordinary input.
        """
        reading = self.reading(access)
        replies = self.ask(suspect, [reading], forward)
        return self.answers(replies, reading)

    def ask(
        self, suspect: Suspect, readings: Sequence[Reading] | None = None, forward: Forward | None = None
    ) -> Replies:
        """Ask a suspect about carriers and ordinary inputs, in the secret's order, once for all readings.

        The questions are decoded from the bytes that the bits are bound to; every suspect gets copies.

        Args:
            suspect: A module, or a function from a PyG batch to scores.
            readings: The readings to prepare for; by default all declared ones.
            forward: How to call an unusual model.

        Returns:
            The replies.
        """
        asked, labels = self.asked
        readings = self.readings if readings is None else readings
        replies = ask(suspect, asked, readings, forward or self.forward)
        return replies.labelled(labels, self.classes)

    def answers(self, replies: Replies, reading: Reading, columns: Sequence[int] | None = None) -> Answers:
        """Read one answer per question from a suspect's replies.

        Args:
            replies: What `ask` returned.
            reading: Where to read.
            columns: Which column of the scores is which class; by default in order.
        """
        found = np.empty(len(self._order))
        found[self._order] = replies.answers(reading, self.direction, columns)
        return Answers.of(reading, found, self.m)

    def evidence(self, answers: Answers) -> Evidence:
        """Return the evidence in a suspect's answers under the declared statistic.

        A plain key has no exact law: then only the counts mean something, and the evidence is 0 bits.
        """
        threshold = 0.5 if answers.reading.binary else None
        found = evidence_of(answers.carriers, self.bits, self.context["statistic"], threshold)
        return found if self.context["key"] == "keyed" else replace(found, log_p=0.0, exact=False)

    def with_baseline(self, model: nn.Module, data: Any) -> Self:
        """Return the same mark, bound to the scores of a model before the mark is embedded.

        Embed the returned mark and store it. It cannot be made again: key and direction derive from the
        baseline scores.

        Args:
            model: A model that has learnt its task.
            data: The data that the mark was drawn from.

        Raises:
            ParameterError: If the mark has no score channel, or a baseline already.
            DataError: If these are other data.
        """
        if self.baseline is not None:
            raise ParameterError("this mark has a baseline already", "embed it as it is, or draw another")
        self._features(data)
        return replace(self, baseline=Baseline.of(model, data, self.forward, self.format))

    def channel(self, data: Any) -> ScoreChannel:
        """Return the score channel on the data that this mark was drawn from.

        Raises:
            ParameterError: If the mark has no score channel, or no baseline yet.
            DataError: If these are other data.
        """
        features = self._features(data)
        if self.baseline is None:
            raise ParameterError(
                "this mark has no baseline scores",
                "to embed it, train the model, then mark = mark.with_baseline(model, data); to verify, use "
                "the mark that was embedded (`invgnn embed` wrote it into its file)",
            )
        inputs = Inputs.of(data)
        if self.baseline.inputs != inputs.digest(self.format):
            raise DataError(
                "these are not the inputs that the baseline scores belong to",
                "pass the same training data, every tensor as it was",
            )
        stream = self.secret.derive("function", self.bound, *self._asked_about)
        before, strength = self.baseline.scores, self.recipe.score_shift
        return ScoreChannel.draw(stream, self.direction, inputs, features, strength, before, self.format)

    def _features(self, data: Any) -> int:
        """Return the number of features, if these are the right data."""
        if self.score_channel is None:
            raise ParameterError("this mark has no score channel", "draw it with score_channel=128")
        names = () if self.shown is None else tuple(self.shown.more)
        keep = self.carriers.is_directed
        found = Reference.of(data, self.format, tensors=names, keep_directions=keep)
        if found.digest != self.context["reference"]:
            raise DataError(
                "these are not the inputs that the mark was drawn from", "pass the same training data"
            )
        return self.score_channel

    def fresh(self) -> Self:
        """Return the same mark with nothing derived yet, so that a judge derives everything anew."""
        return replace(self, context=copy.deepcopy(self.context))

    def replace(self, **changes: Any) -> Self:
        """Return the same mark with another `recipe` or `forward`.

        Raises:
            ParameterError: If any other field is given; these are bound to the secret.
        """
        extra = set(changes) - {"recipe", "forward"}
        if extra:
            raise ParameterError(f"{', '.join(sorted(extra))} is bound to the secret", "draw a new mark")
        return replace(self, **changes)
