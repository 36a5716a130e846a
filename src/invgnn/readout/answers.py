"""One answer per question, and the number of questions that the suspect refused."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from invgnn.errors import SuspectError
from invgnn.readout.reading import Reading, standardise

DIGITS = 40
"""Number of binary digits that a typical answer keeps."""
LEAST_ALIKE = 8
"""Smallest number of equal answers that count as a constant reply; task graphs may occur twice."""
REPEATS = 0.1
"""Equal answers count as refusals only if at most this share of the other answers are repeats."""


@dataclass(frozen=True, eq=False)
class Answers:
    """One number per carrier and per ordinary input, and how many of them the suspect refused.

    A refused answer is replaced by the median of the others. If answers hardly ever repeat, those that
    equal the most frequent answer to the last bit are counted too, because a suspect that returns a
    constant instead of an answer also refuses.

    Guarantee: both depend on the answers alone and never on the bits, so the null stays exact.

    Attributes:
        reading: Where the suspect was read.
        carriers: Answers on carriers.
        ordinary: Answers on ordinary inputs.
        refused_carriers: Number of refused answers on carriers.
        refused_ordinary: Number of refused answers on ordinary inputs.
        alike_carriers: Number of answers on carriers that equal the most frequent answer.
        alike_ordinary: Number of answers on ordinary inputs that equal the most frequent answer.
    """

    reading: Reading
    carriers: NDArray[np.float64]
    ordinary: NDArray[np.float64]
    refused_carriers: int = 0
    refused_ordinary: int = 0
    alike_carriers: int = 0
    alike_ordinary: int = 0

    @classmethod
    def of(cls, reading: Reading, values: NDArray[np.float64], m: int) -> Answers:
        """Build the answers of one reading; NaN and infinite values count as refused.

        Args:
            reading: Where the suspect was read.
            values: One number per question.
            m: Number of carriers, which come first.

        Raises:
            SuspectError: If no answer on an ordinary input is finite.
        """
        values = rounded(values)
        refused = ~np.isfinite(values)
        if refused[m:].all():
            raise SuspectError(
                f"the suspect returned no finite answer on any of {len(values) - m} ordinary inputs",
                "query a suspect that returns finite scores",
            )
        held, alike = without_gaps(values), _alike(values)
        counts = [int(part.sum()) for one in (refused, alike) for part in (one[:m], one[m:])]
        return cls(reading, held[:m], held[m:], *counts)

    @property
    def queries(self) -> int:
        """The number of graphs that the suspect was queried with."""
        return len(self.carriers) + len(self.ordinary)

    @property
    def standard(self) -> NDArray[np.float64]:
        """Carrier answers in standard deviations of the suspect's own ordinary answers."""
        if self.reading.binary:
            return self.carriers
        values = standardise(torch.from_numpy(self.carriers), torch.from_numpy(self.ordinary))
        return np.asarray(values.numpy(), dtype=np.float64)


def rounded(answers: NDArray[np.float64]) -> NDArray[np.float64]:
    """Round answers to 2^-40 of a typical one, so that ties do not depend on the order of sums in doubles.

    Scores that a model computes in single precision may still differ between processors.

    Typical is the median size of the finite answers other than 0: a single huge answer changes nothing.

    Guarantee: the rounding depends on the answers alone and never on the bits, so the null stays exact.
    """
    sizes = np.abs(answers[np.isfinite(answers) & (answers != 0)])
    if not len(sizes):
        return answers
    typical = float(np.quantile(sizes, 0.5, method="lower"))
    unit = math.ldexp(1.0, max(math.frexp(typical)[1] - DIGITS, -1022))
    with np.errstate(
        over="ignore"
    ):  # a quotient may be infinite: the answer is then far too large to round
        found = np.round(answers / unit) * unit
    return np.where(np.isfinite(found), found, answers)


def _alike(answers: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Return which answers equal the most frequent one, if it is frequent and others hardly ever repeat.

    Carriers and ordinary inputs are treated in the same way, so a test of which of them are refused stays
    exact.
    """
    values, counts = np.unique(answers[np.isfinite(answers)], return_counts=True)
    if not len(counts) or counts.max() < LEAST_ALIKE:
        return np.zeros(len(answers), dtype=bool)
    others = np.delete(counts, counts.argmax())
    if others.sum() > (1 + REPEATS) * len(others):
        return np.zeros(len(answers), dtype=bool)
    return np.asarray(answers == values[counts.argmax()])


def without_gaps(answers: NDArray[np.float64]) -> NDArray[np.float64]:
    """Replace NaN and infinite answers by the median of the others; all are 0 if none is finite.

    Guarantee: the choice depends on the answers alone and never on the bits, so the null stays exact.
    """
    gaps = ~np.isfinite(answers)
    if gaps.all():
        return np.zeros_like(answers)
    # the lower median is itself an answer, so labels stay labels
    return np.where(gaps, np.quantile(answers[~gaps], 0.5, method="lower"), answers)
