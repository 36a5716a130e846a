"""Many readings of one suspect, of which the best is presented: the number of tests is deducted."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import islice, product
from typing import Any

from torch import nn

from invgnn.attacks.forgery.forgery import KEPT, Forged, Forgery, Naive
from invgnn.audit.verify import verify
from invgnn.graphs.invariants import INVARIANTS
from invgnn.readout.reading import Reading
from invgnn.stats.evidence import STATISTICS
from invgnn.training.tasks import Task
from invgnn.watermark.mark import Watermark

GAPS = (0.25, 0.1)


class PickBest(Forgery):
    """Test statistics, readings, gaps and invariants until some p-value is small, and present that one.

    Args:
        looks: Largest number of tests.
        m: Number of carriers.
        alpha: Significance level.
    """

    fools = "p ≤ α, statistic and reading named afterwards"
    stopped = "all are bound, so another choice gives another key; `suspects=` deducts log2 of the tests"

    def __init__(self, looks: int = 54, m: int = 32, alpha: float = 0.05) -> None:
        self.looks, self.m, self.alpha = looks, m, alpha

    def forge(self, model: nn.Module, task: Task) -> Forged:
        """Run all tests and keep the smallest p-value."""
        first = Watermark.draw(self.secret(), task.data, m=self.m, access="embedding", sampler=KEPT)
        ways = islice(_ways(), self.looks)
        marks = [replace(first, context={**first.context, **way}) for way in ways]
        found = [mark.evidence(mark.read(model)).log_p for mark in marks]
        log_p, mark = min(zip(found, marks, strict=True), key=lambda pair: pair[0])
        attempts = (
            lambda: verify(model, mark, self.alpha),
            lambda: verify(model, mark, self.alpha, suspects=len(marks)),
        )
        return Forged(
            accused=model,
            naive=Naive(self.fools, log_p, self.alpha),
            attempts=attempts,
            tried=len(marks),
            mark=mark,
        )

    def __repr__(self) -> str:
        """Return the name in tables and test ids."""
        return f"pick the best of {self.looks} looks"


def _ways() -> Iterator[dict[str, Any]]:
    """Yield changes of the context, each of which gives another mark on the same carriers."""
    readings = (Reading("embedding"), Reading("logits"), Reading("logits", feature="confidence"))
    for gap, invariant, reading, statistic in product(GAPS, INVARIANTS, readings, STATISTICS):
        yield {
            "gap": gap,
            "invariant": invariant,
            "readings": [reading.record()],
            "statistic": statistic,
        }
