"""Every published number beside ours, with the difference and a sentence where it does not come out."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import mean

from invgnn.bench.grids.store import Row
from invgnn.bench.intervals import Interval
from invgnn.bench.report.evidence import Evidence, numbers
from invgnn.bench.report.paper import Explained, Published, read_paper, read_reasons
from invgnn.stats.laws import log_p_matches
from invgnn.stats.null import NULLS
from invgnn.storage.tables import read_rows

LITERAL, BEST = "InvGNN-WM (beta 1e-4)", "InvGNN-WM (best)"
OURS = {"OURS": (LITERAL, BEST)}
"""The paper's scheme has two rows here: with the published weight, and in the best form found."""
M, ALPHA, TAU = 128, 1e-6, 94
NOT_RUN = "not run yet"
CONSTANTS = {"mu_PL": "mu_envelope", "L_s": "l_s", "beta_wm": "beta_certified", "rho0": "rho_bank"}
"""Constants of the theorems, which `make theory` measures, and their columns."""
USUAL = ("m=128", "swap_cap=50 delta=0.1")
"""The carriers with which `make theory` estimates their correlation."""
MEASURED = {
    "Task ACC": ("test_accuracy", 100.0),
    "WM-ACC": ("share", 100.0),
    "Owner T": ("matches", 1.0),
    "Gap": ("matches", 1.0),
    "kappa_marg": ("margin", 1.0),
    "gamma": ("drift", 1.0),
    "Delta_theta": ("moved", 1.0),
}
"""Quantities that are figures of rows, and the factor to the paper's unit."""


@dataclass(frozen=True)
class Beside:
    """A published number and ours.

    Attributes:
        published: The published number.
        scheme: The scheme that ours was measured with, or what else gives it.
        ours: Our number in the unit of the paper; None if there is none.
        shown: Our number as text, or why there is none.
        half: Half the width of the interval of ours; None if it has none.
        rows: The rows that it follows from.
        why: A sentence where it does not come out; empty if there is none.
    """

    published: Published
    scheme: str
    ours: float | None
    shown: str
    half: float | None = None
    rows: tuple[Row, ...] = ()
    why: str = ""

    @property
    def difference(self) -> float | None:
        """Ours minus the published number."""
        number = self.published.number
        return None if self.ours is None or number is None else self.ours - number

    @property
    def comes_out(self) -> bool | None:
        """Whether the intervals of both overlap; without intervals, whether the printed digits agree.

        A limit such as `<1e-7` comes out if ours is below it. None if there is nothing to compare.
        """
        if self.ours is None:
            return None
        if self.published.number is None:
            return self.ours < float(self.published.value.lstrip("<"))
        apart = abs(self.ours - self.published.number)
        room = (self.half or 0.0) + float(self.published.half or 0.0)
        return apart <= room + self.published.unit / 2 + 1e-12


def beside(
    evidence: Evidence,
    published: Sequence[Published],
    theory: Sequence[dict[str, str]] = (),
    reasons: Sequence[Explained] = (),
) -> list[Beside]:
    """Return every published number with its counterpart.

    Args:
        evidence: Our rows.
        published: The numbers of the paper.
        theory: Rows of the constants of the theorems.
        reasons: Sentences for numbers that do not come out.
    """
    constants = {row["setting"]: row for row in theory}
    found = []
    for one in published:
        several = OURS.get(one.scheme, (one.scheme,)) if one.quantity in MEASURED else (one.scheme,)
        for scheme in several:
            made = _counterpart(evidence, one, scheme, constants)
            found.append(replace(made, why=_why(made, reasons)))
    return found


def all_beside(evidence: Evidence, paper: Path) -> list[Beside]:
    """Return every published number beside ours, with what stands in the files beside the paper's.

    Args:
        evidence: Our rows.
        paper: File of the published numbers; `differences.toml` and `results/theory.csv` lie beside it.
    """
    theory = paper.parent / "results" / "theory.csv"
    reasons = read_reasons(paper.parent / "differences.toml")
    return beside(evidence, read_paper(paper), read_rows(theory) if theory.exists() else (), reasons)


def _why(one: Beside, reasons: Sequence[Explained]) -> str:
    """Return the first sentence that fits a number that does not come out."""
    if one.comes_out is not False:
        return ""
    cells = {**vars(one.published), "row": one.scheme}
    fitting = (r.why for r in reasons if all(cells[name] in wanted for name, wanted in r.where.items()))
    return next(fitting, "")


