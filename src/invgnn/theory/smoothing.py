"""Evidence that survives every small change of the weights: reading a suspect under Gaussian weight noise.

A suspect theta is read as theta + eps, many times, eps ~ N(0, sigma² S²), S one scale per tensor. Whatever
holds or does not hold there holds with a probability q(theta), and Phi^-1(q) changes by at most
||S^-1 delta|| / sigma when theta moves by delta (Neyman and Pearson). So what holds in nearly all draws at
theta holds in most of them everywhere within a radius. Thresholds and centring need no care: they are taken
from theta + eps as well.

Here the reading is the median over the draws of the p-value; `votes` smooths every bit by itself.
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
    Assumption("only parameters change: buffers, such as running means, and the architecture stay"),
    Assumption("the verifier draws the noise after the suspect is fixed, and only once"),
)


@dataclass(frozen=True, eq=False)
class Noise:
    """Gaussian noise for every parameter: sigma times one scale per tensor, by default 1.

    Radii are in the norm sqrt(sum over tensors of ||delta||² / scale²): the plain l2 norm if all scales are
    1, changes relative to the usual size of a weight with `Noise.like`. Scales are fixed before anybody
    looks. Taken from the marked original they would carry its bits into the reading and void the null;
    taken from the suspect they would move with it and void the certificate.
    """

    sigma: float
    scales: Mapping[str, float] | None = None

    def __post_init__(self) -> None:
        if not (self.sigma > 0 and all(scale > 0 for scale in (self.scales or {}).values())):
            raise ParameterError(f"noise of sigma {self.sigma}", "sigma and all scales are above 0")

    @classmethod
    def like(cls, model: nn.Module, sigma: float) -> Noise:
        """Noise relative to the mean absolute weight of every tensor of a *fresh or unmarked* model."""
        sizes = {name: float(p.detach().abs().mean()) for name, p in model.named_parameters()}
        usual = float(np.mean([size for size in sizes.values() if size > 0] or [1.0]))
        return cls(sigma, {name: size or usual for name, size in sizes.items()})

    def scale(self, name: str) -> float:
        """The scale of one tensor."""
        if self.scales is None:
            return 1.0
        if name not in self.scales:
            raise ParameterError(
                f"no scale for {name!r}", "take Noise.like of a model of this architecture"
            )
        return self.scales[name]

    def norm(self, shift: Mapping[str, Tensor]) -> float:
        """How large a change of the parameters is, in the norm that radii are in."""
        parts = ((value.detach().double() / self.scale(name)).square() for name, value in shift.items())
        return math.sqrt(sum(float(part.sum()) for part in parts))


def under_noise(
    model: nn.Module, say: Callable[[nn.Module], Said], noise: Noise, draws: int, rng: np.random.Generator
) -> Iterator[Said]:
    """What a copy of the model says at each of many noise draws; the model itself is never touched."""
    if draws < 1:
        raise ParameterError(f"{draws} noise draws", "200 are usual")
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
    """You get the suspect's answers at every noise draw, None where the noise made it unreadable (NaN)."""

    def say(noisy: nn.Module) -> Answers | None:
        try:
            return mark.read(noisy, access)
        except SuspectError:
            return None

    seen = [*under_noise(suspect, say, noise, draws, rng)]
    if all(answers is None for answers in seen):
        mark.read(suspect, access)  # raises if not the noise but the suspect itself is to blame
    return seen


def noisy_log_p(mark: Watermark, seen: Iterable[Answers | None]) -> Floats:
    """You get the log p of the mark's own statistic at every noise draw, NaN at an unreadable one."""
    return np.array([math.nan if answers is None else mark.evidence(answers).log_p for answers in seen])


def median_log_p(log_ps: Floats) -> float:
    """You get one log p for many: the level that more than half of them reach, paid for.

    Guarantee: valid if each of them is, whatever their dependence: k of n reach a level u with probability
    at most n u / k (Markov), and n / k, below 2, is in the result. An innocent suspect stays innocent under
    noise that does not know the bits, so each of `noisy_log_p` is valid; an unreadable draw (NaN) counts as
    one without evidence. Void if the noise was drawn again until it pleased.
    """
    return min(0.0, float(_sorted(log_ps)[majority(log_ps.size) - 1]) + _paid(log_ps.size))


@dataclass(frozen=True, eq=False)
class SmoothedEvidence(Statement):
    """How much evidence is left in `median_log_p` within a radius of the model it was certified for.

    `log_ps` has one value per draw, NaN where it could not be read: that is a draw without evidence.

    Guarantee: for one radius (or one alpha) chosen beforehand, with probability at least 1 - delta over
    these draws: after *any* change of the parameters of at most that norm, a verifier who takes `reads`
    draws of fresh noise finds at least this evidence with probability at least 1 - delta.
    """

    log_ps: Floats = field(repr=False)
    noise: Noise = field(repr=False)
    reads: int = DRAWS
    delta: float = DELTA
    assumptions: tuple[Assumption, ...] = field(default=RESTS_ON, kw_only=True)

    def __post_init__(self) -> None:
        if self.log_ps.ndim != 1 or not self.log_ps.size or (self.log_ps > 0).any():
            raise ParameterError(f"log p of shape {self.log_ps.shape}", "give one per draw, none above 0")

    @property
    def unreadable(self) -> int:
        """How many draws could not be read."""
        return int(np.isnan(self.log_ps).sum())

    def evidence(self, radius: float) -> float:
        """The certified evidence bits at a radius, 0 where none are.

        The j-th best draw is reached with probability at least Clopper and Pearson's bound for j.
        """
        draws = self.log_ps.size
        needed = ndtr(ndtri(share_for_majority(self.reads, self.delta)) + radius / self.noise.sigma)
        enough = lower_share(np.arange(1, draws + 1), draws, self.delta) >= needed
        if not enough.any():
            return 0.0
        return laws.evidence_bits(float(_sorted(self.log_ps)[enough.argmax()]) + _paid(self.reads))

    def radius(self, alpha: float) -> float:
        """The largest radius at which p <= alpha is certified; below 0 if it is not even at 0."""
        reached = int((self.log_ps + _paid(self.reads) <= math.log(alpha)).sum())
        least = float(lower_share(reached, self.log_ps.size, self.delta))
        needed = share_for_majority(self.reads, self.delta)
        return float(self.noise.sigma * (ndtri(least) - ndtri(needed)))


def majority(draws: int) -> int:
    """You get the least number that is more than half."""
    return draws // 2 + 1


def lower_share(ones: ArrayLike, draws: int, delta: float) -> Floats:
    """You get Clopper and Pearson's lower bounds, each of level 1 - delta, for shares seen in draws."""
    x = np.asarray(ones, dtype=np.float64)
    return np.where(x > 0, betaincinv(np.maximum(x, 1), draws - x + 1, delta), 0.0)


def share_for_majority(reads: int, delta: float) -> float:
    """You get the least probability that wins more than half of `reads` draws, but for delta."""
    if reads < 1 or not 0 < delta < 1:
        raise ParameterError(f"{reads} reads at delta {delta}", "200 reads at 0.001 are usual")
    return float(betaincinv(majority(reads), reads - reads // 2, 1 - delta))


def _sorted(log_ps: Floats) -> Floats:
    """Best first; what could not be read is no evidence."""
    return np.sort(np.where(np.isnan(log_ps), 0.0, log_ps))


def _paid(draws: int) -> float:
    return math.log(draws / majority(draws))
