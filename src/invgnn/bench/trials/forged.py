"""One forgery under the rules of one scheme, against a model that was never marked."""

from __future__ import annotations

import math
from typing import Any

from invgnn.bench.marked import ALPHA, unmarked_models
from invgnn.bench.released import unmarked
from invgnn.bench.trials.objects import find_forgery, find_scheme
from invgnn.errors import SchemeError
from invgnn.stats.laws import evidence_bits, log_p_times
from invgnn.training.tasks import load_task, parse_setting

COLUMNS = ("naive_bits", "naive_passes", "bits", "tried", "refused", "succeeds")


def measure_forgery(
    setting: str, seed: int, scheme: str, forgery: str, epochs: int, controls: int
) -> dict[str, Any]:
    """Claim an innocent model with a forged mark.

    Args:
        setting: Task and backbone.
        seed: Seed of the split and of the accused model.
        scheme: Name of the scheme.
        forgery: Name of the forgery.
        epochs: Number of epochs of the accused model.
        controls: Number of unmarked models, for schemes without an exact law.

    Returns:
        Evidence by the check that the forger wants to be made, and by the scheme's own rules with all tries
        paid for.

    Raises:
        SchemeError: If the forgery does not apply to the scheme.
    """
    chosen, attempt = find_scheme(scheme), find_forgery(forgery)
    if not attempt.applies(chosen):
        raise SchemeError(f"the forgery {forgery!r} does not apply to {scheme}", "choose another forgery")
    task, accused = load_task(parse_setting(setting)[0], seed), unmarked(setting, seed, epochs)
    fitted = chosen.suited(accused, task)
    made = attempt.forge(fitted, accused, task, unmarked_models(setting, epochs, controls))
    real = 0.0
    if made.found is not None and made.found.log_p is not None:
        real = evidence_bits(log_p_times(made.found.log_p, made.tried))
    return {
        "naive_bits": round(evidence_bits(made.naive), 2),
        "naive_passes": int(made.naive <= math.log(ALPHA)),
        "bits": round(real, 2),
        "tried": made.tried,
        "refused": " ".join(made.refusal.split()),
        "succeeds": int(made.succeeds(ALPHA)),
    }