def _counterpart(
    evidence: Evidence, one: Published, scheme: str, constants: dict[str, dict[str, str]]
) -> Beside:
    """Return the counterpart of one published number."""
    if one.quantity in CONSTANTS:
        if one.quantity == "rho0" and one.variant not in USUAL:
            return Beside(one, "make theory", None, "measured with the usual carriers only")
        text = constants.get(one.setting, {}).get(CONSTANTS[one.quantity], "")
        return Beside(one, "make theory", float(text) if text else None, text or NOT_RUN)
    if one.quantity in _EXACT:
        return Beside(one, "by formula", *_EXACT[one.quantity](one))
    if one.quantity == "Measured alpha":
        return _alpha(evidence, one)
    if one.quantity not in MEASURED:
        return Beside(one, scheme, None, "a tolerance that was chosen, not measured")
    rows = _rows(evidence, one, scheme)
    name, factor = MEASURED[one.quantity]
    values = list(numbers(rows, name).values())
    if one.quantity == "Gap":
        values = [value - NULLS["exact"].threshold(_m(one), ALPHA) for value in values]
    if not values:
        return Beside(one, scheme, None, NOT_RUN)
    interval, digits = Interval.of([factor * value for value in values]), _digits(one)
    width = "" if interval.half is None else f" ± {interval.half:.{digits}f}"
    shown = f"{interval.mean:.{digits}f}{width}"
    return Beside(one, scheme, interval.mean, shown, interval.half, tuple(rows))


def _rows(evidence: Evidence, one: Published, scheme: str) -> list[Row]:
    """Return the rows that answer a published number."""
    where = {"setting": one.setting, "scheme": scheme}
    if not one.variant:
        return evidence.find("mark", **where)
    if one.variant == "KD+WM":
        return evidence.find("refresh", **where)
    if "robustness" in one.table:
        return evidence.find("change", change=one.variant, thief="100%", **where)
    return evidence.find("variant", variant=one.variant, **where)


def _alpha(evidence: Evidence, one: Published) -> Beside:
    """Return the share of strangers that reach the threshold in unmarked models, with its limit."""
    rows = [] if one.variant else evidence.find("uniqueness", setting=one.setting, scheme=BEST)
    if not rows:
        rate = math.exp(log_p_matches(TAU, M, M // 2))
        return Beside(one, "exact law", rate, f"{rate:.1e} exactly at τ = {TAU}, balanced answers")
    hits, draws = (sum(int(row.get(name)) for row in rows) for name in ("innocent_hits", "draws"))
    limit = max(float(row.get("innocent_limit")) for row in rows)
    shown = f"{hits} of {draws:.0e}, below {limit:.1g} on each seed"
    return Beside(one, BEST, limit, shown, None, tuple(rows))


def _m(one: Published) -> int:
    """Return the number of carriers."""
    return int(one.variant.removeprefix("m=")) if one.variant.startswith("m=") else M


def _digits(one: Published) -> int:
    """Return as many digits as the paper prints."""
    return len(one.value.partition(".")[2]) if one.quantity != "Owner T" else 1


def _threshold(one: Published) -> tuple[float, str]:
    """Return the exact threshold."""
    tau = NULLS["exact"].threshold(_m(one), ALPHA)
    return float(tau), str(tau)


def _error(one: Published) -> tuple[float, str]:
    """Return the deviation at which Hoeffding's bound for independent bits is 1e-6."""
    found = math.sqrt(math.log(1 / ALPHA) / (2 * _m(one)))
    return found, f"{found:.3f}"


def _setting(one: Published) -> tuple[float, str]:
    """Return the setting of an edit: the published one, but our refresh learns from all soft targets."""
    value = "1.00" if one.variant == "KD+WM" else one.value
    return float(value), value


_EXACT: dict[str, Callable[[Published], tuple[float, str]]] = {
    "tau": _threshold,
    "eps_err": _error,
    "p_pr": _setting,
    "pi_ckd": _setting,
}
"""Quantities that follow without a trial."""


def summary(found: Sequence[Beside]) -> dict[str, tuple[int, int, int, float | None]]:
    """Return for every table: numbers, those with a counterpart, those that come out, mean difference.

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
            sum(bool(one.comes_out) for one in part),
            mean(apart) if apart else None,
        )
    return result
