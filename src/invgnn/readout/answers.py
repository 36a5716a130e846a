"""One answer per question, and how many questions the suspect refused."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from invgnn.errors import SuspectError
from invgnn.readout.reading import Reading, standardise

DIGITS = 40
"""Binary digits that an answer keeps, counted from the largest answer."""
LEAST_ALIKE = 8
"""How many equal answers it takes for them to count as a constant reply: task graphs may occur twice."""
REPEATS = 0.1
"""The largest share of answers, the commonest aside, that may repeat another for repeats to count."""


@dataclass(frozen=True, eq=False)
class Answers:
    """One number per carrier and per ordinary input, and how many of them the suspect refused.

    Where answers hardly ever repeat, `alike` counts those that equal the commonest answer to the last bit:
    a suspect that gives a constant instead of an answer refuses too.

    A refused answer stands at the median of the others: the choice looks at the answers alone, never at the
    bits, so the null stays exact.
    """

    reading: Reading
    carriers: NDArray[np.float64]
    ordinary: NDArray[np.float64]
    refused_carriers: int = 0
    refused_ordinary: int = 0
    alike_carriers: int = 0
    alike_ordinary: int = 0

    @classmethod
    def of(cls, reading: Reading, said: NDArray[np.float64], m: int) -> Answers:
        """Return the answers, the first m of them on carriers; NaN and infinite ones were refused."""
        said = rounded(said)
        refused = ~np.isfinite(said)
        if refused[m:].all():
            raise SuspectError(
                f"the suspect gives no finite answer on any of {len(said) - m} ordinary inputs",
                "a suspect must give finite scores; nothing can be read from these",
            )
        held, alike = without_gaps(said), _alike(said)
        counts = [int(part.sum()) for one in (refused, alike) for part in (one[:m], one[m:])]
        return cls(reading, held[:m], held[m:], *counts)

    @property
    def queries(self) -> int:
        """How many graphs the suspect was asked about."""
        return len(self.carriers) + len(self.ordinary)

    @property
    def standard(self) -> NDArray[np.float64]:
        """Carrier answers in standard deviations of the suspect's own ordinary answers."""
        if self.reading.binary:
            return self.carriers
        values = standardise(torch.from_numpy(self.carriers), torch.from_numpy(self.ordinary))
        return np.asarray(values.numpy(), dtype=np.float64)


def rounded(answers: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return answers rounded to 2^-40 of the largest, so that ties do not depend on a processor's rounding.

    Guarantee: the rounding looks at the answers alone, never at the bits, so the null stays exact.
    """
    largest = float(
        np.abs(answers, where=np.isfinite(answers), out=np.zeros_like(answers)).max(initial=0.0)
    )
    if largest == 0.0:
        return answers
    unit = math.ldexp(1.0, max(math.frexp(largest)[1] - DIGITS, -1022))
    return np.asarray(np.round(answers / unit) * unit)


def _alike(said: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Which answers are the commonest one, if it occurs often and others hardly ever repeat.

    Carriers and ordinary inputs count alike in this, so a test of which of them are refused stays exact.
    """
    values, counts = np.unique(said[np.isfinite(said)], return_counts=True)
    if not len(counts) or counts.max() < LEAST_ALIKE:
        return np.zeros(len(said), dtype=bool)
    others = np.delete(counts, counts.argmax())
    if others.sum() > (1 + REPEATS) * len(others):
        return np.zeros(len(said), dtype=bool)
    return np.asarray(said == values[counts.argmax()])


def without_gaps(answers: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return answers with NaN and infinite ones at the median of the others; all are 0 if none is finite.

    Guarantee: the choice looks at the answers alone, never at the bits, so the null stays exact.
    """
    gaps = ~np.isfinite(answers)
    if gaps.all():
        return np.zeros_like(answers)
    # the lower median, itself an answer: labels stay labels
    return np.where(gaps, np.quantile(answers[~gaps], 0.5, method="lower"), answers)
