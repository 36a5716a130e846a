"""A budget of presentations is spent at the end of a run, and never in its warm-up steps."""

from __future__ import annotations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from invgnn.errors import ParameterError
from invgnn.watermark.plan import Plan
from invgnn.watermark.recipe import Recipe

SIZES = st.integers(1, 300)


@st.composite
def plans(draw):
    """Return the options of a run and its plan."""
    m, steps = draw(SIZES), draw(st.integers(1, 600))
    given = {
        "presentations": draw(st.integers(1, 500)),
        "carriers": draw(st.integers(1, 64)),
        "warmup_steps": draw(st.integers(0, 200)),
    }
    return m, steps, given, Plan.spread(m, steps, **given)


def used(plan, steps=None):
    """Return the steps that use carriers, and how they are numbered."""
    found = [(step, plan.use(step)) for step in range(plan.steps if steps is None else steps)]
    return [step for step, use in found if use is not None], [use for _, use in found if use is not None]


@given(plans())
def test_uses_are_numbered_in_order_and_as_many_as_promised(run):
    _, _, _, plan = run
    steps, numbers = used(plan)
    assert numbers == list(range(plan.uses))
    assert len(steps) == plan.uses


@given(plans())
def test_warm_up_steps_use_no_carriers(run):
    _, steps, given, plan = run
    assert plan.first >= min(given["warmup_steps"], steps // 5)
    assert min(used(plan)[0]) == plan.first


@given(plans())
def test_every_step_from_the_first_use_to_the_last_step_uses_carriers(run):
    _, steps, _, plan = run
    assert used(plan)[0] == list(range(plan.first, steps))


@given(plans())
def test_a_run_that_is_long_enough_reaches_its_budget_and_no_more(run):
    m, _, given, plan = run
    total, left = given["presentations"] * m, plan.steps - min(given["warmup_steps"], plan.steps // 5)
    made = plan.uses * plan.count
    assert plan.presentations == made / m
    if given["presentations"] <= left:
        assert total <= made < total + plan.count
    else:  # every step uses all carriers, and that is all that can be done
        assert (plan.uses, plan.count) == (left, m)
    assert plan.scarce == (made < 0.5 * total)
    assert plan.complete == (made >= total)


@given(plans())
def test_a_step_uses_no_more_carriers_than_the_budget_needs(run):
    m, steps, given, plan = run
    least, total = min(m, given["carriers"]), given["presentations"] * m
    left = steps - min(given["warmup_steps"], steps // 5)
    assert least <= plan.count <= m
    if least * left >= total:
        assert plan.count == least
    if plan.count > least:
        assert (plan.count - 1) * left < total


@given(plans())
def test_a_run_that_goes_on_beyond_its_end_uses_carriers(run):
    _, _, _, plan = run
    assert used(plan, plan.steps + 9)[1] == list(range(plan.uses + 9))


@given(st.integers(2, 300), st.integers(10, 300))
def test_longer_runs_cost_the_same(m, presentations):
    """Once every step needs only the least number of carriers, more steps mean no more uses."""
    long = presentations * m
    plans = [Recipe(presentations=presentations).plan(m, steps) for steps in (2 * long, 5 * long)]
    assume(plans[0].count == plans[1].count)
    assert plans[0].uses == plans[1].uses


@pytest.mark.parametrize("steps", [0, -1])
def test_a_run_without_steps_is_refused(steps):
    with pytest.raises(ParameterError, match=f"a run of {steps} steps") as caught:
        Recipe().plan(16, steps)
    assert caught.value.advice


def test_a_plan_by_hand():
    """Ten presentations of 8 carriers, at least 4 in a step: the last 20 steps."""
    plan = Recipe(presentations=10, carriers=4, warmup_steps=10).plan(8, 50)
    assert (plan.first, plan.count, plan.uses, plan.presentations) == (30, 4, 20, 10.0)
    assert not plan.scarce
    assert str(plan) == "4 of 8 carriers in 20 of 50 optimiser steps: 10 presentations of each carrier"


def test_passes_of_their_own_use_more_carriers_in_fewer_steps():
    mixed, apart = (Recipe(presentations=120).plan(128, 2000, apart=apart) for apart in (False, True))
    assert (mixed.count, mixed.uses) == (10, 1536)
    assert (apart.count, apart.uses) == (48, 320)
    chosen = Recipe(presentations=120, carriers=16)
    assert chosen.plan(128, 2000, apart=True) == chosen.plan(128, 2000)


@pytest.mark.parametrize(("steps", "scarce"), [(49, True), (50, False)])
def test_half_the_budget_is_not_scarce(steps, scarce):
    assert Recipe(presentations=100, warmup_steps=0).plan(8, steps).scarce == scarce
