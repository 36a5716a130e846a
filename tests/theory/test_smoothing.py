"""Certificates under weight noise: closed forms, exact enumeration, and attacks inside the radius."""

from __future__ import annotations

import copy
import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from torch import nn

from _helpers.keys import balanced_keys
from invgnn.errors import ParameterError, SuspectError
from invgnn.stats.evidence import evidence_of
from invgnn.theory.smoothing import (
    Noise,
    SmoothedEvidence,
    lower_share,
    majority,
    median_log_p,
    noisy_log_p,
    read_noisy,
    share_for_majority,
    under_noise,
)
from invgnn.theory.votes import Votes, certify_votes, count_votes, read_votes, said, vote_evidence
from invgnn.training.tasks import new_model

SIGMA, DRAWS = 0.5, 1500


class Linear(nn.Module):
    """A model that returns w·x >= 0 on fixed inputs: its bits under noise have a closed form."""

    def __init__(self, w):
        super().__init__()
        self.w = nn.Parameter(torch.tensor(w))


@pytest.fixture(scope="module")
def linear():
    rng = np.random.default_rng(0)
    x, w = rng.normal(size=(16, 5)), 0.6 * rng.normal(size=5)
    bits = rng.permutation([0, 1] * 8)
    x *= ((2 * bits - 1) * np.sign(x @ w))[:, None]  # every bit is right
    x[:2] *= -1  # but two
    return Linear(w), x, bits


@pytest.fixture(scope="module")
def marked(motifs, draw):
    """Return a small model that is trained on the mark alone."""
    mark, model = draw(), new_model(motifs, "GIN", 0, hidden_channels=16).eval()
    optimiser = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(200):
        optimiser.zero_grad()
        mark.loss(model).backward()
        optimiser.step()
    model.zero_grad()
    assert mark.evidence(mark.read(model)).matches == 16
    return model, mark, Noise.like(new_model(motifs, "GIN", 1, hidden_channels=16), 0.02)


# --- the two ingredients ------------------------------------------------------------------------


@given(st.integers(1, 300), st.floats(1e-6, 0.3), st.data())
def test_shares_are_bounded_as_scipy_does(draws, delta, data):
    ones = data.draw(st.integers(0, draws))
    oracle = stats.binomtest(ones, draws, alternative="greater").proportion_ci(1 - delta, "exact")
    assert lower_share(ones, draws, delta) == pytest.approx(oracle.low, rel=1e-6, abs=1e-12)


@given(st.integers(1, 500), st.floats(1e-6, 0.3))
def test_the_share_needed_wins_the_majority_but_for_delta(reads, delta):
    q = share_for_majority(reads, delta)
    assert stats.binom(reads, q).cdf(majority(reads) - 1) == pytest.approx(delta, rel=1e-5)
    assert q > 0.5 or delta > 0.1


def test_noise_is_of_the_scale_it_says(motifs):
    model, scale = new_model(motifs, "GIN", 0, hidden_channels=8), {"w": 3.0}
    noise = Noise(0.5, scale)
    weights = [*under_noise(Linear([1.0]), lambda net: net.w.item(), noise, 4000, rng())]
    assert np.mean(weights) == pytest.approx(1.0, abs=0.1)
    assert np.std(weights) == pytest.approx(1.5, rel=0.05)
    like = Noise.like(model, 0.1)
    assert like.scale("head.weight") == pytest.approx(float(model.head.weight.detach().abs().mean()))
    shift = {"head.weight": torch.full((2, 8), 0.5)}
    assert like.norm(shift) == pytest.approx(2.0 / like.scale("head.weight"))
    assert Noise(1.0).norm(shift) == pytest.approx(2.0)


def test_a_tensor_of_zeros_gets_noise_all_the_same():
    model = nn.Linear(3, 2)
    nn.init.zeros_(model.bias)
    assert Noise.like(model, 0.1).scale("bias") == Noise.like(model, 0.1).scale("weight") > 0


def rng(seed=0):
    return np.random.default_rng(seed)


# --- every bit by itself ------------------------------------------------------------------------


def say(x):
    return lambda net: (x @ net.w.detach().numpy()) >= 0


def vote(model, x, noise, source, draws=DRAWS):
    return count_votes(under_noise(model, say(x), noise, draws, source), len(x))


