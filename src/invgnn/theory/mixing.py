"""ρ₀, the paper's measure of dependence between carriers, and why no result here depends on it."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.stats import t as student
from torch import nn

from invgnn.errors import ParameterError
from invgnn.graphs.disjoint_union import Bools, Floats, Graphs
from invgnn.stats.evidence import empirical_p
from invgnn.theory.lipschitz import perceived
from invgnn.theory.portrait import portrait
from invgnn.theory.statement import Assumption, Statement
from invgnn.watermark.mark import Watermark

WEAK = 1e-3  # the largest ρ₀ that the paper allows


def weakening(rho0: float) -> float:
    """Return the paper's factor c = min(4 ρ₀, ½) by which dependence weakens Hoeffding's exponent."""
    _check_rho(rho0)
    return min(4 * rho0, 0.5)


def block_length(rho0: float) -> int:
    """Return the length ⌈ρ₀^-½⌉ of the blocks that the paper treats as independent."""
    _check_rho(rho0)
    if rho0 == 0:
        raise ParameterError(
            "blocks for rho0 = 0 have no end", "use rho0 > 0; independent carriers need no blocks"
        )
    return math.ceil(1 / math.sqrt(rho0))


def blocks(m: int, rho0: float) -> int:
    """Return how many whole blocks m carriers make, the effective sample size of the blocking argument.

    Args:
        m: Number of carriers.
        rho0: Correlation between carriers.
    """
    return m // block_length(rho0)


def _check_rho(rho0: float) -> None:
    """Raise an error unless rho0 is in [0, 1]."""
    if not 0 <= rho0 <= 1:
        raise ParameterError(f"rho0 is {rho0}", "choose a correlation from 0 to 1")


@dataclass(frozen=True, kw_only=True)
class Maximum(Statement):
    """The largest absolute correlation, compared with its distribution by chance.

    Attributes:
        value: The maximum.
        kept: The maximum of the correlations that pass Benjamini-Hochberg; 0 if none does.
        passing: How many of them pass.
        pairs: Number of correlations.
        expected: The median of the maximum under the permutation null.
        p: The p-value of the maximum under the permutation null.
    """

    value: float
    kept: float
    passing: int
    pairs: int
    expected: float
    p: float


@dataclass(frozen=True, kw_only=True)
class Mixing(Statement):
    """Both estimates of ρ₀ for a set of carriers.

    Guarantee: none, and none is needed. Correlations of some statistics do not bound those of others.
    Pairwise correlations, however small, do not imply Hoeffding's inequality (`xor_bits`). The exact null
    of a keyed mark holds for any dependence between carriers. ρ₀ is reported because the paper reports it.

    Attributes:
        m: Number of carriers.
        statistics: Number of statistics that are not constant.
        bank: The maximum over pairs of carriers, each pair correlated across the statistics.
        proxies: The maximum over lags in the order of the carriers, of the perception and of the invariant.
    """

    m: int
    statistics: int
    bank: Maximum
    proxies: Maximum

    @property
    def rho0(self) -> float:
        """The larger of both estimates."""
        return max(self.bank.value, self.proxies.value)

    @property
    def c(self) -> float:
        """The paper's weakening factor for `rho0`."""
        return weakening(self.rho0)


def mixing(
    graphs: Graphs,
    perception: ArrayLike,
    invariant: ArrayLike,
    rng: np.random.Generator,
    *,
    permutations: int = 200,
) -> Mixing:
    """Estimate ρ₀ by both of the paper's estimators, each with its permutation null.

    Args:
        graphs: The carriers.
        perception: The perception of a model on each carrier.
        invariant: The invariant of each carrier.
        rng: Source of randomness for the permutations.
        permutations: Number of permutations.
    """
    bank = standard_columns(portrait(graphs, perception))
    series = standard_columns(np.column_stack([perception, invariant]))
    found, lags = bank_maximum(bank, rng, permutations), lag_maximum(series, rng, permutations)
    weak = max(found.value, lags.value) <= WEAK
    return Mixing(
        m=len(graphs),
        statistics=int(bank.any(axis=0).sum()),
        bank=found,
        proxies=lags,
        assumptions=(
            Assumption(f"both estimates are at most {WEAK}, as the paper requires", weak),
            Assumption("every measurable function of the carriers is correlated as weakly as these"),
            Assumption("weak pairwise correlation implies Hoeffding's inequality", False),
        ),
    )


def mixing_of(mark: Watermark, model: nn.Module, rng: np.random.Generator, **options: int) -> Mixing:
    """Estimate ρ₀ for the carriers of a mark, with the perception of a model.

    Args:
        mark: The mark.
        model: The model.
        rng: Source of randomness for the permutations.
        options: Further arguments of `mixing`.
    """
    return mixing(mark.carriers, perceived(model, mark, mark.presented[0]), mark.perceived, rng, **options)


def standard_columns(values: ArrayLike) -> Floats:
    """Return the table with every column at mean 0 and variance 1; a constant column becomes 0."""
    table = np.asarray(values, dtype=np.float64)
    apart = table - table.mean(axis=0)
    spread = apart.std(axis=0)
    real = spread > 1e-12 * np.maximum(np.abs(table).max(axis=0, initial=0.0), 1e-300)
    return np.asarray(np.where(real, apart / np.where(real, spread, 1.0), 0.0))


