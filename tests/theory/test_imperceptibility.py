"""Theorem 1: constants compared with closed forms, the bound with losses of known minima."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.optimize import least_squares
from torch import nn
from torch.nn.functional import cross_entropy

from invgnn.errors import ParameterError
from invgnn.nn.perception import attach_head
from invgnn.theory.curvature import curvature, huber_line, trimmed
from invgnn.theory.imperceptibility import PAPER_CONSTANTS, beta_max, check_theorem, gap_bound, pull_bound
from invgnn.theory.lipschitz import Lipschitz, jacobian_norms, perceive, perceived, perception_norms
from invgnn.theory.neighbourhood import TaskLoss, place_of, squared, survey
from invgnn.training.tasks import new_model
from invgnn.watermark.losses import SCORE_WEIGHT
from invgnn.watermark.recipe import Recipe

# --- the line


@given(st.integers(0, 10**6), st.integers(3, 40), st.floats(0.01, 3))
def test_huber_agrees_with_scipy(seed, size, delta):
    rng = np.random.default_rng(seed)
    x = rng.uniform(0.1, 2, size)
    y = 3 * x + rng.standard_t(2, size)
    slope = huber_line(x, y, delta=delta).slope
    found = least_squares(
        lambda b: y - b[0] * x, [3.0], loss="huber", f_scale=delta, xtol=1e-15, ftol=1e-15, gtol=1e-15
    )

    def cost(b):
        e = np.abs(y - b * x)
        return np.where(e <= delta, e**2 / 2, delta * (e - delta / 2)).sum()

    assert cost(slope) <= cost(found.x[0]) * (1 + 1e-12)
    assert slope == pytest.approx(found.x[0], rel=1e-3, abs=1e-3)


def test_a_wide_huber_is_least_squares_and_a_narrow_one_shrugs_off_an_outlier():
    x, y = np.arange(1.0, 11), 2 * np.arange(1.0, 11)
    y[-1] = 1000
    assert huber_line(x, y, delta=1e9).slope == pytest.approx((x @ y) / (x @ x))
    assert huber_line(x, y).slope == pytest.approx(2)


def test_points_on_a_line_have_its_slope_for_certain():
    line = huber_line([1, 2, 5], [3, 6, 15])
    assert (line.slope, line.low) == (3, 3)


def test_the_lower_bound_covers_as_often_as_it_says():
    rng, below = np.random.default_rng(0), 0
    for _ in range(600):
        x = rng.uniform(0.5, 2, 40)
        below += huber_line(x, 3 * x + rng.normal(size=40)).low <= 3
    assert 0.925 <= below / 600 <= 0.975  # 95 % up to three standard errors


def test_trimming_drops_the_largest_twentieth():
    kept = trimmed(np.arange(40)[::-1], 0.05)
    assert np.flatnonzero(~kept).tolist() == [0, 1]
    assert trimmed(np.arange(19), 0.05).all()
    assert trimmed([], 0.05).shape == (0,)


# --- mu on quadratics, where it is known


def test_a_round_bowl_has_its_curvature_in_all_three_ways():
    """L = a/2 r²: the squared gradient is 2a times the loss, so the slope is 2a and μ is a."""
    r, a = np.linspace(0, 2, 30), 0.7
    found = curvature(a / 2 * r**2, (a * r) ** 2)
    assert found.slope == pytest.approx(2 * a)
    assert found.fitted == pytest.approx(a)
    assert found.envelope == pytest.approx(a)
    assert found.points == 30


@given(arrays(np.float64, 5, elements=st.floats(0.1, 10)), st.integers(0, 10**6))
def test_the_envelope_is_the_least_eigenvalue_and_the_regression_is_above_it(eigenvalues, seed):
    points = np.concatenate([np.random.default_rng(seed).normal(size=(60, 5)), np.eye(5), np.zeros((1, 5))])
    losses, squares = points**2 @ eigenvalues / 2, points**2 @ eigenvalues**2
    found = curvature(losses, squares)
    assert found.envelope == pytest.approx(eigenvalues.min())
    assert found.slope / 2 >= found.envelope * (1 - 1e-9)
    assert (squares / 2 >= found.envelope * losses * (1 - 1e-12)).all()


def test_a_regression_is_no_bound():
    """Half of the points lie below a line: the confidence of its slope does not bound the worst."""
    eigenvalues = np.array([1.0, 100.0])
    points = np.random.default_rng(1).normal(size=(200, 2))
    points = np.concatenate([points, [[1, 0], [0, 0]]])
    losses, squares = points**2 @ eigenvalues / 2, points**2 @ eigenvalues**2
    found = curvature(losses, squares)
    assert found.envelope == pytest.approx(1)
    assert found.fitted > 50
    assert found.assumptions[-1].holds is False
    assert not found.checked


def test_an_unknown_minimum_costs():
    r = np.linspace(1, 2, 30)
    found = curvature(0.5 + r**2 / 2, r**2)
    assert found.from_zero == pytest.approx((r**2 / (1 + r**2)).min())
    assert found.from_zero < found.envelope


@pytest.mark.parametrize(
    ("losses", "squares"),
    [([1, 1, 1, 1], [1, 1, 1, 1]), ([1, 2], [1]), ([1, 2, 3, math.nan], [1, 1, 1, 1])],
)
def test_too_little_or_too_wild(losses, squares):
    with pytest.raises(ParameterError):
        curvature(losses, squares)


# --- the bound

POSITIVE = st.floats(1e-3, 1e3)


@given(POSITIVE, POSITIVE, POSITIVE)
def test_the_bounds_by_definition(mu, eps, steep):
    corrected, literal = beta_max(mu, eps, steep), beta_max(mu, eps, steep, "paper")
    assert corrected == pytest.approx(math.sqrt(mu * eps / 2) / steep)
    assert literal == pytest.approx(2 * corrected)
    assert gap_bound(corrected, mu, steep) == pytest.approx(eps)
    assert gap_bound(literal, mu, steep) == pytest.approx(4 * eps)


@given(arrays(np.float64, 4, elements=st.floats(0.1, 10)), st.integers(0, 10**6), st.floats(0, 1), POSITIVE)
def test_below_the_corrected_bound_the_task_stays_within_eps(eigenvalues, seed, share, eps):
    """L = ½ θᵀAθ with a linear mark of slope 2 L_s, the steepest the lemma allows, has θ~ = -β A⁻¹ c."""
    rng = np.random.default_rng(seed)
    turn = np.linalg.qr(rng.normal(size=(4, 4)))[0]
    task, slope = turn @ np.diag(eigenvalues) @ turn.T, rng.normal(size=4)
    steep = np.linalg.norm(slope) / 2
    at = -share * beta_max(eigenvalues.min(), eps, steep) * np.linalg.solve(task, slope)
    assert at @ task @ at / 2 <= eps * (1 + 1e-9)


@given(arrays(np.float64, 3, elements=st.floats(0.5, 5)), st.integers(0, 10**6), st.floats(0.01, 1))
def test_below_the_corrected_bound_with_the_papers_own_loss(eigenvalues, seed, eps):
    """Perceptions ½ + v·θ, mean squares to targets in [0, 1]: the joint minimum is a linear system."""
    rng = np.random.default_rng(seed)
    v, targets = rng.normal(size=(6, 3)), rng.uniform(size=6)
    steep = np.linalg.norm(v, axis=1).max()
    beta = beta_max(eigenvalues.min(), eps, steep)
    hessian = np.diag(eigenvalues) + 2 * beta / 6 * v.T @ v
    at = np.linalg.solve(hessian, 2 * beta / 6 * v.T @ (targets - 0.5))
    said = 0.5 + v @ at
    assume((said >= 0).all() and (said <= 1).all())
    assert eigenvalues @ at**2 / 2 <= eps * (1 + 1e-9)


def test_at_the_literal_bound_the_task_can_lose_four_times_eps():
    mu, steep, eps = 0.42, 1880.0, 0.02
    slope = np.array([2 * steep, 0])  # along the flattest direction
    for bound, times in (("corrected", 1), ("paper", 4)):
        at = -beta_max(mu, eps, steep, bound) * slope / mu
        assert mu * at @ at / 2 == pytest.approx(times * eps)


def test_every_weight_the_paper_chose_exceeds_what_its_proof_allows():
    over, over_literal = [], []
    for name, (eps, mu, steep, beta) in PAPER_CONSTANTS.items():
        assert beta <= beta_max(mu, eps, steep, "paper")
        if beta > beta_max(mu, eps, steep):
            over.append(name)
        if beta > beta_max(mu, eps, Lipschitz(steep).value, "paper"):
            over_literal.append(name)
    assert over == list(PAPER_CONSTANTS)
    assert over_literal == ["PubMed/GCN", "Photo/GraphSAGE"]
    eps, mu, steep, _ = PAPER_CONSTANTS["PROTEINS/GIN"]
    assert f"{beta_max(mu, eps, steep):.3g}" == "3.45e-05"
    assert f"{beta_max(mu, eps, steep, 'paper'):.3g}" == "6.89e-05"


def test_edges_of_the_bound():
    assert beta_max(1, 1, 0) == math.inf
    assert beta_max(0, 1, 1) == 0
    assert gap_bound(1, 0, 1) == math.inf
    assert gap_bound(0, 0, 1) == 0
    assert pull_bound(0.5, 3) == 3
    for wrong in ((-1, 1, 1), (1, math.nan, 1), (1, 1, math.inf)):
        with pytest.raises(ParameterError):
            beta_max(*wrong)
    with pytest.raises(ParameterError, match="bound"):
        beta_max(1, 1, 1, "loose")


def test_the_theorem_on_a_model():
    facts = {"beta_max": 1.0, "eps": 0.1, "gradient": 0.5, "lipschitz": 1.0, "distance": 1.0, "radius": 2.0}
    fine = check_theorem(beta=0.5, gap=0.05, fixed_buffers=True, **facts)
    assert (fine.standing, fine.pull, fine.inside) == ("held", 1.0, True)
    assert [a.holds for a in fine.assumptions] == [True, True, True, True, None, None]
    assert not fine.checked  # nobody can look everywhere
    assert check_theorem(beta=0.5, gap=0.2, **facts).standing == "did not hold"
    assert check_theorem(beta=1.5, gap=0.05, **facts).standing == "vacuous"
    far = check_theorem(beta=0.1, gap=0.05, **{**facts, "distance": 3.0})
    assert [a.holds for a in far.assumptions][:3] == [True, False, False]


# --- L_s


def test_jacobian_norms_of_linear_maps():
    torch.manual_seed(0)
    layer, x = nn.Linear(5, 1).double(), torch.randn(7, 5, dtype=torch.float64)
    unused = torch.ones(3, requires_grad=True)
    norms = jacobian_norms(layer(x).squeeze(-1), [*layer.parameters(), unused])
    torch.testing.assert_close(norms, (x.square().sum(1) + 1).sqrt())
    said = torch.sigmoid(layer(x).squeeze(-1))
    slope = (said * (1 - said)).detach()
    torch.testing.assert_close(
        jacobian_norms(said, list(layer.parameters())), slope * (x.square().sum(1) + 1).sqrt()
    )
    assert jacobian_norms(said, [unused]).tolist() == [0] * 7


ACCESSES = [("perception", "plain"), ("embedding", "keyed"), ("logits", "keyed")]


def made(motifs, draw, access, key):
    torch.manual_seed(1)
    model = new_model(motifs, "GIN", 1, hidden_channels=8)
    if access == "perception":
        attach_head(model, 8)
    recipe = Recipe(loss="mse", beta=0.7, gradient_projection=False)
    return model.eval(), draw(access=access, key=key, recipe=recipe)


@pytest.mark.parametrize(("access", "key"), ACCESSES)
def test_what_is_perceived_is_what_the_loss_of_the_mark_acts_on(motifs, draw, access, key):
    model, mark = made(motifs, draw, access, key)
    said = perceive(model, mark, mark.carriers)
    assert ((said >= 0) & (said <= 1)).all()
    loss = (said - torch.from_numpy(mark.targets)).square().mean()
    share = SCORE_WEIGHT if access == "logits" else 1.0
    assert 0.7 * share * loss.item() == pytest.approx(mark.loss(model).item(), rel=1e-5)
    np.testing.assert_allclose(perceived(model, mark, mark.carriers), said.detach().numpy(), rtol=1e-6)


@pytest.mark.parametrize(("access", "key"), ACCESSES)
def test_perception_norms_are_the_gradients_and_leave_the_model_alone(motifs, draw, access, key, unchanged):
    model, mark = made(motifs, draw, access, key)
    told = []
    with unchanged(model.train()):
        norms = perception_norms(model, mark, mark.carriers, progress=told.append)
    assert sum(told) == mark.m
    assert norms.shape == (mark.m,)
    model.eval().double()  # differences need the digits
    weights, one = list(model.parameters()), mark.carriers.take([3])

    def said(step):
        with torch.no_grad():
            for weight, way in zip(weights, ways, strict=True):
                weight.add_(way, alpha=step)
            return float(perceive(model, mark, one)[0])

    found = torch.autograd.grad(perceive(model, mark, one)[0], weights, allow_unused=True)
    ways = [torch.zeros_like(w) if g is None else g / norms[3] for w, g in zip(weights, found, strict=True)]
    slope = (said(1e-6) - said(-2e-6)) / 2e-6  # along the gradient, where it is the norm
    assert norms[3] == pytest.approx(slope, rel=1e-4)


def test_the_gradient_of_the_marks_loss_obeys_the_lemma(motifs, draw):
    model, mark = made(motifs, draw, "perception", "plain")
    steep = perception_norms(model, mark, mark.carriers).max()
    grads = torch.autograd.grad(mark.loss(model) / 0.7, list(model.parameters()), allow_unused=True)
    assert math.sqrt(sum(float(g.square().sum()) for g in grads if g is not None)) <= pull_bound(1, steep)


def test_labels_have_no_gradient(motifs, draw):
    model = new_model(motifs, "GIN", 1, hidden_channels=8)
    with pytest.raises(ParameterError, match="gradient"):
        perceive(model, draw(access="labels"), draw().carriers)


def test_the_buffer_is_a_convention():
    assert Lipschitz(100.0).value == pytest.approx(112)
    assert Lipschitz(100.0).covers is None
    assert Lipschitz(100.0, nearby=111.0).covers is True
    assert Lipschitz(100.0, nearby=113.0).covers is False
    assert [a.holds for a in Lipschitz(100.0, nearby=113.0).assumptions] == [None, False]


# --- the neighbourhood


@pytest.mark.parametrize("level", ["graph", "node"])
def test_task_loss_and_gradient(motifs, web, level, unchanged):
    task = {"graph": motifs, "node": web}[level]
    model = new_model(task, "GIN", 2, hidden_channels=8)
    attach_head(model, 8)
    with unchanged(model):
        value, gradient = TaskLoss(task)(model)
    assert not any(name.startswith("perception") for name in gradient)
    model.eval()
    if level == "node":
        data = task.graphs[0]
        loss = cross_entropy(model(data.x, data.edge_index)[task.train], data.y[task.train])
    else:
        chosen = [task.graphs[i] for i in task.train.tolist()]
        each = [
            cross_entropy(model(g.x, g.edge_index, torch.zeros(g.num_nodes, dtype=torch.long)), g.y)
            for g in chosen
        ]
        loss = torch.stack(each).mean()
    loss.backward()
    assert value == pytest.approx(loss.item(), rel=1e-5)
    own = sum(float(p.grad.square().sum()) for p in model.parameters() if p.grad is not None)
    assert squared(gradient) == pytest.approx(own, rel=1e-4)


def test_a_survey_has_two_points_per_state_around_the_best(motifs):
    model = new_model(motifs, "GCN", 0, hidden_channels=8)
    states, told = [], []
    for seed in range(3):
        states.append({k: v.clone() for k, v in new_model(motifs, "GCN", seed, 8).state_dict().items()})
    loss = TaskLoss(motifs)
    before = place_of(model, loss(model)[1])
    found = survey(model, loss, states, steps=2, lr=1e-3, tick=told.append)
    assert len(found.losses) == len(found.squares) == 6
    assert told == [1, 1, 1]
    assert (np.diff(np.reshape(found.losses, (3, 2))) < 0).all()  # small steps go downhill
    twin = new_model(motifs, "GCN", 2, 8)
    value, gradient = loss(twin)
    assert found.losses[4] == pytest.approx(value)
    assert found.squares[4] == pytest.approx(squared(gradient))
    assert found.distance(place_of(twin, gradient)) <= found.radius
    assert found.least == min(found.losses)
    assert torch.equal(before, place_of(model, loss(model)[1]))
    assert found.curvature().points == 6
