"""Measure what every edit and attack leaves of a mark, and of the task, on five settings and three seeds.

    make robustness      # run what is missing, draw the figures, fill docs/results/appendix/robustness.md

    --settings Cora/SGC Cora/GCN    only these      --changes prune KD-kill   names that start so
    --seeds 41                      only these      --rows FILE               another results file
    --denials                       what somebody who serves a copy can do at no cost, into denials.csv

Models are trained once and kept in `INVGNN_CACHE`, by default in the temporary folder of the machine.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from invgnn.bench import robustness_tables as tables
from invgnn.bench.robustness_rows import DENIALS, RELEASED, SETTINGS, in_order, index, settings_of
from invgnn.bench.script import run_benchmark
from invgnn.storage.tables import read_rows

SEEDS = (41, 42, 43)
RESULTS = Path(__file__).parent / "results"
PATH, DENIALS_PATH = RESULTS / "robustness.csv", RESULTS / "denials.csv"
FIGURES = "../figures/robustness-{}.svg"
"""Where figures lie, seen from the page."""


def grid(
    settings: Sequence[str] = SETTINGS, seeds: Sequence[int] = SEEDS, changes: Sequence[str] = ()
) -> Iterator[dict[str, Any]]:
    """Yield all trials: seeds in turn, so that an unfinished run is balanced, released models first.

    So workers train different models, and every later trial finds its model trained.
    """
    from invgnn.bench.changes import change_names

    usual = [name for name in change_names() if name not in DENIALS]
    chosen = [name for name in change_names() if name.startswith(tuple(changes))] if changes else usual
    for seed in seeds:
        for part in ([RELEASED], [name for name in chosen if name != RELEASED]):
            for setting in settings:
                for change in part:
                    yield {"setting": setting, "seed": seed, "change": change}


def trial(setting: str, seed: int, change: str) -> list[dict[str, Any]]:
    """Make one change to one released model and read the result."""
    from invgnn.bench.changes import measure_change

    return measure_change(setting, seed, change)


def summary(path: Path = PATH) -> str:
    """Return all tables, with the figures beside them."""
    from invgnn.bench.changes import change_names

    if not path.exists():
        return "Not measured yet: `make robustness`."
    rows = read_rows(path)
    found, settings, changes = index(rows), settings_of(rows), in_order(rows, change_names())
    parts = [
        "## Changes that were promised to hold\n",
        tables.promise_table(found, settings),
        f"\n## Evidence after edits\n\n![Evidence after edits]({FIGURES.format('edits')})\n",
        f"## All changes\n\n![Evidence after every change]({FIGURES.format('heat')})\n",
        "## Changes that remove the mark, and their cost in accuracy\n",
        tables.removal_table(found, settings, changes),
        f"\n![Evidence against accuracy]({FIGURES.format('cost')})\n",
        f"## The paper's four attacks\n\n![Before and after four attacks]({FIGURES.format('killshots')})\n",
        "## Least headroom\n",
        tables.headroom_table(found, settings),
        "\n## The owner's refresh\n",
        tables.refresh_table(found, settings),
        *(f"\n## {setting}\n\n{tables.change_table(found, setting, changes)}" for setting in settings),
        f"\n{tables.effort(rows)}",
        *_denials(),
    ]
    return "\n".join(parts)


def _denials() -> list[str]:
    """Return the table of what somebody who serves a copy can do at no cost, once it is measured."""
    if not DENIALS_PATH.exists():
        return []
    about = (
        "What somebody who serves a copy can do to it without losing accuracy (`make denials`, rows in "
        "`benchmarks/results/denials.csv`; marks of format 2, so these models differ from those above). "
        "Evidence in bits at `logits`, with columns matched to classes and the number of tests included: "
        "median over three seeds (least). A copy served as labels shows its top class only. *Refusal "
        "reported*: the verdict is `inconclusive` and gives the counts and Fisher's p."
    )
    return [f"\n## Served in another form\n\n{about}\n\n{tables.denial_table(read_rows(DENIALS_PATH))}"]


def main() -> None:
    """Parse the filters; the other options are those of every benchmark."""
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--settings", nargs="+", default=SETTINGS, choices=SETTINGS)
    parser.add_argument("--seeds", nargs="+", type=int, default=SEEDS)
    parser.add_argument("--changes", nargs="+", default=())
    parser.add_argument("--rows", type=Path, default=PATH)
    parser.add_argument("--denials", action="store_true")
    own, others = parser.parse_known_args()
    if own.denials:
        own.rows, own.changes = DENIALS_PATH, (RELEASED, "permute units", *DENIALS)
    planned = grid(own.settings, own.seeds, own.changes)
    run_benchmark(__doc__, own.rows, trial, planned, partial(summary, own.rows), others)


if __name__ == "__main__":
    main()
