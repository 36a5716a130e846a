"""Set Cover and WM-Remove, compared with brute force over all small instances; the monotone head."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from invgnn.errors import ParameterError
from invgnn.nn.perception import PerceptionHead
from invgnn.stats.null import NULLS
from invgnn.theory import monotone
from invgnn.theory.cover import (
    SetCover,
    greedy_cover,
    least_cover,
    measure_effort,
    random_cover,
    rounded_cover,
)
from invgnn.theory.fewest import fewest_changes
from invgnn.theory.removal import Removal, change_of, cover_of, of_head, reduce_cover, removes


def every(m, d):
    """Return all set-cover instances with m elements and d sets, with order and repeats."""
    return np.array(list(product(range(2**m), repeat=d)))


def unordered(m, d):
    """Return the same instances, each once for all orders of its sets."""
    return np.unique(np.sort(every(m, d)), axis=0)


def covered_by_subset(masks):
    """Return the elements covered by each of the 2^d families [N, 2^d], and its number of sets [2^d]."""
    n, d = masks.shape
    unions = np.zeros((n, 2**d), dtype=np.int64)
    for family in range(1, 2**d):
        last = family.bit_length() - 1
        unions[:, family] = unions[:, family ^ (1 << last)] | masks[:, last]
    return np.bitwise_count(unions), np.bitwise_count(np.arange(2**d))


def least_by_enumeration(masks, demand):
    """Return the smallest number of sets that cover `demand` elements, d + 1 if none do."""
    covered, count = covered_by_subset(masks)
    return np.where(covered >= demand, count, masks.shape[1] + 1).min(axis=1)


SHAPES = list(product(range(1, 5), repeat=2))
RNG = np.random.default_rng(6)
SIX = RNG.integers(2**6, size=(10_000, 6)) & RNG.integers(2**6, size=(10_000, 6))  # a quarter full

SAMPLE = [(m, sets) for m, d in product(range(1, 4), repeat=2) for sets in unordered(m, d)[::4].tolist()]
SAMPLE += [(4, sets) for sets in unordered(4, 4)[::40].tolist()]
SAMPLE += [(6, sets) for sets in SIX[::100].tolist()]


# --- covers -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("m", "d"), SHAPES)
def test_greedy_on_every_small_instance(m, d):
    check_greedy(m, every(m, d), m)
    check_greedy(m, unordered(m, d), (m + 1) // 2)


def test_greedy_on_ten_thousand_of_six_by_six():
    check_greedy(6, SIX, 6)
    check_greedy(6, SIX, 4)


def check_greedy(m, masks, demand):
    factor = sum(1 / k for k in range(1, demand + 1))
    for sets, least in zip(masks.tolist(), least_by_enumeration(masks, demand).tolist(), strict=True):
        problem = SetCover(m, tuple(sets))
        found = greedy_cover(problem, demand)
        assert (found is None) == (least > len(sets))
        if found is not None:
            assert problem.covered(found.chosen) >= demand
            assert found.least <= least <= len(found.chosen) <= factor * least + 1e-9


@pytest.mark.parametrize("partial", [False, True])
def test_exact_and_rounded_against_enumeration(partial):
    check_exact(SAMPLE[:: 2 if partial else 1], partial)


@pytest.mark.slow
@pytest.mark.parametrize(("m", "masks"), [*((m, unordered(m, d)) for m, d in SHAPES), (6, SIX)])
def test_exact_on_every_small_instance_and_ten_thousand_of_six_by_six(m, masks):
    for sets, least in zip(masks.tolist(), least_by_enumeration(masks, m).tolist(), strict=True):
        found = least_cover(SetCover(m, tuple(sets)))
        assert least == (len(sets) + 1 if found is None else len(found.chosen))
        assert found is None or found.gap == 0


def check_exact(instances, partial):
    for m, sets in instances:
        demand = (m + 1) // 2 if partial else m
        problem, least = SetCover(m, tuple(sets)), int(least_by_enumeration(np.array([sets]), demand)[0])
        exact, rounded = least_cover(problem, demand), rounded_cover(problem, demand)
        if least > len(sets):
            assert exact is rounded is None
            continue
        assert len(exact.chosen) == exact.least == least
        assert exact.gap == 0
        assert rounded.least <= least <= len(rounded.chosen)
        for found in (exact, rounded):
            assert problem.covered(found.chosen) >= demand
        shared = problem.member.sum(axis=1).max()
        assert partial or len(rounded.chosen) <= shared * least


@pytest.mark.parametrize("n", [3, 4, 5])
def test_greedy_can_be_fooled_and_the_others_tell(n):
    # Two sets split the elements; greedy prefers blocks of 2, 4, 8, ... that lie across both.
    width = 2**n - 1
    top, bottom = (1 << width) - 1, ((1 << width) - 1) << width
    blocks = [(((1 << 2**i) - 1) << (2**i - 1)) * (1 + (1 << width)) for i in range(n)]
    problem = SetCover(2 * width, (top, bottom, *blocks))
    greedy, exact, rounded = (solve(problem) for solve in (greedy_cover, least_cover, rounded_cover))
    assert len(exact.chosen) == 2
    assert len(greedy.chosen) == n
    assert greedy.gap > 0 == exact.gap
    assert rounded.least <= 2


def test_the_relaxation_of_the_fano_plane_has_a_gap():
    # Seven lines of three points, each point on three lines: 7/3 in shares, 3 sets in truth.
    lines = [(0, 1, 2), (0, 3, 4), (0, 5, 6), (1, 3, 5), (1, 4, 6), (2, 3, 6), (2, 4, 5)]
    problem = SetCover(7, tuple(sum(1 << point for point in line) for line in lines))
    rounded = rounded_cover(problem)
    assert rounded.least == 3 == math.ceil(7 / 3)
    assert len(least_cover(problem).chosen) == 3


@given(st.integers(1, 70), st.integers(1, 12), st.integers(0, 99))
def test_masks_and_tables_are_the_same(m, d, seed):
    member = np.random.default_rng(seed).random((m, d)) < 0.4
    problem = SetCover.of(member)
    assert np.array_equal(problem.member, member)
    chosen = list(range(0, d, 2))
    assert problem.covered(chosen) == member[:, chosen].any(axis=1).sum()


def test_effort_is_measured_for_every_solver():
    efforts = measure_effort([5, 12], np.random.default_rng(0))
    assert [(e.size, e.method) for e in efforts] == [
        (size, method) for size in (5, 12) for method in ("greedy", "rounded", "exact")
    ]
    assert all(e.seconds > 0 and 1 <= e.sets <= e.size for e in efforts)
    assert all(e.gap == 0 for e in efforts if e.method == "exact")


# --- the reduction ------------------------------------------------------------------------------


def check_reduction(m, masks, amplitude):
    """For every family of every instance: it covers n elements iff its change flips n bits."""
    d = masks.shape[1]
    families = (np.arange(2**d)[:, None] >> np.arange(d)) & 1
    covered, _ = covered_by_subset(masks)
    for sets, expected in zip(masks.tolist(), covered, strict=True):
        instance = reduce_cover(SetCover(m, tuple(sets)), amplitude)
        t = instance.matches(amplitude * families)
        assert np.array_equal(m - t, expected)


@pytest.mark.parametrize(("m", "d"), SHAPES)
def test_reduction_on_every_small_instance(m, d):
    check_reduction(m, unordered(m, d), 0.5)


@pytest.mark.slow
def test_reduction_on_every_instance_of_four_by_four_in_every_order():
    check_reduction(4, every(4, 4), 0.5)


@given(st.integers(0, 2**16 - 1), st.permutations(range(4)))
def test_renaming_sets_renames_parameters(bits, order):
    sets = [bits >> 4 * j & 15 for j in range(4)]
    first, second = (
        reduce_cover(SetCover(4, tuple(sets))),
        reduce_cover(SetCover(4, tuple(sets[j] for j in order))),
    )
    assert np.array_equal(first.weights[:, order], second.weights)


def test_reduction_on_ten_thousand_of_six_by_six():
    check_reduction(6, SIX, 3.0)


def test_certificates_go_both_ways_and_none_is_cheaper():
    check_certificates(SAMPLE[::2])


@pytest.mark.slow
@pytest.mark.parametrize(("m", "d"), SHAPES)
def test_certificates_on_every_small_instance(m, d):
    check_certificates([(m, sets) for sets in unordered(m, d).tolist()])


def check_certificates(instances):
    for m, sets in instances:
        problem = SetCover(m, tuple(sets))
        instance, best = reduce_cover(problem, 0.25), least_cover(problem)
        found = fewest_changes(instance)
        assert (best is None) == (found is None)
        if best is None:
            continue
        budget = len(best.chosen)
        assert removes(instance, change_of(instance, best.chosen), budget)
        assert not removes(instance, change_of(instance, best.chosen), budget - 1)
        assert found.changed == found.least == budget
        assert removes(instance, found.delta, budget)
        assert problem.covered(cover_of(found.delta)) == m


@given(
    st.integers(0, 2**16 - 1),
    st.lists(st.sampled_from([-3.0, -1.0, 0.0, 1.0, 2.5]), min_size=4, max_size=4),
)
def test_any_change_that_removes_is_a_cover_whatever_its_signs(bits, delta):
    problem = SetCover(4, tuple(bits >> 4 * j & 15 for j in range(4)))
    instance = reduce_cover(problem)
    flipped = 4 - int(instance.matches(delta))
    assert problem.covered(cover_of(delta)) >= flipped
    if removes(instance, delta, 4):
        assert problem.covered(cover_of(delta)) == 4


@pytest.mark.parametrize("tau", [1, 2, 4, 6])
def test_dropping_below_tau_is_partial_cover(tau):
    for sets in SIX[::1000].tolist():
        problem = SetCover(6, tuple(sets))
        best, found = least_cover(problem, 6 - tau + 1), fewest_changes(reduce_cover(problem), tau)
        assert (best is None) == (found is None)
        if best is not None:
            assert found.changed == len(best.chosen)
            assert found.matches < tau


def test_a_certificate_is_checked_in_all_its_parts():
    instance = reduce_cover(SetCover(2, (0b01, 0b10, 0b11)), amplitude=2.0)
    assert removes(instance, [0, 0, 2.0], 1)
    assert removes(instance, [2.0, 2.0, 0], 2)
    assert not removes(instance, [2.0, 2.0, 0], 1)  # over budget
    assert not removes(instance, [0, 0, 1.9], 1)  # too small a change
    assert not removes(instance, [2.0, 0, 0], 1)  # a bit still right
    assert removes(instance, [2.0, 0, 0], 1, tau=2)  # which a thief does not mind
    near = Removal(instance.weights, instance.thresholds, instance.theta, 2.0, reach=3.0)
    assert not removes(near, [0, 0, 4.0], 1)  # too large a change


# --- mixed keys and real heads ------------------------------------------------------------------


STEPS = np.concatenate([[0.0], np.arange(1, 4.1, 0.25), -np.arange(1, 4.1, 0.25)])
GRID = np.array(list(product(STEPS, repeat=3)))


@given(st.integers(0, 10**6), st.sampled_from([1, 3, 4]))
@settings(max_examples=40)
def test_mixed_keys_against_a_grid_of_changes(seed, tau):
    rng = np.random.default_rng(seed)
    weights, theta = rng.integers(0, 3, size=(5, 3)), rng.integers(-1, 2, size=3)
    # No point of the grid lies on a threshold, where a millionth would decide.
    instance = Removal(weights, rng.integers(-2, 3, size=5) + 0.3, theta, amplitude=1.0, reach=4.0)
    tried = np.count_nonzero(GRID[instance.matches(GRID) < tau], axis=1)
    found = fewest_changes(instance, tau)
    if found is None:
        assert tried.size == 0
        return
    assert removes(instance, found.delta, found.changed, tau)
    assert found.gap == 0
    assert not (tried < found.changed).any()


@pytest.fixture(scope="module")
def head_instance():
    """Return a head whose bits match a balanced key of 16, on non-negative embeddings."""
    rng = np.random.default_rng(3)
    embeddings = np.maximum(rng.normal(0.5, 1, size=(16, 4)), 0)
    head = PerceptionHead(4, nu=2.0)
    with torch.no_grad():
        head.weight.copy_(torch.tensor([[1.0, -1.0, 0.5, -0.7]]))
        logits = torch.logit(head(torch.from_numpy(embeddings).float()))
        head.bias.fill_(-float(logits.sort().values[7:9].mean()))
        said = head(torch.from_numpy(embeddings).float()).numpy() >= 0.5
    assert said.sum() == 8
    return of_head(head, embeddings, said), said


def test_an_instance_of_a_head_decodes_as_the_head_does(head_instance):
    instance, said = head_instance
    assert np.array_equal(instance.decode(instance.theta), said)
    assert instance.matches(np.zeros(5)) == 16


def test_one_bias_removes_what_flipping_all_bits_does_not(head_instance):
    instance, _ = head_instance
    tau = NULLS["exact"].threshold(16, 0.01)
    alone = np.zeros(5)
    alone[-1] = instance.reach
    assert instance.matches(alone) == 8 < tau  # half of a balanced key, and the whole mark is gone
    assert removes(instance, alone, 1, tau)
    thief, theorem = fewest_changes(instance, tau), fewest_changes(instance)
    assert thief.changed == 1
    assert theorem.changed > 1
    assert theorem.matches == 0
    assert theorem.gap == thief.gap == 0
    assert not theorem.checked  # the reach is an assumption that was not checked


def test_a_mark_already_gone_costs_nothing():
    instance = Removal(np.eye(3), np.zeros(3), np.ones(3), key=np.zeros(3, dtype=bool), reach=5.0)
    assert fewest_changes(instance).changed == 0


def test_a_bit_that_nothing_moves_cannot_be_flipped():
    instance = Removal([[1.0], [0.0]], [0.5, 0.5], [0.0])
    assert fewest_changes(instance) is None
    assert fewest_changes(instance, tau=2).changed == 1


@pytest.mark.parametrize(
    "call",
    [
        lambda: SetCover(2, (0b100,)),
        lambda: SetCover(0, (0,)),
        lambda: SetCover(2, ()),
        lambda: greedy_cover(SetCover(2, (1,)), 3),
        lambda: Removal([[-1.0]], [0.0], [0.0]),
        lambda: Removal([[1.0]], [0.0, 1.0], [0.0]),
        lambda: Removal([[1.0]], [math.nan], [0.0]),
        lambda: Removal([[1.0]], [0.0], [0.0], amplitude=0.0),
        lambda: Removal([[1.0]], [0.0], [0.0], key=np.array([True, False])),
        lambda: fewest_changes(Removal(np.eye(2), np.zeros(2), np.array([1.0, -1.0]))),
        lambda: fewest_changes(Removal([[1.0]], [0.0], [0.0]), tau=3),
    ],
)
def test_senseless_instances_are_refused(call):
    with pytest.raises(ParameterError) as caught:
        call()
    assert caught.value.advice


def test_random_instances_can_be_covered():
    problem = random_cover(40, 10, 0.01, np.random.default_rng(4))
    assert problem.covered(range(10)) == 40


# --- the monotone head --------------------------------------------------------------------------


@given(st.integers(0, 99), st.sampled_from([None, 1.0]))
def test_a_projected_head_is_monotone_in_its_embedding(seed, nu):
    torch.manual_seed(seed)
    head, low = PerceptionHead(6, nu=nu).double(), torch.randn(40, 6).double()
    more = torch.rand(40, 6).double()
    with torch.no_grad():
        head.weight[0, 0], head.weight[0, 1] = -5.0, 0.5
        assert not monotone.is_monotone(head.weight)
        assert head(low + torch.tensor([1.0, 0, 0, 0, 0, 0])).lt(head(low)).all()  # before, it is not
        head.weight.copy_(monotone.project(head.weight))
        assert monotone.is_monotone(head.weight)
        assert (head(low + more) >= head(low)).all()


@given(st.lists(st.floats(-3, 3), min_size=1, max_size=8))
def test_projection_is_the_nearest_and_the_heads_own(values):
    weight = torch.tensor([values], dtype=torch.float64)
    near = monotone.project(weight)
    assert near.equal(monotone.project(near))
    assert float(monotone.penalty(weight)) == pytest.approx(sum(v * v for v in values if v < 0))
    for other in (weight.abs(), near + 0.1, torch.zeros_like(weight)):
        assert (other - weight).norm() >= (near - weight).norm() - 1e-12
    if (weight > 0).any():
        head = PerceptionHead(len(values), non_negative=True).double()
        with torch.no_grad():
            head.weight.copy_(weight)
        head.project()
        assert head.weight.detach().equal(near)


def test_descending_the_penalty_leads_to_monotone_weights():
    weight = torch.tensor([[-2.0, 0.5, -0.1]], requires_grad=True)
    for _ in range(60):
        (gradient,) = torch.autograd.grad(monotone.penalty(weight), weight)
        weight = (weight - 0.25 * gradient).detach().requires_grad_()
    assert monotone.penalty(weight).item() < 1e-10
    assert weight[0, 1].item() == 0.5


def test_group_l1_is_the_norm_of_columns_and_empties_them():
    weight = torch.tensor([[3.0, 0.0, 1.0], [4.0, 0.0, 0.0]], requires_grad=True)
    value = monotone.group_l1(weight)
    assert value.item() == pytest.approx(6.0)
    (gradient,) = torch.autograd.grad(value, weight)
    assert torch.isfinite(gradient).all()
    assert gradient[:, 0].tolist() == pytest.approx([0.6, 0.8])
    assert monotone.is_monotone((weight - 0.5 * gradient).detach())
