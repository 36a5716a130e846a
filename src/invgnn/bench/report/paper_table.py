"""The table of every published number beside ours."""

from __future__ import annotations

from collections.abc import Sequence

from invgnn.bench.report.beside import Beside
from invgnn.bench.report.evidence import Cell, Evidence
from invgnn.bench.report.table import Table

UNEXPLAINED = "not explained yet"


def paper_table(evidence: Evidence, found: Sequence[Beside]) -> Table:
    """Return every published number beside ours.

    Args:
        evidence: The rows.
        found: The published numbers beside ours.
    """
    rows = []
    for one in found:
        said = one.published
        apart = one.difference
        digits = max(1, len(said.value.partition(".")[2]))
        shown = (
            "" if apart is None else f"{apart:+.{digits}f}" if "e" not in said.value else f"{apart:+.1e}"
        )
        cells = (said.table.removeprefix("tab:"), said.setting, said.variant, said.quantity, one.scheme)
        rows.append(
            [
                *map(Cell, cells),
                Cell(str(said), (), said.number),
                evidence.cell(one.shown, one.rows, one.ours),
                evidence.cell(shown, one.rows, apart),
                Cell({None: "", True: "yes", False: "no"}[one.comes_out]),
                Cell(one.why or (UNEXPLAINED if one.comes_out is False else "")),
            ]
        )
    about = (
        "Every number of the paper's tables. The paper's intervals are mean ± 1.96 s/√3, which cover 81 % "
        "over three seeds; ours are Student's. InvGNN-WM stands twice: with the published weight, and in "
        "the best form found here. A number comes out if both intervals overlap; without intervals, if its "
        "printed digits agree; a limit, if ours is below it."
    )
    head = ("table", "setting", "changed", "quantity", "our row", "paper", "ours", "difference")
    more = ("comes out", "why not")
    return Table("paper", "Published numbers beside ours", about, (*head, *more), rows, text=5, tail=2)
