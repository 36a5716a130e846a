"""The paper's head: its norm, its allowed weights, and a mark read through it."""

from __future__ import annotations

import copy

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from invgnn.audit.verify import verify
from invgnn.errors import ParameterError, SuspectError
from invgnn.nn.perception import PerceptionHead, attach_head, squared_gradient
from invgnn.training.tasks import new_model
from invgnn.training.trainer import train


@given(st.floats(0.1, 9), st.integers(1, 20), st.floats(0.01, 100))
def test_operator_norm_is_exactly_nu(nu, width, scale):
    head = PerceptionHead(width, nu=nu).double()
    with torch.no_grad():
        head.weight.mul_(scale)
    x = torch.zeros(width, dtype=torch.float64)
    jacobian = torch.autograd.functional.jacobian(lambda e: torch.logit(head(e[None])), x)
    assert float(torch.linalg.matrix_norm(jacobian.view(1, -1), 2)) == pytest.approx(nu)
    assert not list(head.buffers())


@given(st.integers(0, 99))
def test_free_without_nu(seed):
    torch.manual_seed(seed)
    head, x = PerceptionHead(4, nu=None), torch.randn(5, 4)
    expected = torch.sigmoid(x @ head.weight[0] + head.bias)
    torch.testing.assert_close(head(x), expected)
    assert ((head(x) > 0) & (head(x) < 1)).all()


@given(st.integers(0, 99), st.booleans())
def test_a_non_negative_head_is_monotone_and_stays_so(seed, negative):
    torch.manual_seed(seed)
    head = PerceptionHead(6, non_negative=True, clip=0.3)
    with torch.no_grad():
        head.weight.copy_(torch.randn(1, 6) - 9 * negative)
    head.project()
    kept = head.weight.detach().clone()
    assert kept.min() >= 0
    assert 0 < kept.max() <= 0.3 + 1e-6  # never all zero: that would be blind
    head.project()
    assert kept.equal(head.weight)
    low = torch.randn(50, 6)
    assert (head(low + torch.rand(50, 6)) >= head(low) - 1e-6).all()


@given(st.floats(0.01, 1))
def test_clipping_bounds_every_weight(clip):
    head = PerceptionHead(8, clip=clip)
    with torch.no_grad():
        head.weight.mul_(100)
    head.project()
    assert float(head.weight.detach().abs().max()) == pytest.approx(clip)


def test_gradient_penalty_is_the_squared_norm():
    head, x = PerceptionHead(3).double(), torch.randn(4, 3, dtype=torch.float64)
    weights = [*head.parameters(), torch.ones(1, requires_grad=True)]
    penalty = squared_gradient(head(x), weights)
    assert all(g is not None for g in torch.autograd.grad(penalty, weights[:2], retain_graph=True))
    expected = 0.0
    for weight in weights[:2]:
        for place in range(weight.numel()):
            with torch.no_grad():
                ends = []
                for by in (1e-6, -2e-6):
                    weight.view(-1)[place] += by
                    ends.append(float(head(x).mean()))
                weight.view(-1)[place] += 1e-6
            expected += ((ends[0] - ends[1]) / 2e-6) ** 2
    assert penalty.item() == pytest.approx(expected, rel=1e-5)


def test_a_head_is_two_keys_and_reloads_strictly(motifs):
    model = new_model(motifs, "GIN", 0, hidden_channels=8)
    bare, plain = copy.deepcopy(model), set(model.state_dict())
    head = attach_head(model, 8, nu=2.0)
    assert model.perception is head
    assert set(model.state_dict()) - plain == {"perception.weight", "perception.bias"}
    attach_head(bare, 8, nu=2.0)
    assert bare.load_state_dict(model.state_dict(), strict=True)
    x = torch.randn(3, 8)
    torch.testing.assert_close(bare.perception(x), head(x))
    with pytest.raises(ParameterError, match="already"):
        attach_head(model, 8)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_a_head_has_the_models_precision(motifs, dtype):
    model = new_model(motifs, "GIN", 0, hidden_channels=8).to(dtype)
    assert attach_head(model, 8).weight.dtype == dtype


def test_a_mark_is_read_at_perception(motifs, draw):
    mark, model = draw(m=16, access="perception"), new_model(motifs, "GIN", 0, hidden_channels=32)
    with pytest.raises(SuspectError, match="no perception head") as caught:
        verify(model, mark)
    assert "attach_head" in caught.value.advice
    torch.manual_seed(0)
    attach_head(model, 32, nu=None)
    train(model, motifs, mark, epochs=40, batch_size=40)
    answers = mark.read(model)
    assert ((answers.carriers > 0) & (answers.carriers < 1)).all()
    verdict = verify(model, mark, 0.01)
    assert verdict.access == "perception"
    assert verdict.matches == ((answers.carriers >= 0.5) == mark.bits).sum()
    assert verdict.evidence_bits > 7


def test_a_head_of_the_wrong_width_is_reported(motifs, draw):
    model = new_model(motifs, "GIN", 0, hidden_channels=8)
    attach_head(model, 9)
    with pytest.raises(SuspectError, match="perception head failed"):
        draw(access="perception").read(model)


def test_nu_is_positive():
    with pytest.raises(ParameterError) as caught:
        PerceptionHead(3, nu=0.0)
    assert caught.value.advice
    with pytest.raises(ParameterError, match="gradient_penalty=-1"):
        PerceptionHead(3, gradient_penalty=-1)


def test_a_head_penalises_its_gradient(draw, motifs):
    model = new_model(motifs, "GCN", 1, hidden_channels=3).double().eval()
    head, mark, losses = attach_head(model, 3), draw(access="perception"), {}
    for head.gradient_penalty in (0.0, 1.0, 2.0):
        losses[head.gradient_penalty] = mark.loss(model)
    step = (losses[1.0] - losses[0.0]).item()
    assert step > 0
    assert (losses[2.0] - losses[0.0]).item() == pytest.approx(2 * step, rel=1e-4)
    losses[1.0].backward()
    assert model.perception.weight.grad.abs().sum() > 0
