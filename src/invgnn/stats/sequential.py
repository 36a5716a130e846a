"""Tests that may stop at any time: bets on the bits of a balanced key, one after the other.

A suspect answers carrier after carrier. Before a bit is looked at, a bet on it is made from all answers
received so far and from earlier bits. If the suspect is unrelated to the key, the next bit is 1 with a
known probability: the number of ones that are left over the number of bits that are left. A bet at these
odds gains nothing on average, so the wealth of a bettor who starts with 1 is a martingale. By Ville's
inequality it ever reaches 1/alpha with probability at most alpha, however the bets are made and whenever
one stops.

Wald's sequential probability ratio test is the special case of one bettor who assumes one match rate.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from invgnn.errors import ParameterError
from invgnn.stats.laws import check_m
from invgnn.stats.rank_sum import ROUNDING, log_ratio, up

Floats = NDArray[np.float64]

RATES = (0.6, 0.72, 0.8, 0.88, 0.94, 0.98, 0.998)
"""Match rates that the betting test assumes, in equal shares."""
WEAKEST = 0.72
"""Match rate below which a mark need not be found: the fixed test needs 92 of 128 matches at 1e-6."""
CALIBRATION = 1 / 16
"""Exponent k of the calibrator k p^(k-1), which turns a p-value into a factor of the wealth."""
LEAST_BET = 2.0**-40
"""Smallest probability that a bet gives to a bit."""


@dataclass(frozen=True)
class Wealth:
    """The wealth of a bettor who starts with 1 and bets on the bits of a balanced key in turn.

    Guarantee: if the key is uniform among balanced keys given all answers, then Pr[log_p <= log u at any
    time] <= u for every u. A bet may depend on every answer received so far and on earlier bits. Void if a
    bet was made after its bit was known, or if the order of the bits depends on the bits.

    The probability of a run of bits is counted in integers. A bet is whatever double is passed: the bet on
    the other bit is one less it, so rounding inside a bettor does not matter. Every step makes one rounding
    of that difference, two of its logarithm and one of the sum; the bound allows for eight of each.

    Attributes:
        m: Number of bits of the key.
        asked: Number of bits bet on so far.
        ones: Number of ones among them.
        log_bets: Sum of the logarithms of the probabilities that were bet on the bits that came.
        error: Bound on its rounding error.
        best: Largest logarithm of the wealth so far, rounded down; at least 0.
    """

    m: int
    asked: int = 0
    ones: int = 0
    log_bets: float = 0.0
    error: float = 0.0
    best: float = 0.0

    @property
    def chance(self) -> float:
        """Probability that the next bit is 1 if the suspect is unrelated to the key; exact if 0 or 1."""
        return (self.m // 2 - self.ones) / (self.m - self.asked)

    @property
    def log_wealth(self) -> float:
        """Natural logarithm of the present wealth, rounded down."""
        left, ones = self.m - self.asked, self.m // 2 - self.ones
        run = log_ratio(math.comb(left, ones), math.comb(self.m, self.m // 2))
        return math.nextafter(self.log_bets - self.error - run, -math.inf)

    @property
    def log_p(self) -> float:
        """Natural logarithm of the p-value, valid at any time: one over the largest wealth so far."""
        return log_p_of(self.best)

    def after(self, bet: float, bit: int) -> Wealth:
        """Return the wealth after a bet.

        Args:
            bet: The probability that was bet on 1. It is ignored where the bit is certain.
            bit: The bit that came.

        Raises:
            ParameterError: If the bit is impossible, or no bit is left.
        """
        chance = self.chance if self.asked < self.m else math.nan
        if bit not in (0, 1) or not (chance if bit else 1 - chance) > 0:
            raise ParameterError(
                f"the next bit cannot be {bit}", "pass the bits of a balanced key in order"
            )
        if 0 < chance < 1:
            bet = min(max(LEAST_BET, float(bet)), 1 - LEAST_BET)  # NaN gives the smallest bet
            gain = math.log(bet if bit else 1.0 - bet)
        else:
            gain = 0.0
        total = self.log_bets + gain
        error = self.error + ROUNDING * (1 + abs(gain) + abs(total))
        found = replace(self, asked=self.asked + 1, ones=self.ones + int(bit), log_bets=total, error=error)
        return replace(found, best=max(self.best, found.log_wealth))


def new_wealth(m: int) -> Wealth:
    """Return the wealth before the first bet.

    Args:
        m: Number of bits of the balanced key.

    Raises:
        ParameterError: If m is odd or too small.
    """
    check_m(m)
    return Wealth(m)


def log_p_of(log_wealth: float) -> float:
    """Compute log min(1, 1/wealth).

    Args:
        log_wealth: Natural logarithm of the largest wealth, rounded down.
    """
    return up(-log_wealth, ROUNDING * (1 + abs(log_wealth)))


def log_e_value(log_p: float) -> float:
    """Compute the factor that the p-value of an independent channel is worth: log of k p^(k-1).

    Guarantee: rounded down; its mean is at most 1 if Pr[p <= u] <= u for every u, because the integral of
    k p^(k-1) over [0, 1] is 1 and the function falls. So the product with a wealth is a wealth again, also
    if the channel is only read when the carriers were not enough.

    Args:
        log_p: Natural logarithm of the p-value, rounded upwards.

    Returns:
        The natural logarithm of the factor, at least log k.
    """
    value = math.log(CALIBRATION) + (CALIBRATION - 1) * min(0.0, max(log_p, -1e300))
    return math.nextafter(value - ROUNDING * (1 + abs(value)), -math.inf)


def expert_bets(votes: ArrayLike, chance: ArrayLike, rates: Sequence[float] = RATES) -> Floats:
    """Return the probability of the bit 1 for each reading and each assumed match rate.

    A vote of 1 or -1 says that the answer decodes to 1 or to 0; a number between them says so less
    strongly; 0 is a tie, or a question without an answer. An expert who assumes the match rate r holds the
    vote for r/(1-r) times as likely if it is right, and takes into account how many ones are left: the
    likelihood of sampling without replacement.

    Args:
        votes: One number from -1 to 1 for each reading [..., readings].
        chance: Probability that the bit is 1 without the answer [...].
        rates: The assumed match rates.

    Returns:
        The probabilities [..., readings, rates].
    """
    q = np.asarray(chance, dtype=np.float64)[..., None, None]
    strength = np.log(np.asarray(rates) / (1 - np.asarray(rates)))
    odds = np.exp(np.asarray(votes, dtype=np.float64)[..., None] * strength)
    return np.asarray(q * odds / (q * odds + 1 - q))


def mixed_bet(log_shares: Floats, bets: Floats) -> Floats:
    """Return the bets of all experts, weighted by their present shares of the wealth.

    Args:
        log_shares: Logarithms of the shares, up to a common summand [..., readings, rates].
        bets: What `expert_bets` returned.
    """
    shares = np.exp(log_shares - log_shares.max((-2, -1), keepdims=True))
    return np.asarray((shares * bets).sum((-2, -1)) / shares.sum((-2, -1)))


def gains(bets: Floats, chance: ArrayLike, bits: ArrayLike) -> Floats:
    """Return the logarithm of each expert's gain after a bit.

    Args:
        bets: What `expert_bets` returned [..., readings, rates].
        chance: Probability that the bit was 1 [...].
        bits: The bits [...].
    """
    q = np.asarray(chance, dtype=np.float64)[..., None, None]
    one = np.asarray(bits)[..., None, None] == 1
    with np.errstate(divide="ignore", invalid="ignore"):
        found = np.log(np.where(one, bets / q, (1 - bets) / (1 - q)))
    return np.where((q > 0) & (q < 1), found, 0.0)


@dataclass(frozen=True, eq=False)
class Bettor:
    """A bettor who divides the wealth among experts: one for every reading and assumed match rate.

    Attributes:
        wealth: The wealth of all experts together.
        rates: The assumed match rates.
        log_ratios: Log-likelihood ratio of each expert, relative to a key that is unrelated to the answers
            [readings, rates].
        log_shares: Logarithms of the shares of the wealth, up to a common summand [readings, rates].
    """

    wealth: Wealth
    rates: tuple[float, ...]
    log_ratios: Floats
    log_shares: Floats

    @classmethod
    def start(cls, m: int, shares: Sequence[float], rates: Sequence[float] = RATES) -> Bettor:
        """Return a bettor before the first bet.

        Args:
            m: Number of bits of the key.
            shares: The share of the wealth that each reading gets.
            rates: The assumed match rates, each above one half, which share equally.
        """
        if not shares or min(shares) <= 0 or not rates or not 0.5 < min(rates) <= max(rates) < 1:
            raise ParameterError(
                "a bettor needs positive shares and match rates between 1/2 and 1", "use the defaults"
            )
        prior = np.log(np.asarray(shares, dtype=np.float64)[:, None] / len(rates))
        both = np.broadcast_to(prior, (len(shares), len(rates)))
        return cls(new_wealth(m), tuple(rates), np.zeros_like(both), both)

    def after(self, votes: ArrayLike, bit: int, awake: ArrayLike | None = None) -> Bettor:
        """Return the bettor after one more bit.

        Experts of a reading that is not awake leave the bet to the others and gain what these gain, so a
        reading that can never be used costs nothing. If it stays awake, it pays for having been declared.

        Args:
            votes: One number from -1 to 1 for each reading. They must not depend on this bit.
            bit: The bit.
            awake: Which readings bet; None for all. It must not depend on this bit.
        """
        chance = self.wealth.chance
        bets = expert_bets(votes, chance, self.rates)
        gained = gains(bets, chance, bit)
        up = np.ones(len(bets), dtype=bool) if awake is None else np.asarray(awake, dtype=bool)
        bet = float(mixed_bet(self.log_shares[up], bets[up])) if up.any() else chance
        joint = gains(np.full((1, 1), bet), chance, bit)
        return replace(
            self,
            wealth=self.wealth.after(bet, bit),
            log_ratios=self.log_ratios + gained,
            log_shares=self.log_shares + np.where(up[:, None], gained, joint),
        )

    def is_hopeless(
        self, miss: float, weakest: float = WEAKEST, readings: Sequence[int] | None = None
    ) -> bool:
        """Return whether it is safe to give up.

        Guarantee: if in one of the readings every vote is right with probability `weakest` or more,
        independently of the others, this ever happens with probability at most `miss`: the inverse of a
        likelihood ratio is a supermartingale under its alternative.

        Args:
            miss: Accepted probability of giving up on a copy.
            weakest: Match rate that should not be missed; the nearest assumed rate from above counts.
            readings: The readings that count; by default all.
        """
        column = min(
            (place for place, rate in enumerate(self.rates) if rate >= weakest),
            key=lambda place: self.rates[place],
            default=int(np.argmax(self.rates)),
        )
        held = self.log_ratios[:, column] if readings is None else self.log_ratios[list(readings), column]
        return bool(held.max(initial=-math.inf) <= math.log(miss)) and held.size > 0
