"""Every published number beside ours, with the difference and a sentence where there is none."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import mean

from invgnn.bench.grids.store import Row
from invgnn.bench.intervals import Interval
from invgnn.bench.report.evidence import Evidence, numbers
from invgnn.bench.report.paper import Published
from invgnn.stats.laws import log_p_matches
from invgnn.stats.null import NULLS

LITERAL, BEST = "InvGNN-WM (beta 1e-4)", "InvGNN-WM (best)"
OURS = {"OURS": (LITERAL, BEST)}
"""The paper's scheme has two rows here: with the published weight, and in the best form found."""
M, ALPHA, TAU = 128, 1e-6, 94
NOT_RUN = "not run yet"
NOT_MEASURED = {
    "rho0": "cannot be estimated from 128 carriers; no guarantee uses it (Theory)",
    "eps_err": "follows neither of the paper's formulas (The paper)",
    "eps_task": "a tolerance that was chosen, not measured",
    "mu_PL": "benchmarks/results/theory.csv, column mu_envelope (make theory)",
    "L_s": "benchmarks/results/theory.csv, column l_s (make theory)",
    "beta_wm": "benchmarks/results/theory.csv, column beta_certified (make theory)",
    "gamma": "benchmarks/results/robustness.csv has the drift of our own mark (make robustness)",
    "p_pr": "a setting of the edit",
    "pi_ckd": "a setting of the edit",
    "Delta_theta": "not measured here: no guarantee uses it",
}
"""Why a published quantity has no counterpart among the rows."""


@dataclass(frozen=True)
class Beside:
    """A published number and ours.

    Attributes:
        published: The published number.
        scheme: The scheme that ours was measured with.
        ours: Our number in the unit of the paper; None if there is none.
        shown: Our number as text, or why there is none.
        rows: The rows that it follows from.
    """

    published: Published
    scheme: str
    ours: float | None
    shown: str
    rows: tuple[Row, ...] = ()

    @property
    def difference(self) -> float | None:
        """Ours minus the published number."""
        number = self.published.number
        return None if self.ours is None or number is None else self.ours - number


def beside(evidence: Evidence, published: Sequence[Published]) -> list[Beside]:
    """Return every published number with its counterpart.

    Args:
        evidence: Our rows.
        published: The numbers of the paper.
    """
    return [
        _counterpart(evidence, one, scheme)
        for one in published
        for scheme in (OURS.get(one.scheme, (one.scheme,)) if one.quantity not in _EXACT else (one.scheme,))
        if one.quantity not in NOT_MEASURED or scheme in (LITERAL, one.scheme)
    ]


def _counterpart(evidence: Evidence, one: Published, scheme: str) -> Beside:
    """Return the counterpart of one published number."""
    if one.quantity in NOT_MEASURED or (one.quantity == "kappa_marg" and "robustness" in one.table):
        return Beside(one, scheme, None, NOT_MEASURED.get(one.quantity, "see the table of invariants"))
    if one.quantity in _EXACT:
        value, shown = _EXACT[one.quantity](_m(one))
        return Beside(one, "exact law", value, shown)
    rows = _rows(evidence, one, scheme)
    values, factor = _figures(one, rows)
    if not values:
        return Beside(one, scheme, None, NOT_RUN)
    interval = Interval.of([factor * value for value in values])
    width = "" if interval.half is None else f" ± {interval.half:.{_digits(one)}f}"
    return Beside(one, scheme, interval.mean, f"{interval.mean:.{_digits(one)}f}{width}", tuple(rows))


def _rows(evidence: Evidence, one: Published, scheme: str) -> list[Row]:
    """Return the rows that answer a published number."""
    where = {"setting": one.setting, "scheme": scheme}
    if not one.variant:
        return evidence.find("mark", **where)
    if "robustness" in one.table:
        return evidence.find("change", change=one.variant, thief="100%", **where)
    return evidence.find("variant", variant=one.variant, **where)


def _figures(one: Published, rows: Sequence[Row]) -> tuple[list[float], float]:
    """Return a figure of every row, and the factor to the paper's unit."""
    name, factor = {
        "Task ACC": ("test_accuracy", 100.0),
        "WM-ACC": ("share", 100.0),
        "Owner T": ("matches", 1.0),
        "Gap": ("matches", 1.0),
        "kappa_marg": ("margin", 1.0),
    }[one.quantity]
    values = list(numbers(rows, name).values())
    if one.quantity == "Gap":
        tau = NULLS["exact"].threshold(_m(one), ALPHA)
        values = [value - tau for value in values]
    return values, factor


def _m(one: Published) -> int:
    """Return the number of carriers."""
    return int(one.variant.removeprefix("m=")) if one.variant.startswith("m=") else M


def _digits(one: Published) -> int:
    """Return as many digits as the paper prints."""
    return len(one.value.partition(".")[2]) if one.quantity != "Owner T" else 1


def _threshold(m: int) -> tuple[float, str]:
    """Return the exact threshold."""
    tau = NULLS["exact"].threshold(m, ALPHA)
    return float(tau), str(tau)


def _tail(m: int) -> tuple[float, str]:
    """Return the exact false-positive rate at the paper's threshold, for balanced answers."""
    p = math.exp(log_p_matches(TAU, m, m // 2))
    return p, f"{p:.1e} exactly at τ = {TAU}, balanced answers"


_EXACT: dict[str, Callable[[int], tuple[float, str]]] = {"tau": _threshold, "Measured alpha": _tail}
"""Quantities that an exact law gives without a trial."""


def summary(found: Sequence[Beside]) -> dict[str, tuple[int, int, float | None]]:
    """Return for every table: how many numbers it has, how many have a counterpart, the mean difference.

    Args:
        found: What `beside` returned.
    """
    result = {}
    for table in dict.fromkeys(one.published.table for one in found):
        part = [one for one in found if one.published.table == table]
        apart = [one.difference for one in part if one.difference is not None]
        result[table] = (
            len(part),
            sum(one.ours is not None for one in part),
            mean(apart) if apart else None,
        )
    return result
