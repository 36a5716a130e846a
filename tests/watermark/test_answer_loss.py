"""The loss in one node against the same loss, operation by operation."""

import pytest
import torch
from torch import Tensor
from torch.nn.functional import softplus

from invgnn.readout.reading import standardise
from invgnn.watermark.answer_loss import answer_loss
from invgnn.watermark.losses import MARGIN, SCORE_WEIGHT, SPREAD_SHARE, in_nats

LEVELS = ("embedding", "logits", "values", "labels")


def in_spreads(answers: Tensor, ordinary: Tensor, bits: Tensor) -> Tensor:
    values = ordinary.detach()
    floor = 1e-3 * values.abs().mean() + 1e-6
    middle = ordinary.mean()
    if 0 < bits.sum() < len(bits):
        middle = (answers[bits == 1].mean() + answers[bits == 0].mean()) / 2
    return (answers - middle) / (SPREAD_SHARE * torch.maximum(values.std(correction=0), floor))


def logistic_loss(standard: Tensor, bits: Tensor) -> Tensor:
    return softplus(MARGIN - (2 * bits - 1) * standard, beta=2).mean(-1)


def mse_loss(standard: Tensor, targets: Tensor) -> Tensor:
    return (torch.sigmoid(standard) - targets).square().mean(-1)


def reference_loss(answers, levels, natural, carriers, ordinary, wanted, loss) -> Tensor:
    scales = {
        "embedding": lambda a, o, n: standardise(a, o, n),
        "logits": lambda a, o, n: in_nats(a, o),
        "values": lambda a, o, n: in_spreads(a, o, wanted),
        "labels": lambda a, o, n: a,
    }
    each = {"logistic": logistic_loss, "mse": mse_loss}[loss]
    total = answers.new_zeros(())
    for row, level, spread in zip(answers, levels, natural, strict=True):
        weight = SCORE_WEIGHT if level in {"logits", "values"} else 1.0
        total = total + weight * each(scales[level](row[carriers], row[ordinary], spread), wanted)
    return total


def case(levels, seed, scale=1.0, first="carriers"):
    g = torch.Generator().manual_seed(seed)
    answers = (scale * torch.randn(len(levels), 20, generator=g, dtype=torch.float64)).requires_grad_()
    carriers, ordinary = (
        (slice(0, 8), slice(8, None)) if first == "carriers" else (slice(12, 20), slice(12))
    )
    bits = torch.randint(2, (8,), generator=g).double()
    natural = torch.rand(len(levels), generator=g, dtype=torch.float64)
    natural *= torch.tensor([level == "embedding" for level in levels])
    return answers, levels, natural, carriers, ordinary, bits


@pytest.mark.parametrize("loss", ["logistic", "mse"])
@pytest.mark.parametrize("first", ["carriers", "ordinary"])
@pytest.mark.parametrize("levels", [(level,) for level in LEVELS] + [LEVELS, ("embedding", "logits")])
@pytest.mark.parametrize("scale", [1e-9, 0.1, 1.0, 30.0])
def test_loss_and_gradient_are_those_of_the_reference(levels, first, loss, scale):
    for seed in range(3):
        arguments = case(levels, seed, scale, first)
        found, wanted = answer_loss(*arguments, loss), reference_loss(*arguments, loss)
        assert found.item() == pytest.approx(wanted.item(), rel=1e-12)
        gradients = [torch.autograd.grad(3 * each, arguments[0])[0] for each in (found, wanted)]
        torch.testing.assert_close(*gradients, rtol=1e-6, atol=1e-7 * float(gradients[1].abs().max()))


@pytest.mark.parametrize("natural", [0.0, 1e3])
def test_gradient_is_that_of_finite_differences(natural):
    answers, levels, _, carriers, ordinary, bits = case(("embedding", "logits", "labels"), 5)
    limit = torch.full((3,), natural, dtype=torch.float64)

    def loss(values):
        return answer_loss(values, levels, limit, carriers, ordinary, bits, "logistic")

    assert torch.autograd.gradcheck(loss, answers)


def test_spread_below_its_limit_has_no_gradient():
    answers, _, _, carriers, ordinary, bits = case(("embedding",), 1)
    wide = torch.full((1,), 1e3, dtype=torch.float64)
    loss = answer_loss(answers, ("embedding",), wide, carriers, ordinary, bits, "logistic")
    (gradient,) = torch.autograd.grad(loss, answers)
    usual = gradient[0, ordinary]
    assert usual.abs().max() > 0
    assert usual.max() - usual.min() < 1e-12  # only the mean of the ordinary answers counts


def test_one_ordinary_input_and_equal_answers_give_a_finite_gradient():
    for columns in (9, 12):
        answers = torch.ones(2, columns, requires_grad=True)
        loss = answer_loss(
            answers,
            ("embedding", "values"),
            torch.zeros(2),
            slice(8),
            slice(8, None),
            torch.ones(8),
            "logistic",
        )
        (gradient,) = torch.autograd.grad(loss, answers)
        assert torch.isfinite(gradient).all()
        assert gradient[:, :8].abs().min() > 0


@pytest.mark.parametrize("loss", ["logistic", "mse"])
def test_losses_fall_towards_the_bits(loss):
    bits, usual = torch.tensor([0.0, 1.0]), torch.tensor([-1.0, 1.0])
    found = [
        answer_loss(
            torch.cat([sign * torch.tensor([-2.0, 2.0]), usual])[None],
            ("embedding",),
            torch.zeros(1),
            slice(2),
            slice(2, None),
            bits,
            loss,
        )
        for sign in (1, 0, -1)
    ]
    assert found[0] < found[1] < found[2]


@pytest.mark.parametrize("bits", [[0, 1, 0, 1, 1, 1, 0, 0], [1, 1, 1, 1, 1, 1, 1, 0]])
def test_real_outputs_are_told_apart_wherever_they_lie(bits):
    """Carriers far from all ordinary inputs need not move there: they are decoded at their own median."""
    answers, levels, natural, carriers, ordinary, _ = case(("values", "embedding"), 4)
    moved = answers.detach().clone()
    moved[:, carriers] += 50.0
    found, after = (
        [
            float(answer_loss(rows[i : i + 1], levels[i : i + 1], natural[i : i + 1], carriers, ordinary,
                              torch.tensor(bits).double(), "logistic"))
            for i in range(2)
        ]
        for rows in (answers.detach(), moved)
    )  # fmt: skip
    assert after[0] == pytest.approx(found[0])
    assert after[1] > found[1] + 1
