"""What every edit and attack leaves of a mark, and of the task, on five settings and three seeds.

    make robustness      # run what is missing, draw the figures, fill docs/results/robustness.md

    --settings Cora/SGC Cora/GCN    only these      --changes prune KD-kill   names that start so
    --seeds 41                      only these      --rows FILE               another results file
    --denials                       what whoever serves a copy can do at no cost, into denials.csv

Models are trained once and kept in `INVGNN_CACHE`, by default in the machine's scratch folder.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import forgers
import robustness_tables as tables
import trials
from robustness_tables import RELEASED, SETTINGS

SEEDS = (41, 42, 43)
PATH = trials.RESULTS / "robustness.csv"
DENIALS = trials.RESULTS / "denials.csv"


def grid(
    settings: Sequence[str] = SETTINGS, seeds: Sequence[int] = SEEDS, changes: Sequence[str] = ()
) -> Iterator[dict[str, Any]]:
    """Seeds in turn, so that an unfinished run is balanced; of each, all released models first.

    So workers train different models, and every later trial finds its model trained.
    """
    from released import names

    usual = [name for name in names() if name not in tables.DENIALS]
    chosen = [name for name in names() if name.startswith(tuple(changes))] if changes else usual
    for seed in seeds:
        for part in ([RELEASED], [name for name in chosen if name != RELEASED]):
            for setting in settings:
                for change in part:
                    yield {"setting": setting, "seed": seed, "change": change}


def trial(setting: str, seed: int, change: str) -> list[dict[str, Any]]:
    """Make one change to one released model and read what came of it."""
    from released import measure

    return measure(setting, seed, change)


def summary(path: Path = PATH) -> str:
    """All tables, with the figures beside them."""
    if not path.exists():
        return "Not measured yet: `make robustness`."
    rows = trials.read(path)
    table, settings = tables.index(rows), [s for s in SETTINGS if any(r["setting"] == s for r in rows)]
    changes = tables.in_order(rows)
    parts = [
        "### What had to hold\n",
        tables.hard_table(table, settings),
        "\n### Under edits\n\n![Evidence under edits](robustness-edits.svg)\n",
        "### Everything at a glance\n\n![Evidence after every change](robustness-heat.svg)\n",
        "### What removes the mark, and what it costs\n",
        tables.removal_table(table, settings, changes),
        "\n![Evidence left against accuracy left](robustness-cost.svg)\n",
        "### The paper's four attacks\n\n![Before and after four attacks](robustness-killshots.svg)\n",
        "### Least headroom\n",
        tables.headroom_table(table, settings),
        "\n### The owner's refresh\n",
        tables.refresh_table(table, settings),
        *_forgers(),
        *(f"\n### {setting}\n\n{tables.change_table(table, setting, changes)}" for setting in settings),
        f"\n{tables.effort(rows)}",
        *_denials(),
    ]
    return "\n".join(parts)


def _denials() -> list[str]:
    """The table of what whoever serves a copy can do at no cost, once it is measured."""
    if not DENIALS.exists():
        return []
    about = (
        "What whoever serves a copy can do to it without losing accuracy (`make denials`, rows in "
        "`benchmarks/results/denials.csv`; marks of format 2, so these models differ from those above). "
        "Evidence in bits at `logits`, columns matched and paid for: median over three seeds (least). Of a "
        "copy served as labels only the top class is left. *Refusal named*: the verdict is `inconclusive` "
        "and gives the counts and Fisher's p."
    )
    shown = tables.denial_table(trials.read(DENIALS))
    return [f"\n### Served in another form\n\n{about}\n\n{shown}"]


def _forgers() -> list[str]:
    """The figure of the forger curves, once there are any."""
    if not forgers.PATH.exists() or not forgers.curves(trials.read(forgers.PATH)):
        return []
    about = "Nobody changes the model; carriers are sought that fit an innocent one ([more](forgeries.md))."
    return [f"\n### Forger curves\n\n{about}\n\n![Forger curves](robustness-forgers.svg)"]


def main() -> None:
    """The filters are ours, the rest is every benchmark's."""
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--settings", nargs="+", default=SETTINGS, choices=SETTINGS)
    parser.add_argument("--seeds", nargs="+", type=int, default=SEEDS)
    parser.add_argument("--changes", nargs="+", default=())
    parser.add_argument("--rows", type=Path, default=PATH)
    parser.add_argument("--denials", action="store_true")
    own, sys.argv[1:] = parser.parse_known_args()
    if own.denials:
        own.rows, own.changes = DENIALS, (RELEASED, "permute units", *tables.DENIALS)
    planned = grid(own.settings, own.seeds, own.changes)
    trials.main(__doc__, own.rows, trial, planned, partial(summary, own.rows))


if __name__ == "__main__":
    main()