@pytest.mark.parametrize("scales", [None, {"w": 2.0}])
def test_a_linear_model_has_its_true_radius(linear, scales):
    model, x, bits = linear
    noise = Noise(SIGMA, scales)
    found = certify_votes(vote(model, x, noise, rng()), bits, noise, reads=10**6)
    # The distance to w·x = 0 in the noise's own norm, towards the right side.
    true = (2 * bits - 1) * (x @ model.w.detach().numpy()) / np.linalg.norm(x, axis=1) / noise.scale("w")
    assert (found.radii <= true).all()
    seen = np.abs(true) < 1.5 * SIGMA  # beyond, no number of draws this small can tell
    assert seen.sum() >= 6
    error = SIGMA * np.sqrt(0.25 / DRAWS) / stats.norm.pdf(1.5)
    assert (true - found.radii)[seen].max() < 9 * error
    assert (found.radii[:2] < 0).all()
    assert found.matches(0) <= 14


def test_the_worst_change_of_a_linear_model_leaves_what_was_certified(linear):
    model, x, bits = linear
    noise, reads = Noise(SIGMA), 200
    found = certify_votes(vote(model, x, noise, rng()), bits, noise, reads=reads)
    units = x / np.linalg.norm(x, axis=1)[:, None]
    for k in np.flatnonzero(found.radii > 0):
        r = found.radii[k]
        moved = Linear(model.w.detach().numpy() - r * (2 * bits[k] - 1) * units[k])
        right = (2 * vote(moved, x, noise, rng(k), reads).ones > reads) == bits
        assert right[k]
        assert right.sum() >= found.matches(r)
        assert (right | (found.radii < r)).all()


def test_certified_evidence_falls_with_the_radius_and_counts_the_worst(linear):
    model, x, bits = linear
    found = certify_votes(vote(model, x, Noise(SIGMA), rng()), bits, Noise(SIGMA))
    rising = np.unique(found.radii)
    evidence = [found.evidence(r) for r in rising]
    assert evidence == sorted(evidence, reverse=True)
    alpha = 0.05
    r = found.radius(alpha)
    assert found.log_p(r) <= math.log(alpha) < found.log_p(np.nextafter(r, 9))
    assert found.radius(1e-9) == -math.inf
    sure = found.radii >= r
    for w in (0, 1):  # whatever the uncertified say, p is no larger
        p = evidence_of(np.where(sure, bits, w), bits, "matches", 0.5)
        assert p.log_p <= found.log_p(r)


def test_no_draw_right_is_no_radius():
    found = certify_votes(Votes(np.zeros(8, int), 100, 100), [1, 0] * 4, Noise(1.0))
    assert (found.radii[::2] == -np.inf).all()
    assert found.matches(0) == 4


# --- the median of p ----------------------------------------------------------------------------


@pytest.mark.parametrize("draws", [1, 2, 7, 10])
def test_the_median_is_valid_by_enumeration(draws):
    # One independent suspect with fixed answers under noise: all 70 balanced keys are equally likely.
    answers = rng(draws).normal(size=8) + 0.3 * rng(1).normal(size=(draws, 8))
    found = np.array(
        [
            median_log_p(np.array([evidence_of(a, key, "combined").log_p for a in answers]))
            for key in balanced_keys(8)
        ]
    )
    for u in np.unique(found):
        assert (found <= u).mean() <= math.exp(u) + 1e-12


def test_the_median_is_the_level_that_most_reach():
    log_ps = np.array([-9.0, -1.0, -5.0])
    assert median_log_p(log_ps) == pytest.approx(-5 + math.log(3 / 2))
    assert median_log_p(np.array([-0.1])) == pytest.approx(-0.1)
    assert median_log_p(np.array([-0.1, -9.0])) == pytest.approx(-0.1)
    assert median_log_p(np.full(3, -0.1)) == 0.0


def test_a_known_law_of_evidence_gives_its_true_radius():
    # 20 nats of evidence if a normal number is below z: at distance r with probability Phi(z - r / sigma).
    z, draws = 1.2, 5000
    log_ps = np.where(rng().normal(size=draws) <= z, -20.0, 0.0)
    found = SmoothedEvidence(log_ps, Noise(SIGMA), reads=10**6)
    true = SIGMA * z
    radius = found.radius(1e-6)
    assert true - 0.15 * SIGMA < radius < true
    assert found.evidence(radius * 0.999) == pytest.approx((20 - math.log(2)) / math.log(2), rel=1e-5)
    assert found.evidence(radius * 1.001) == 0.0
    assert SmoothedEvidence(log_ps, Noise(SIGMA), reads=50).radius(1e-6) < radius
    assert SmoothedEvidence(log_ps[:100], Noise(SIGMA), reads=10**6).radius(1e-6) < radius


