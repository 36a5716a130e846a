"""Testing many secrets until one fits: the gain is log2 of the number of secrets, and no more."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import nn

from invgnn.attacks.forgery.forgery import Forged, Forgery, Naive
from invgnn.audit.verify import verify
from invgnn.graphs.disjoint_union import Floats
from invgnn.nn.forward import evaluation_mode, observe, to_batch, weight_of
from invgnn.readout.reading import answer
from invgnn.stats import laws
from invgnn.stats.evidence import evidence_of
from invgnn.training.tasks import Task
from invgnn.watermark.mark import Watermark


def grinding_law(m: int, secrets: int) -> tuple[Floats, Floats]:
    """Return the possible evidence bits of T, and the probability of each for the best of many secrets.

    Guarantee: exact for the statistic `matches`, a suspect whose answers have no ties, and secrets that are
    tested independently.

    Args:
        m: Number of carriers.
        secrets: Number of secrets.
    """
    log_p = np.array([laws.log_p_matches(t, m, m // 2) for t in range(0, m + 1, 2)])
    with np.errstate(divide="ignore"):  # T >= 0 is certain
        tails = -np.expm1(secrets * np.log1p(-np.exp(log_p)))
    return -log_p / math.log(2), -np.diff(tails, append=0.0)


def best_bits(m: int, secrets: int) -> float:
    """Return the expected evidence bits of the best of many secrets, about log2 of their number.

    Args:
        m: Number of carriers.
        secrets: Number of secrets.
    """
    bits, mass = grinding_law(m, secrets)
    return float(bits @ mass)


class GrindSecrets(Forgery):
    """Draw secrets until the answers of an unmarked model fit one of them well.

    Args:
        secrets: Number of secrets.
        m: Number of carriers.
        alpha: Significance level.
    """

    fools = "p ≤ α, with a secret that is revealed only afterwards"
    stopped = "owned requires 80 bits, or a claim older than the suspect; `suspects=` deducts log2 N"

    def __init__(self, secrets: int = 4096, m: int = 128, alpha: float = 1e-2) -> None:
        self.secrets, self.m, self.alpha = secrets, m, alpha

    def tries(self, model: nn.Module, task: Task) -> Iterator[tuple[float, Watermark]]:
        """Yield, for one carrier set and many secrets, the log p-value and the mark of each secret.

        Args:
            model: The model.
            task: Its task.
        """
        how: dict[str, Any] = {"access": "embedding", "statistic": "matches"}
        base = Watermark.draw(self.secret("base"), task.data, m=self.m, **how)
        with evaluation_mode(model), torch.no_grad():
            seen = observe(model, to_batch(base.carriers, weight_of(model)), base.layer)
        for number in range(self.secrets):
            mark = replace(base, secret=self.secret(number))
            said = answer(seen, mark.reading(), mark.direction).numpy()
            yield evidence_of(said, mark.bits, "matches").log_p, mark

    def forge(self, model: nn.Module, task: Task) -> Forged:
        """Keep the secret with the smallest p-value."""
        log_p, mark = min(self.tries(model, task), key=lambda found: found[0])
        return Forged(
            accused=model,
            naive=Naive(self.fools, log_p, self.alpha),
            attempts=(
                lambda: verify(model, mark, self.alpha),
                lambda: verify(model, mark, self.alpha, suspects=self.secrets),
            ),
            tried=self.secrets,
            mark=mark,
        )

    def __repr__(self) -> str:
        """Return the name in tables and test ids."""
        return f"grind {self.secrets} secrets"
