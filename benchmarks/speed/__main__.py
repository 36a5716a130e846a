"""Measure what invgnn costs, part by part, and write the tables and figures of the cost pages.

    make bench-speed                        # all parts, about half an hour
    python -m benchmarks.speed audit        # measure one part again

Without names, an unfinished results file is completed and a finished one is measured again.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

from invgnn.bench.measurements import Measurement, describe_machine, read_measurements, write_measurements
from invgnn.bench.script import benchmark_parser, publish

from .page import FIGURES, PATH, draw_figures, summary


def parts() -> dict[str, Callable[[], Iterator[Measurement]]]:
    """Return every part by name, in the order of the page."""
    from . import auditing, drawing, embedding, growing, starting

    return {
        "carriers": drawing.carriers,
        "connectivity": drawing.connectivity,
        "training": embedding.training,
        "large": embedding.large,
        "own loops": embedding.own_loops,
        "loop": embedding.loop,
        "audit": auditing.audit,
        "exact p": auditing.exact_p,
        "pooled null": auditing.pooled,
        "nodes": growing.nodes,
        "start": starting.start,
        "growth": growing.growth,
    }


def measure(names: list[str], path: Path = PATH) -> None:
    """Measure the named parts, or those that are missing; keep each as soon as it is done."""
    import torch

    torch.set_num_threads(1)
    known, kept = parts(), read_measurements(path)
    have = {one.row for one in kept}
    wanted = names or [name for name in known if name not in have] or list(known)
    if wanted == list(known) or "machine" not in have:
        kept = [describe_machine()]
    place = {name: number for number, name in enumerate(("machine", *known))}
    for name in wanted:
        began = time.perf_counter()
        kept = [one for one in kept if one.row != name] + list(known[name]())
        kept.sort(key=lambda one: place[one.row])
        write_measurements(kept, path)
        print(f"{name}: {time.perf_counter() - began:.0f} s", flush=True)


def main() -> None:
    """Parse the command line, measure, and write tables and figures."""
    parser = benchmark_parser(__doc__)
    parser.add_argument("parts", nargs="*", help="parts to measure again; default: what is missing, or all")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    if unknown := set(options.parts) - set(parts()):
        parser.error(f"there is no part {', '.join(unknown)}; choose from {', '.join(parts())}")
    if not options.summary:
        measure(options.parts)
    publish(summary(), options.into)
    if options.into:
        draw_figures(FIGURES)


if __name__ == "__main__":
    main()