# --- on a marked model --------------------------------------------------------------------------


def moved(model, direction, noise, radius):
    """Return a copy moved along a direction by the radius, in the norm of the noise."""
    twin, size = copy.deepcopy(model), radius / noise.norm(direction)
    with torch.no_grad():
        for name, p in twin.named_parameters():
            p.add_(direction[name], alpha=size)
    return twin


def directions(model, mark, noise):
    """Yield a random direction, and the steepest ascent of the mark's loss in the norm of the noise."""
    source = torch.Generator().manual_seed(0)
    yield {name: torch.randn(p.shape, generator=source) for name, p in model.named_parameters()}
    weights = dict(model.named_parameters())
    uphill = torch.autograd.grad(mark.loss(model), [*weights.values()])
    yield {name: g * noise.scale(name) ** 2 for name, g in zip(weights, uphill, strict=True)}


def test_nothing_inside_the_radius_removes_what_was_certified(marked):
    model, mark, noise = marked
    draws, reads, alpha = 120, 30, 0.05
    seen = read_noisy(mark, model, noise, rng(), draws=draws)
    evidence = SmoothedEvidence(noisy_log_p(mark, seen), noise, reads)
    bits = certify_votes(read_votes(mark, seen), mark.bits, noise, reads=reads)
    assert evidence.unreadable == bits.unreadable == 0
    radius = evidence.radius(alpha)
    assert radius > 0
    assert bits.matches(0) > 0
    for k, direction in enumerate(directions(model, mark, noise)):
        suspect = moved(model, direction, noise, radius)
        again = read_noisy(mark, suspect, noise, rng(2 + k), draws=reads)
        assert median_log_p(noisy_log_p(mark, again)) <= math.log(alpha)
        suspect = moved(model, direction, noise, bits.radii.max() / 2)
        again = read_noisy(mark, suspect, noise, rng(4 + k), draws=reads)
        found = vote_evidence(mark, read_votes(mark, again))
        assert found.matches >= bits.matches(bits.radii.max() / 2)
        assert found.log_p <= bits.log_p(bits.radii.max() / 2)


def test_smoothing_leaves_the_model_alone_even_when_reading_fails(marked, unchanged):
    model, mark, noise = marked

    def fail(net):
        raise RuntimeError("no answer")

    with unchanged(model):
        read_noisy(mark, model, noise, rng(), draws=2)
        with pytest.raises(RuntimeError):
            [*under_noise(model, fail, noise, 2, rng())]


def test_the_same_generator_reads_the_same(marked):
    model, mark, noise = marked
    one, two = (
        noisy_log_p(mark, read_noisy(mark, model, noise, rng(7), draws=3)).tolist() for _ in range(2)
    )
    assert one == two
    assert len(set(one)) > 1 or one[0] == mark.evidence(mark.read(model)).log_p


def test_bits_are_told_from_the_models_own_ordinary_answers(marked):
    model, mark, _ = marked
    answers = mark.read(model, "logits")
    expected = answers.carriers >= np.median(answers.ordinary)
    assert said(answers).tolist() == expected.tolist()


# --- draws that cannot be read ------------------------------------------------------------------


class Brittle(nn.Module):
    """A model whose scores are NaN if one of its parameters, `fuse`, is above one half."""

    def __init__(self, model, fuse=0.0):
        super().__init__()
        self.model, self.fuse = model, nn.Parameter(torch.tensor(fuse))

    def forward(self, x, edge_index, batch):
        scores = self.model(x, edge_index, batch)
        return scores * torch.nan if self.fuse > 0.5 else scores


@pytest.fixture(scope="module")
def brittle(marked, draw):
    """Return noise that makes about one draw in six unreadable and hardly changes anything else."""
    model, _, noise = marked
    scales = {f"model.{name}": 1e-6 * scale for name, scale in noise.scales.items()} | {"fuse": 1.0}
    return Brittle(model), draw(access="logits"), Noise(0.5, scales)


