"""How far a forger gets who searches for carriers: the paper's forger curves."""

from __future__ import annotations

from typing import Any

from torch import nn

from invgnn.attacks.forgery.guided import Gp, Tpe
from invgnn.attacks.forgery.hunt import Hunt
from invgnn.attacks.forgery.search import Cma, Evolution, Random, Search
from invgnn.bench.released import unmarked
from invgnn.errors import ParameterError
from invgnn.stats.laws import evidence_bits, log_p_matches
from invgnn.stats.null import NULLS
from invgnn.training.tasks import Task, load_task, parse_setting

COLUMNS = ("after", "naive_bits", "naive_passes", "bits")
CHECKPOINTS = (10, 30, 100, 300, 1000, 3000, 10_000, 30_000, 100_000)
"""Numbers of audits after which the best score so far is noted."""
SEARCHES: dict[str, type[Search]] = {
    "random": Random,
    "evolution": Evolution,
    "CMA": Cma,
    "TPE": Tpe,
    "Gaussian process": Gp,
}


def measure_search(setting: str, seed: int, search: str, epochs: int, audits: int) -> dict[str, Any]:
    """Search for carriers on which an unmarked model answers as a mark wants.

    Args:
        setting: Task and backbone.
        seed: Seed of the split, of the accused model and of the search.
        search: Name of the strategy, one of `SEARCHES`.
        epochs: Number of epochs of the accused model.
        audits: How many sets of carriers the forger may submit.

    Returns:
        The best evidence after so many audits, a list in each column: by the naive check of plain bits,
        whether it passes at 1e-6, and against keyed bits, where the number of tests is not paid for.
        `after` has the numbers of audits.

    Raises:
        ParameterError: If there is no such strategy.
    """
    if search not in SEARCHES:
        raise ParameterError(f"there is no search {search!r}", f"choose among {', '.join(SEARCHES)}")
    task = load_task(parse_setting(setting)[0], seed)
    hunt = Hunt(SEARCHES[search](), audits)
    hunt.seed = seed
    return curve(hunt, unmarked(setting, seed, epochs), task)


def curve(hunt: Hunt, model: nn.Module, task: Task) -> dict[str, Any]:
    """Return the best evidence of a search after every checkpoint.

    Args:
        hunt: The search.
        model: The accused model.
        task: Its task.
    """
    best = {key: hunt.hunt(hunt.ground(model, task, key)).best for key in ("plain", "keyed")}
    after = [n for n in CHECKPOINTS if n < hunt.budget] + [hunt.budget]
    law, m = NULLS["binomial"], hunt.m
    plain, keyed = ([int(best[key][n - 1]) for n in after] for key in ("plain", "keyed"))
    return {
        "after": _listed(after),
        "naive_bits": _listed(round(evidence_bits(law.log_tail(m, t)), 2) for t in plain),
        "naive_passes": _listed(int(t >= law.threshold(m, 1e-6)) for t in plain),
        "bits": _listed(round(evidence_bits(log_p_matches(t, m, m // 2)), 2) for t in keyed),
    }


def _listed(values: Any) -> str:
    """Return numbers as text with spaces between them."""
    return " ".join(map(str, values))