def carrier_correlations(table: Floats) -> Floats:
    """Return the Pearson correlation of every pair of rows [..., pairs] across the columns.

    The paper's text can also be read as correlating one statistic over all pairs. That number is not
    informative: over all ordered pairs i ≠ j it is -1 / (m - 1) for any data.
    """
    apart = table - table.mean(axis=-1, keepdims=True)
    size = np.linalg.norm(apart, axis=-1, keepdims=True)
    unit = np.divide(apart, size, out=np.zeros_like(apart), where=size > 0)
    first, second = np.triu_indices(table.shape[-2], k=1)
    return np.asarray(np.clip((unit @ np.swapaxes(unit, -1, -2))[..., first, second], -1, 1))


def lag_correlations(series: Floats) -> Floats:
    """Return the circular autocorrelations [..., lags] of standardised values, up to half their number."""
    size = series.shape[-1]
    power = np.abs(np.fft.rfft(series)) ** 2
    return np.asarray(np.fft.irfft(power, size)[..., 1 : size // 2 + 1] / size)


def bank_maximum(table: Floats, rng: np.random.Generator, permutations: int) -> Maximum:
    """Compare the largest correlation between carriers with that of separately shuffled statistics.

    Shuffling whole carriers would change nothing, so one set of carriers cannot show their dependence.
    Shuffling each statistic separately also destroys the relations between statistics, so a small p means
    that statistics are related, not that carriers are.

    Args:
        table: Standardised statistics [carriers, statistics].
        rng: Source of randomness.
        permutations: Number of permutations.
    """
    informative = table[:, table.any(axis=0)]
    found = carrier_correlations(informative)
    chance = np.array(
        [np.abs(carrier_correlations(rng.permuted(informative, axis=0))).max() for _ in range(permutations)]
    )
    return _maximum(found, informative.shape[1], chance)


def lag_maximum(series: Floats, rng: np.random.Generator, permutations: int) -> Maximum:
    """Compare the largest lag correlation of the columns with that of rows in random order, an exact test.

    Args:
        series: Standardised values [carriers, series].
        rng: Source of randomness.
        permutations: Number of permutations.
    """
    found = lag_correlations(series.T)
    orders = rng.permuted(np.tile(np.arange(len(series)), (permutations, 1)), axis=1)
    chance = np.abs(lag_correlations(np.moveaxis(series[orders], -1, -2))).max(axis=(1, 2))
    return _maximum(found.ravel(), len(series), chance)


def _maximum(found: Floats, samples: int, chance: Floats) -> Maximum:
    """Summarise correlations and the maxima of their permutation null."""
    size = np.abs(found)
    passing = rejected(p_values(found, samples))
    value = float(size.max(initial=0.0))
    return Maximum(
        value=value,
        kept=float(size[passing].max(initial=0.0)),
        passing=int(passing.sum()),
        pairs=len(found),
        expected=float(np.median(chance)),
        p=empirical_p(value, chance),
        assumptions=(
            Assumption("the correlated values are independent and normal, for Benjamini-Hochberg"),
        ),
    )


def p_values(correlations: ArrayLike, samples: int) -> Floats:
    """Return two-sided p-values of Pearson correlations.

    Args:
        correlations: The correlations.
        samples: Number of independent normal pairs behind each correlation.
    """
    r = np.clip(np.asarray(correlations, dtype=np.float64), -1, 1)
    if samples < 3:
        return np.ones_like(r)
    with np.errstate(divide="ignore"):
        t = np.abs(r) * np.sqrt((samples - 2) / (1 - r**2))
    return np.asarray(2 * student.sf(t, samples - 2))


def rejected(p: ArrayLike, q: float = 0.05) -> Bools:
    """Return which hypotheses the Benjamini-Hochberg procedure rejects.

    Args:
        p: The p-values.
        q: False discovery rate: the expected share of false rejections is at most q.
    """
    values = np.asarray(p, dtype=np.float64)
    ordered = np.sort(values)
    below = np.flatnonzero(ordered <= q * np.arange(1, len(values) + 1) / max(len(values), 1))
    return np.asarray(values <= ordered[below[-1]] if below.size else np.zeros(len(values), dtype=np.bool_))


def xor_bits(k: int) -> Bools:
    """Return all outcomes [2^k, 2^k - 1] of bits that are pairwise independent but agree too often.

    There is one bit for every non-empty subset of k fair coins, the exclusive or of its coins. Every two
    bits are independent, so every correlation is 0. However, all bits are 0 with probability 2^-k, where
    Hoeffding's inequality would allow exp(-(2^k - 1) / 2).
    """
    if not 1 <= k <= 12:
        raise ParameterError(f"k is {k}", "choose k from 1 to 12; the table has 2^k rows")
    coins, subsets = np.arange(2**k)[:, None], np.arange(1, 2**k)
    shared = (coins & subsets)[..., None] >> np.arange(k) & 1
    return np.asarray(shared.sum(axis=-1) % 2 == 1)