def test_an_unreadable_draw_is_no_evidence_and_is_counted(brittle, unchanged):
    model, mark, noise = brittle
    fuses = [*under_noise(model, lambda net: net.fuse.item(), noise, 40, rng(3))]
    blown = np.array(fuses) > 0.5
    assert 0 < blown.sum() < 20
    with unchanged(model):
        seen = read_noisy(mark, model, noise, rng(3), draws=40)
    assert [answers is None for answers in seen] == blown.tolist()
    log_ps = noisy_log_p(mark, seen)
    assert np.isnan(log_ps).tolist() == blown.tolist()
    assert median_log_p(log_ps) == median_log_p(np.where(blown, 0.0, log_ps))
    found, plain = (SmoothedEvidence(p, noise, 30) for p in (log_ps, np.where(blown, 0.0, log_ps)))
    assert found.unreadable == blown.sum()
    for r in (0.0, 0.01, 0.1):
        assert found.evidence(r) == plain.evidence(r)
    assert found.radius(0.05) == plain.radius(0.05)


def test_an_unreadable_draw_votes_against_every_bit(brittle):
    model, mark, noise = brittle
    seen = read_noisy(mark, model, noise, rng(3), draws=40)
    told = np.array([said(answers) for answers in seen if answers is not None])
    votes = read_votes(mark, seen)
    assert (votes.draws, votes.read, votes.unreadable) == (40, len(told), 40 - len(told))
    assert votes.ones.tolist() == told.sum(axis=0).tolist()
    assert votes.right(mark.bits == 1).tolist() == (told == mark.bits).sum(axis=0).tolist()
    found = certify_votes(votes, mark.bits, noise)
    assert found.unreadable == votes.unreadable
    most, level = int(votes.right(mark.bits == 1).max()), 1 - 1e-3 / 16
    least = stats.binomtest(most, 40, alternative="greater").proportion_ci(level, "exact").low
    away = stats.norm.ppf(least) - stats.norm.ppf(share_for_majority(200, 1e-3 / 16))
    assert found.radii.max() == pytest.approx(noise.sigma * away)
    # If most draws cannot be read, every bit is 0, whatever the key.
    silent = count_votes([None] * 30 + [*told[:10]], 16)
    assert not (2 * silent.ones > silent.draws).any()
    assert vote_evidence(mark, silent).matches == 8


def test_noise_that_leaves_nothing_is_no_error_but_a_suspect_that_never_answers_is(brittle):
    model, mark, noise = brittle
    wild = Noise(noise.sigma, {**noise.scales, "model.head.weight": 1e200})
    seen = read_noisy(mark, model, wild, rng(), draws=3)
    assert seen == [None] * 3
    assert SmoothedEvidence(noisy_log_p(mark, seen), wild).evidence(0.0) == 0.0
    assert (certify_votes(read_votes(mark, seen), mark.bits, wild).radii == -np.inf).all()
    with pytest.raises(SuspectError, match="no finite answer"):
        read_noisy(mark, Brittle(model.model, fuse=9.0), noise, rng(), draws=3)


def test_bad_requests(draw):
    fair, noise = Votes(np.full(16, 5), 10, 10), Noise(1.0)
    for make in (
        lambda: Noise(0.0),
        lambda: Noise(1.0, {"w": 0.0}),
        lambda: Noise(1.0, {}).scale("w"),
        lambda: share_for_majority(0, 0.1),
        lambda: share_for_majority(10, 0.0),
        lambda: vote_evidence(draw(key="plain"), fair),
        lambda: Votes(np.full(16, 11), 10, 10),
        lambda: Votes(np.full(16, -1), 10, 10),
        lambda: Votes(np.full(16, 0.5), 10, 10),
        lambda: Votes(np.full(16, 5), 10, 9),
        lambda: Votes(np.zeros(16, int), 0, 0),
        lambda: count_votes([], 16),
        lambda: certify_votes(fair, [1, 0] * 4, noise),
        lambda: certify_votes(fair, [1] * 9 + [0] * 7, noise),
        lambda: certify_votes(fair, [1, 0] * 8, noise, reads=0),
        lambda: certify_votes(fair, [1, 0] * 8, noise, delta=2.0),
        lambda: SmoothedEvidence(np.array([]), noise),
        lambda: SmoothedEvidence(np.array([0.1]), noise),
        lambda: [*under_noise(Linear([1.0]), say, noise, 0, rng())],
    ):
        with pytest.raises(ParameterError) as caught:
            make()
        assert caught.value.advice
