"""Measure what invgnn costs, row by row, and write the tables and figures of docs/results/cost.md.

    make bench-speed                              # all rows, about half an hour
    PYTHONPATH=benchmarks python -m speed audit   # one row anew

Without names an unfinished file of results is continued and a finished one begun anew.
"""

from __future__ import annotations

import argparse
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

from speed import kept
from speed.clock import Figure

Row = Callable[[], Iterator[Figure]]


def rows() -> dict[str, Row]:
    """Every row by name, in the order of the page."""
    from speed import auditing, drawing, embedding, growing, starting

    return {
        "carriers": drawing.carriers,
        "connectivity": drawing.connectivity,
        "mixing": embedding.mixing,
        "loop": embedding.loop,
        "audit": auditing.audit,
        "exact p": auditing.exact_p,
        "pooled null": auditing.pooled,
        "nodes": growing.nodes,
        "start": starting.start,
        "settings": embedding.settings,
        "growth": growing.growth,
    }


def measure(names: list[str]) -> None:
    """Measure the rows of these names, or those that are missing; keep each as soon as it is done."""
    import torch

    torch.set_num_threads(1)
    known, have = rows(), {f.row for f in kept.read()}
    wanted = names or [n for n in known if n not in have] or list(known)
    fresh = not names and wanted == list(known)
    figures = [kept.machine()] if fresh or "machine" not in have else kept.read()
    for name in wanted:
        began = time.perf_counter()
        figures = [f for f in figures if f.row != name] + list(known[name]())
        place = {row: number for number, row in enumerate(("machine", *known))}
        figures.sort(key=lambda f: place[f.row])
        kept.write(figures)
        print(f"{name}: {time.perf_counter() - began:.0f} s", flush=True)


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("rows", nargs="*", help="rows to measure anew; else what is missing, or all")
    parser.add_argument("--summary", action="store_true", help="measure nothing")
    parser.add_argument(
        "--into", type=Path, metavar="PAGE", help="put tables and figures into this document"
    )
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    if unknown := set(args.rows) - set(rows()):
        sys.exit(f"no row {', '.join(unknown)}; there are {', '.join(rows())}")
    if not args.summary:
        measure(args.rows)
    from speed import page

    table = page.summary()
    print(table)
    if args.into:
        before, _, rest = args.into.read_text().partition("<!-- table -->\n")
        after = rest.partition("<!-- end -->")[2]
        args.into.write_text(f"{before}<!-- table -->\n{table}\n<!-- end -->{after}")
        page.draw_figures(args.into.parent)


if __name__ == "__main__":
    main()
