"""Sequential tests: exact by enumeration for few bits, by simulation for many, and as short as promised."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from invgnn.errors import ParameterError
from invgnn.stats.sequential import (
    RATES,
    Bettor,
    Wealth,
    expert_bets,
    gains,
    log_e_value,
    mixed_bet,
    new_wealth,
)

SPRT = (0.85,)
LEVEL = 6 * math.log(10)  # 1e-6


def keys(m):
    """All balanced keys."""
    for chosen in combinations(range(m), m // 2):
        yield [int(place in chosen) for place in range(m)]


def play(key, votes, rates=RATES):
    """The bettor after all bits; votes may depend on earlier bits."""
    bettor = Bettor.start(len(key), [1.0], rates)
    for place, bit in enumerate(key):
        vote = votes(place, tuple(key[:place])) if callable(votes) else votes[place]
        bettor = bettor.after([vote], bit)
    return bettor


def adaptive(seed):
    """A server that answers differently after different bits, as if it knew all that was revealed."""

    def vote(place, past):
        return float(np.random.default_rng([seed, place, *past]).choice([-1.0, 0.0, 0.3, 1.0]))

    return vote


@pytest.mark.parametrize("rates", [RATES, SPRT], ids=["betting", "sprt"])
@pytest.mark.parametrize("server", range(4))
def test_no_level_is_exceeded_by_enumeration(rates, server):
    votes = adaptive(server) if server else [1.0, -1.0] * 4
    found = np.sort([play(key, votes, rates).wealth.log_p for key in keys(8)])
    share = np.arange(1, len(found) + 1) / len(found)
    assert (np.exp(found) >= share - 1e-12)[np.append(np.diff(found) > 0, True)].all()  # Pr[p <= u] <= u
    assert math.exp(found[0]) < 0.5, "a test that never finds anything is no test"


@pytest.mark.parametrize("server", range(3))
def test_the_mean_wealth_stays_one(server):
    votes = adaptive(server)
    wealth = [math.exp(play(key, votes).wealth.log_wealth) for key in keys(8)]
    assert math.isclose(np.mean(wealth), 1.0, rel_tol=1e-9)
    assert np.mean(wealth) <= 1.0  # rounded down


@given(st.lists(st.floats(0.001, 0.999), min_size=10, max_size=10), st.permutations([0, 1] * 5))
def test_the_wealth_is_a_lower_bound(bets, key):
    wealth, exact, left = new_wealth(10), Fraction(1), list(key)
    for bet, bit in zip(bets, key, strict=True):
        q = Fraction(sum(left), len(left))
        if 0 < q < 1:
            exact *= Fraction(bet) / q if bit else (1 - Fraction(bet)) / (1 - q)
        left.pop(0)
        wealth = wealth.after(bet, bit)
        held = Fraction(math.exp(wealth.log_wealth) * (1 - 2**-50))
        assert held <= exact
        assert math.isclose(float(held), float(exact), rel_tol=1e-11)
    assert wealth.log_p <= 0
    assert wealth.best >= wealth.log_wealth


def test_all_matches_give_nearly_everything():
    key = [0, 1] * 64
    bettor = play(key, [2.0 * bit - 1 for bit in key])
    bits = -bettor.wealth.log_p / math.log(2)
    assert 119 < bits <= math.log2(math.comb(128, 64))


def test_ties_and_missing_answers_bet_nothing():
    bettor = play([0, 1, 1, 0, 1, 0, 0, 1], [0.0] * 8)
    assert bettor.wealth.log_p == 0
    assert math.isclose(bettor.wealth.log_wealth, 0, abs_tol=1e-12)


def test_a_declared_reading_that_is_not_used_is_paid_for():
    key = [0, 1] * 16
    right = [2.0 * bit - 1 for bit in key]
    alone, with_idle = Bettor.start(32, [1.0]), Bettor.start(32, [0.5, 0.5])
    for vote, bit in zip(right, key, strict=True):
        alone, with_idle = alone.after([vote], bit), with_idle.after([vote, 0.0], bit)
    lost = (alone.wealth.best - with_idle.wealth.best) / math.log(2)
    assert 0.99 < lost < 1.01


def test_a_reading_that_sleeps_costs_nothing():
    key = [0, 1] * 16
    right = [2.0 * bit - 1 for bit in key]
    alone, with_idle = Bettor.start(32, [1.0]), Bettor.start(32, [0.5, 0.5])
    for vote, bit in zip(right, key, strict=True):
        alone = alone.after([vote], bit)
        with_idle = with_idle.after([vote, 0.0], bit, awake=[True, False])
    assert math.isclose(alone.wealth.best, with_idle.wealth.best, abs_tol=1e-9)
    # It bets its share of the wealth of all once it wakes, and is judged by its own votes alone.
    shares = np.exp(with_idle.log_shares).sum(1)
    assert math.isclose(shares[0], shares[1], rel_tol=1e-9)
    assert np.allclose(with_idle.log_ratios[1], 0, atol=1e-12)
    nobody = Bettor.start(8, [1.0]).after([1.0], 1, awake=[False])
    assert math.isclose(nobody.wealth.log_wealth, 0, abs_tol=1e-12)


@pytest.mark.parametrize("server", range(1, 4))
def test_no_level_is_exceeded_whoever_sleeps(server):
    """Two readings that sleep and wake as a server likes, which knows all bits so far."""
    vote, other = adaptive(server), adaptive(server + 10)

    def found(key):
        bettor = Bettor.start(len(key), [0.3, 0.7])
        for place, bit in enumerate(key):
            past = tuple(key[:place])
            awake = np.random.default_rng([server, *past]).random(2) < 0.6
            bettor = bettor.after([vote(place, past), other(place, past)], bit, awake)
        return bettor.wealth

    ends = [found(key) for key in keys(8)]
    assert math.isclose(np.mean([math.exp(one.log_wealth) for one in ends]), 1.0, rel_tol=1e-9)
    p = np.sort([one.log_p for one in ends])
    share = np.arange(1, len(p) + 1) / len(p)
    assert (np.exp(p) >= share - 1e-12)[np.append(np.diff(p) > 0, True)].all()


@pytest.mark.parametrize("bit", [-1, 2])
def test_impossible_bits(bit):
    with pytest.raises(ParameterError, match="cannot be"):
        new_wealth(8).after(0.5, bit)
    full = Wealth(8, asked=4, ones=4)
    assert full.chance == 0
    with pytest.raises(ParameterError, match="cannot be 1"):
        full.after(0.5, 1)
    assert full.after(1.0, 0).log_bets == 0  # a certain bit gains and costs nothing
    done = Wealth(8, asked=8, ones=4)
    with pytest.raises(ParameterError, match="cannot be"):
        done.after(0.5, 0)


@pytest.mark.parametrize("bet", [0.0, 1.0, -3.0, math.nan, math.inf])
def test_absurd_bets_lose_and_do_not_break(bet):
    wealth = new_wealth(8).after(bet, 0).after(bet, 1)
    assert -30 < wealth.log_wealth < -20
    assert wealth.best <= math.log(2)  # one of the two bits was bet on with certainty, and came


@pytest.mark.parametrize(
    ("shares", "rates"), [([], RATES), ([0.0], RATES), ([1.0], []), ([1.0], [0.5]), ([1.0], [1.0])]
)
def test_senseless_bettors(shares, rates):
    with pytest.raises(ParameterError):
        Bettor.start(8, shares, rates)


def test_the_calibrator_has_mean_one():
    grid = (np.arange(1, 200_000) / 200_000) ** 16  # fine near zero
    values = np.exp([log_e_value(math.log(p)) for p in grid[::200]])
    area = np.sum(np.diff(np.append(0, grid[::200])) * values)  # the function falls: a lower sum
    assert 0.5 < area <= 1
    assert log_e_value(-math.log(2) * 60) / math.log(2) > 52
    assert log_e_value(0.5) == log_e_value(0.0) < 0


# -- many at once ------------------------------------------------------------------------------------


def simulate(votes, bits, rates=RATES, level=LEVEL):
    """Log of the largest wealth of many runs, and when it first reached the level (m + 1 if never)."""
    runs, m = bits.shape
    ratios = np.zeros((runs, 1, len(rates)))
    wealth, best, when = np.zeros(runs), np.zeros(runs), np.full(runs, m + 1)
    ones = np.full(runs, m // 2)
    for place in range(m):
        q, bit = ones / (m - place), bits[:, place]
        bets = expert_bets(votes[:, place, None], q, rates)
        bet = mixed_bet(ratios, bets)
        wealth += gains(bet[:, None, None], q, bit)[:, 0, 0]
        ratios += gains(bets, q, bit)
        ones -= bit
        best = np.maximum(best, wealth)
        when = np.where((when > m) & (best >= level), place + 1, when)
    return best, when


def balanced(runs, m, draws):
    return np.argsort(draws.random((runs, m)), axis=1) % 2


def test_the_simulation_is_the_test():
    draws = np.random.default_rng(3)
    bits, votes = balanced(20, 32, draws), draws.choice([-1.0, 1.0], (20, 32))
    best, _ = simulate(votes, bits)
    for row in range(20):
        found = play(bits[row].tolist(), votes[row])
        assert math.isclose(found.wealth.best, best[row], abs_tol=1e-9)


def false_positives(runs, chunk, m=128):
    """How many innocents ever reach 2^-k, for k from 1 to 16."""
    draws, counts = np.random.default_rng(5), np.zeros(16, dtype=int)
    for _ in range(runs // chunk):
        votes = np.where(
            draws.random((chunk, m)) < draws.random((chunk, 1)), 1.0, -1.0
        )  # any share of ones
        best, _ = simulate(votes, balanced(chunk, m, draws))
        counts += (best[:, None] >= np.arange(1, 17) * math.log(2)).sum(0)
    return counts


def within(counts, runs):
    """Whether no count exceeds its level by more than four standard deviations."""
    levels = 2.0 ** -np.arange(1, 17)
    return (counts <= runs * levels + 4 * np.sqrt(runs * levels) + 1).all()


def test_innocents_stay_below_the_level():
    counts = false_positives(4000, 2000, m=64)
    assert within(counts, 4000)
    assert counts[0] > 400, "an anytime-valid p-value that hardly moves would pass for the wrong reason"


@pytest.mark.slow
def test_a_million_innocents():
    assert within(false_positives(1_000_000, 20_000), 1_000_000)


def entropy(share):
    return -(share * math.log2(share) + (1 - share) * math.log2(1 - share)) if 0 < share < 1 else 0.0


@pytest.mark.parametrize("matches", [128, 122, 116, 112, 104, 100])
def test_few_carriers_are_enough(matches):
    m, runs, draws = 128, 400, np.random.default_rng(matches)
    bits = balanced(runs, m, draws)
    wrong = np.argsort(draws.random((runs, m)), axis=1) < m - matches
    _, when = simulate(np.where(wrong, -1.0, 1.0) * (2 * bits - 1), bits)
    most = 40 if matches >= 116 else 1.2 * 20 / (1 - entropy(matches / m))
    assert np.minimum(when, m).mean() <= most


def test_a_copy_is_given_up_seldom_and_an_innocent_soon():
    draws = np.random.default_rng(1)

    def given_up(rate, rates):
        bits = balanced(1, 128, draws)[0].tolist()
        bettor = Bettor.start(128, [1.0], rates)
        for place, bit in enumerate(bits):
            right = draws.random() < rate
            bettor = bettor.after([2.0 * bit - 1 if right else 1 - 2.0 * bit], bit)
            if bettor.is_hopeless(1e-2):
                return place + 1
        return None

    assert sum(given_up(0.8, RATES) is not None for _ in range(40)) <= 2  # expected: below 0.4
    innocent = [given_up(0.5, RATES) or 128 for _ in range(20)]
    assert np.mean(innocent) < 90
    classical = [given_up(0.5, SPRT) or 128 for _ in range(20)]
    assert np.mean(classical) < 40
