"""How strongly and by which loss a mark is embedded: pure functions and their settings."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal, get_args

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.functional import kl_div, log_softmax

from invgnn.checks import check_choice, check_flag, check_number, check_whole
from invgnn.errors import ParameterError
from invgnn.parallel import mean_over

Loss = Literal["logistic", "mse"]
TURNS = 12
"""How often in an epoch a carrier is taught: on NCI1-GIN as good as every step, for a third of the work."""


@dataclass(frozen=True)
class Recipe:
    """Settings of the embedding; none of them changes how a suspect is read.

    loss      `logistic` on the signed answer, or the paper's `mse` to the target
    beta      weight beside a mean task loss, on average over the steps; answers are standardised, so it
              means the same everywhere
    margin    how far beyond the task's mean a carrier should answer, in standard deviations of the
              model's answers on task inputs
    joint     carriers ride in the task batch (one forward) instead of a forward of their own
    ratio     share of carriers in a joint batch (node tasks: share of the carriers used per step);
              None: all of them in every step, in `train` at most a dozen times an epoch
    every     carriers ride in every so-many-th step only, with that many times the weight and, given a
              ratio, the share (all of them at most): cheaper than a few in every step, often learning less
    noise     weight noise under which the mark is trained, relative to the mean absolute weight
    simulate  steps without the mark, simulated before its gradient is taken
    penalty   weight of the squared gradient of the paper's head with respect to all parameters
    guard     what of the mark's gradient points against the task's is taken out of it (`guarded`)
    cap       with the guard: how many times as hard as the task the mark may pull at most (None: no limit)
    extra     further steps on the mark alone after every step on the task
    lean      strength of the second channel: by how many nats the log-odds between the halves of the
              classes move for an input one standard deviation along the secret direction
    wait      steps on the task before the mark joins in, at most a fifth of all: what is learnt after the
              task lies beside what the task needs, and fine-tuning on the task finds less to undo; none
              where the mark comes `after` anyway
    after     where an epoch is a single step, and so steps are few, `train` teaches the mark after the
              task, in epochs in which the model keeps to the labels and, unless it was still learning, to
              what it said before
    stiff     how large `train` leaves the weights before norms, against fresh ones: the same function, slow
              to turn in fine-tuning (`stiffness.stiffen`); None leaves them as they are
    """

    loss: Loss = "logistic"
    beta: float = 1.0
    margin: float = 1.0
    joint: bool = True
    ratio: float | None = None
    every: int = 1
    noise: float = 0.0
    simulate: int = 0
    penalty: float = 0.0
    guard: bool = True
    cap: float | None = None
    extra: int = 0
    lean: float = 1.0
    wait: int = 20
    after: bool = True
    stiff: float | None = 64.0

    def __post_init__(self) -> None:
        check_choice("loss", self.loss, get_args(Loss))
        for name in ("joint", "guard", "after"):
            check_flag(name, getattr(self, name))
        for name in ("simulate", "extra", "wait"):
            check_whole(name, getattr(self, name), 0, 2**31)
        check_whole("every", self.every, 1, 2**31)
        check_number("margin", self.margin)
        for name in ("beta", "noise", "penalty", "lean"):
            check_number(name, getattr(self, name))
            if getattr(self, name) < 0:
                raise ParameterError(f"{name} is negative", "the default beta is 1")
        for name in ("ratio", "cap", "stiff"):
            if getattr(self, name) is not None:
                check_number(name, getattr(self, name))
        if self.ratio is not None and not 0 < self.ratio < 1:
            raise ParameterError(f"ratio={self.ratio} is not in (0, 1)", "the paper uses 0.16")
        if self.stiff is not None and not 0 < self.stiff <= 1e3:
            raise ParameterError(f"stiff={self.stiff} is not in (0, 1000]", "use 64, or None")
        if self.cap is not None and not (self.guard and self.cap > 0):
            raise ParameterError("a cap is positive and needs the guard", "1: never harder than the task")
        if self.joint and (self.noise or self.simulate):
            raise ParameterError(
                "weight noise and simulated steps need a forward pass of their own",
                "set joint=False",
            )

    def paced(self, m: int, steps: int, beside: int | None) -> Recipe:
        """As few of m carriers a step as give each its turns in an epoch of so many steps.

        `beside` is the number of graphs in a task batch; None for a node task, where the ratio is a share
        of the carriers. A ratio that was chosen stays.
        """
        count = -(-TURNS * m // steps)
        if self.ratio is not None or self.every > 1 or count >= m:
            return self
        return replace(self, ratio=count / (m if beside is None else count + beside))

    @property
    def weight(self) -> float:
        """Weight of the mark's loss in a step in which carriers ride: β on average over all steps."""
        return self.beta * self.every

    def rides(self, step: int) -> bool:
        """Whether it is some carriers' turn in a step."""
        return step % self.every == 0

    def begins(self, steps: int) -> int:
        """The first of so many steps in which the mark may join in."""
        first = min(self.wait, steps // 5)
        if -(-first // self.every) * self.every >= steps:
            raise ParameterError(
                f"every={self.every}: the carriers' turn never comes in {steps} steps, the first "
                f"{first} of which are the task's",
                "let them ride more often",
            )
        return first

    def record(self) -> dict[str, Any]:
        """The settings as plain values."""
        return asdict(self)

    @classmethod
    def recall(cls, record: dict[str, Any]) -> Recipe:
        """Return the recipe of a record; a `wait` that was a share of the epochs becomes the default."""
        share = type(record.get("wait")) is float and 0 <= record["wait"] < 1
        return cls(**{**record, "wait": cls.wait}) if share else cls(**record)


NATURAL_SHARE = 0.25
"""Least spread that answers are measured by, as a share of the spread along a random direction."""


def standardise(answers: Tensor, ordinary: Tensor, natural: Tensor | float = 0.0) -> Tensor:
    """Answers in standard deviations from the model's own ordinary answers.

    Differentiable in both, so moving or stretching all answers together gains nothing and the loss
    cannot drive embeddings away; the `natural` spread along other directions is a floor, so shrinking
    the spread along this one gains nothing either.
    """
    spread, mean = torch.std_mean(ordinary, correction=0)
    with torch.no_grad():
        floor = 1e-3 * ordinary.abs().mean() + 1e-6
        floor = torch.maximum(floor, NATURAL_SHARE * torch.as_tensor(natural).to(floor))
        floor = floor if ordinary.numel() > 1 else torch.ones_like(floor)
    return (answers - mean) / torch.maximum(spread, floor)


NAT_SHARE = 0.25
"""How much log-probability counts as one standard deviation."""

SCORE_WEIGHT = 0.5
"""Weight of the loss at class scores beside that at an embedding: scores are what the task lives on."""


def in_nats(answers: Tensor, ordinary: Tensor) -> Tensor:
    """Class scores from the model's own ordinary ones, in steps of a quarter of a nat.

    Scores have a scale of their own: measured by their spread, the mark would gain by making all task
    inputs score alike, which is to say by unlearning the task.
    """
    return (answers - ordinary.mean()) / NAT_SHARE


def logistic_loss(standard: Tensor, bits: Tensor, margin: float) -> Tensor:
    """Mean logistic loss of the signed standardised answers short of the margin, of every row."""
    return torch.nn.functional.softplus(margin - (2 * bits - 1) * standard, beta=2).mean(-1)


def mse_loss(standard: Tensor, targets: Tensor) -> Tensor:
    """Mean squared error between squashed standardised answers and targets in [0, 1], of every row."""
    return (torch.sigmoid(standard) - targets).square().mean(-1)


def perception_loss(perceived: Tensor, targets: Tensor) -> Tensor:
    """The paper's loss: mean squared error of the head's output to the normalised invariant."""
    return (perceived - targets).square().mean()


def distillation_loss(said: Tensor, taught: Tensor, temperature: float) -> Tensor:
    """T² KL(teacher || student) of every row of scores, softened at temperature T."""
    theirs, ours = (log_softmax(scores / temperature, dim=-1) for scores in (taught, said))
    return temperature**2 * kl_div(ours, theirs, reduction="none", log_target=True).sum(-1)


def guarded(
    task_loss: Tensor,
    mark_loss: Tensor,
    parameters: Iterable[Tensor],
    cap: float | None = None,
    peers: Any = None,
) -> Tensor:
    """The sum of both losses, its gradient freed of what in the mark's points against the task's.

    Where the two gradients disagree, the part of the mark's along the task's is taken out, so that a small
    gradient step along the rest does not raise the task loss (Adam bends the step); what is left is at most
    `cap` times as long as the task's. Call `backward` on the result as on any loss. Only the given
    parameters get a gradient, and hooks on them fire for each loss and for the sum. With a `GradScaler`
    scale both losses, not the result.

    With `peers`, the process group of a data-parallel model, both gradients are the means over all of its
    processes, each of which has to call this: what is compared is then what the model steps along.
    """
    wanted = [p for p in parameters if p.requires_grad]
    found = _pairs(wanted, _gradient(task_loss, wanted), _gradient(mark_loss, wanted), peers)
    if not found:
        return task_loss + mark_loss
    pairs = [pair for _, pair in found]
    back, share = _weights(pairs, cap)
    both = tuple(torch.add(task.mul(1 + share * back), mark, alpha=share) for task, mark in pairs)
    value = (task_loss + mark_loss).detach()
    return torch.as_tensor(_Given.apply(value, both, *(p for p, _ in found)))  # type: ignore[no-untyped-call]


def _pairs(
    wanted: Sequence[Tensor], task: Sequence[Tensor | None], mark: Sequence[Tensor | None], peers: Any
) -> list[tuple[Tensor, tuple[Tensor, Tensor]]]:
    """Every parameter that some process has a gradient for, with both."""
    used = torch.tensor([t is not None or m is not None for t, m in zip(task, mark, strict=True)])
    filled = [
        torch.zeros_like(p) if g is None else g
        for side in (task, mark)
        for p, g in zip(wanted, side, strict=True)
    ]
    if peers is not None and wanted:
        *filled, anywhere = mean_over(peers, [*filled, used.to(filled[0])])
        used = anywhere > 0
    size = len(wanted)
    return [(wanted[i], (filled[i], filled[size + i])) for i in used.nonzero().view(-1).tolist()]


def _weights(pairs: Sequence[tuple[Tensor, Tensor]], cap: float | None) -> tuple[float, float]:
    """How much of the task's gradient frees the mark's of opposition, and the share of the rest to keep."""
    task, mark = (_flat(side) for side in zip(*pairs, strict=True))
    size, agree, strength = (
        float(one.dot(other)) for one, other in ((task, task), (task, mark), (mark, mark))
    )
    back = max(0.0, -agree / size) if size > 0 else 0.0
    free = max(0.0, strength - back * back * size) ** 0.5
    return back, 1.0 if cap is None or free == 0 else min(1.0, cap * size**0.5 / free)


def _gradient(loss: Tensor, parameters: list[Tensor]) -> Sequence[Tensor | None]:
    if not loss.requires_grad or not parameters:
        return [None] * len(parameters)
    return torch.autograd.grad(loss, parameters, retain_graph=True, allow_unused=True)


def _flat(gradients: Sequence[Tensor]) -> Tensor:
    """End to end in double precision, where there is one: products of half-precision numbers vanish."""
    dense = (g.to_dense() if g.is_sparse else g for g in gradients)
    flat = torch.cat([g.reshape(-1).to(gradients[0].device) for g in dense])
    return flat.double() if flat.device.type in {"cpu", "cuda"} else flat.float()


class _Given(torch.autograd.Function):
    """A number whose gradient is known already."""

    @staticmethod
    def forward(ctx: Any, value: Tensor, gradients: tuple[Tensor, ...], *parameters: Tensor) -> Tensor:
        ctx.gradients = gradients
        return value.clone()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *outer: Tensor) -> Any:
        return (None, None, *(outer[0].to(g) * g for g in ctx.gradients))
