"""Evidence that is certified against every small change of the weights, by reading under Gaussian noise.

A suspect theta is read as theta + eps, many times, where eps ~ N(0, sigma² S²) and S has one scale per
tensor. Any event has a probability q(theta) under this noise, and Phi^-1(q) changes by at most
||S^-1 delta|| / sigma when theta moves by delta (Neyman and Pearson). So an event that occurs in nearly all
draws at theta occurs in most of them everywhere within a radius. Thresholds and centring need no special
treatment: they are computed from theta + eps too.

This module takes the median of the p-values over the draws; `votes` smooths every bit separately.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np
import torch
from numpy.typing import ArrayLike
from scipy.special import betaincinv, ndtr, ndtri
from torch import Tensor, nn

from invgnn.errors import ParameterError, SuspectError
from invgnn.graphs.disjoint_union import Floats
from invgnn.readout.answers import Answers
from invgnn.readout.reading import Access
from invgnn.stats import laws
from invgnn.theory.statement import Assumption, Statement
from invgnn.watermark.mark import Watermark

Said = TypeVar("Said")
DRAWS = 200
DELTA = 1e-3
RESTS_ON = (
    Assumption("only parameters change: buffers, such as running means, and the architecture do not"),
    Assumption("the verifier draws the noise after the suspect is fixed, and only once"),
)


@dataclass(frozen=True, eq=False)
class Noise:
    """Gaussian noise for every parameter: sigma times one scale per tensor, by default 1.

    Radii are in the norm sqrt(sum over tensors of ||delta||² / scale²): the plain l2 norm if all scales are
    1, and changes relative to the typical size of a weight with `Noise.like`. Scales must be fixed in
    advance. Scales of the marked original would carry its bits into the reading and void the null. Scales
    of the suspect would change with it and void the certificate.

    Attributes:
        sigma: Standard deviation, in units of the scales.
        scales: The scale of every tensor, by name.
    """

    sigma: float
    scales: Mapping[str, float] | None = None

    def __post_init__(self) -> None:
        if not (self.sigma > 0 and all(scale > 0 for scale in (self.scales or {}).values())):
            raise ParameterError(
                f"sigma is {self.sigma}, or a scale is not positive", "use a sigma and scales above 0"
            )

    @classmethod
    def like(cls, model: nn.Module, sigma: float) -> Noise:
        """Return noise relative to the mean absolute weight of every tensor of a *fresh or unmarked* model.

        Args:
            model: The fresh or unmarked model.
            sigma: Standard deviation, relative to the mean absolute weight.
        """
        sizes = {name: float(p.detach().abs().mean()) for name, p in model.named_parameters()}
        usual = float(np.mean([size for size in sizes.values() if size > 0] or [1.0]))
        return cls(sigma, {name: size or usual for name, size in sizes.items()})

    def scale(self, name: str) -> float:
        """Return the scale of one tensor.

        Raises:
            ParameterError: If there are scales, and none for this tensor.
        """
        if self.scales is None:
            return 1.0
        if name not in self.scales:
            raise ParameterError(
                f"there is no scale for the tensor {name!r}", "use Noise.like with this architecture"
            )
        return self.scales[name]

    def norm(self, shift: Mapping[str, Tensor]) -> float:
        """Return the size of a change of the parameters, in the norm of the radii."""
        parts = ((value.detach().double() / self.scale(name)).square() for name, value in shift.items())
        return math.sqrt(sum(float(part.sum()) for part in parts))


def under_noise(
    model: nn.Module, say: Callable[[nn.Module], Said], noise: Noise, draws: int, rng: np.random.Generator
) -> Iterator[Said]:
    """Yield the result of a function on a noisy copy of the model for each of many draws.

    Args:
        model: The model; left unchanged.
        say: Maps a noisy copy to a result.
        noise: The noise.
        draws: Number of draws.
        rng: Source of randomness.

    Raises:
        ParameterError: If `draws` is below 1.
    """
    if draws < 1:
        raise ParameterError(f"the number of noise draws is {draws}", "use at least 1; 200 is the default")
    twin, source = copy.deepcopy(model), torch.Generator().manual_seed(int(rng.integers(2**63)))
    weights = [(noise.sigma * noise.scale(name), p) for name, p in model.named_parameters()]
    for _ in range(draws):
        with torch.no_grad():
            for (size, p), noisy in zip(weights, twin.parameters(), strict=True):
                noisy.copy_(p + size * torch.randn(p.shape, generator=source, dtype=p.dtype).to(p.device))
        yield say(twin)


def read_noisy(
    mark: Watermark,
    suspect: nn.Module,
    noise: Noise,
    rng: np.random.Generator,
    *,
    draws: int = DRAWS,
    access: Access | None = None,
) -> list[Answers | None]:
    """Return the suspect's answers at every noise draw, None where the noise made it unreadable (NaN).

    Args:
        mark: The mark.
        suspect: The suspect.
        noise: The noise.
        rng: Source of randomness.
        draws: Number of draws.
        access: The reading; by default the first that the mark declares.

    Raises:
        SuspectError: If no draw can be read, nor the suspect without noise.
    """

    def say(noisy: nn.Module) -> Answers | None:
        try:
            return mark.read(noisy, access)
        except SuspectError:
            return None

    seen = [*under_noise(suspect, say, noise, draws, rng)]
    if all(answers is None for answers in seen):
        mark.read(suspect, access)  # raises if the suspect cannot be read without noise either
    return seen


def noisy_log_p(mark: Watermark, seen: Iterable[Answers | None]) -> Floats:
    """Return the log p of the mark's own statistic at every noise draw, NaN at an unreadable one.

    Args:
        mark: The mark.
        seen: Answers of `read_noisy`.
    """
    return np.array([math.nan if answers is None else mark.evidence(answers).log_p for answers in seen])


def median_log_p(log_ps: Floats) -> float:
    """Combine many log p-values into one: the level that more than half of them reach, corrected.

    Guarantee: valid if each of them is, for any dependence: k of n reach a level u with probability at most
    n u / k (Markov), and the factor n / k, below 2, is included. A suspect that is independent of the bits
    stays independent under noise that does not depend on them, so each value of `noisy_log_p` is valid. An
    unreadable draw (NaN) counts as a draw without evidence. Void if the noise was drawn repeatedly and
    chosen by its result.
    """
    return min(0.0, float(_sorted(log_ps)[majority(log_ps.size) - 1]) + _paid(log_ps.size))


@dataclass(frozen=True, eq=False)
class SmoothedEvidence(Statement):
    """The evidence in `median_log_p` that is left within a radius of the model it was certified for.

    Guarantee: for one radius (or one alpha) chosen beforehand, with probability at least 1 - delta over
    these draws: after *any* change of the parameters of at most that norm, a verifier who takes `reads`
    draws of fresh noise finds at least this evidence with probability at least 1 - delta.

    Attributes:
        log_ps: One value per draw, NaN where the model could not be read (a draw without evidence).
        noise: The noise.
        reads: Number of draws that the verifier takes.
        delta: Error probability of the certificate, and of the verifier's draws.
    """

    log_ps: Floats = field(repr=False)
    noise: Noise = field(repr=False)
    reads: int = DRAWS
    delta: float = DELTA
    assumptions: tuple[Assumption, ...] = field(default=RESTS_ON, kw_only=True)

    def __post_init__(self) -> None:
        if self.log_ps.ndim != 1 or not self.log_ps.size or (self.log_ps > 0).any():
            raise ParameterError(
                f"log p-values of shape {self.log_ps.shape}, or above 0", "pass one per draw, at most 0"
            )

    @property
    def unreadable(self) -> int:
        """Number of draws that could not be read."""
        return int(np.isnan(self.log_ps).sum())

    def evidence(self, radius: float) -> float:
        """Return the certified evidence bits at a radius, 0 where nothing is certified.

        The j-th best draw is reached with probability at least Clopper and Pearson's bound for j.
        """
        draws = self.log_ps.size
        needed = ndtr(ndtri(share_for_majority(self.reads, self.delta)) + radius / self.noise.sigma)
        enough = lower_share(np.arange(1, draws + 1), draws, self.delta) >= needed
        if not enough.any():
            return 0.0
        return laws.evidence_bits(float(_sorted(self.log_ps)[enough.argmax()]) + _paid(self.reads))

    def radius(self, alpha: float) -> float:
        """Return the largest radius at which p <= alpha is certified, below 0 if there is none."""
        reached = int((self.log_ps + _paid(self.reads) <= math.log(alpha)).sum())
        least = float(lower_share(reached, self.log_ps.size, self.delta))
        needed = share_for_majority(self.reads, self.delta)
        return float(self.noise.sigma * (ndtri(least) - ndtri(needed)))


def majority(draws: int) -> int:
    """Return the smallest number of draws that is more than half."""
    return draws // 2 + 1


def lower_share(ones: ArrayLike, draws: int, delta: float) -> Floats:
    """Return Clopper-Pearson lower bounds, each of level 1 - delta, on the probabilities of events.

    Args:
        ones: How often each event occurred.
        draws: Number of draws.
        delta: Error probability of each bound.
    """
    x = np.asarray(ones, dtype=np.float64)
    return np.where(x > 0, betaincinv(np.maximum(x, 1), draws - x + 1, delta), 0.0)


def share_for_majority(reads: int, delta: float) -> float:
    """Return the smallest probability of an event that occurs in most draws with probability 1 - delta.

    Args:
        reads: Number of draws.
        delta: Error probability.

    Raises:
        ParameterError: If there is no draw, or delta is not inside (0, 1).
    """
    if reads < 1 or not 0 < delta < 1:
        raise ParameterError(
            f"reads={reads}, delta={delta}",
            "use reads >= 1 and 0 < delta < 1; the defaults are 200 and 0.001",
        )
    return float(betaincinv(majority(reads), reads - reads // 2, 1 - delta))


def _sorted(log_ps: Floats) -> Floats:
    """Sort log p-values in increasing order; an unreadable draw counts as log p = 0."""
    return np.sort(np.where(np.isnan(log_ps), 0.0, log_ps))


def _paid(draws: int) -> float:
    """Return the log of the factor by which `median_log_p` corrects."""
    return math.log(draws / majority(draws))
