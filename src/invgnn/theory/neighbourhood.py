"""Losses and gradients of a task at the last checkpoints and at points near them."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from invgnn.nn.forward import evaluation_mode
from invgnn.theory.curvature import Curvature, curvature
from invgnn.training.batching import Collated
from invgnn.training.tasks import Task

State = Mapping[str, Tensor]


class TaskLoss:
    """The mean cross-entropy over the training inputs, in evaluation mode, and its gradient.

    Running statistics are taken from the checkpoint and held constant: this is the function that the
    released model computes.
    """

    def __init__(self, task: Task) -> None:
        self.task, self.rows = task, task.train if task.level == "node" else slice(None)
        self.batch = task.graphs[0] if task.level == "node" else Collated(task.graphs).batch(task.train)

    def __call__(self, model: nn.Module) -> tuple[float, dict[str, Tensor]]:
        """Return the loss of a model and its gradient, by name, for the parameters that the task uses."""
        weights = {name: p for name, p in model.named_parameters() if p.requires_grad}
        with evaluation_mode(model):
            loss = cross_entropy(self.task.scores(model, self.batch)[self.rows], self.batch.y[self.rows])
            found = torch.autograd.grad(loss, list(weights.values()), allow_unused=True)
        pairs = zip(weights, found, strict=True)
        return float(loss.detach()), {name: g for name, g in pairs if g is not None}


@dataclass(frozen=True, eq=False)
class Neighbourhood:
    """Recorded points, and the smallest ball around the best one that contains all of them.

    Attributes:
        losses: The loss at every point.
        squares: The squared gradient norm at every point.
        centre: Parameters of the point with the smallest loss, θ* of the theorem.
        radius: Distance from the centre to the farthest point.
    """

    losses: tuple[float, ...]
    squares: tuple[float, ...]
    centre: Tensor
    radius: float

    @property
    def least(self) -> float:
        """The smallest recorded loss."""
        return min(self.losses)

    def curvature(self) -> Curvature:
        """Return the estimates of μ of the Polyak-Łojasiewicz inequality at these points."""
        return curvature(self.losses, self.squares)

    def distance(self, place: Tensor) -> float:
        """Return the distance of parameters from the centre."""
        return float((place - self.centre).norm())


def squared(gradient: Mapping[str, Tensor]) -> float:
    """Return the squared Euclidean norm of a gradient."""
    return float(sum(g.double().square().sum().item() for g in gradient.values()))


def place_of(model: nn.Module, gradient: Mapping[str, Tensor]) -> Tensor:
    """Return the parameters that the task uses as one vector, without the parameters of a perception head.

    Args:
        model: The model.
        gradient: The task gradient by name; only its parameters are included.
    """
    weights = dict(model.named_parameters())
    return torch.cat([weights[name].detach().double().flatten() for name in gradient])


def survey(
    model: nn.Module,
    loss: TaskLoss,
    states: Sequence[State],
    *,
    steps: int = 3,
    lr: float = 1e-3,
    tick: Callable[[int], None] | None = None,
) -> Neighbourhood:
    """Record loss and gradient at every state, and after a few small gradient steps from each.

    This gives two points per state: the paper's K checkpoints and K perturbations.

    Args:
        model: A model of the right architecture; left unchanged.
        loss: The task loss.
        states: The checkpoints.
        steps: Number of gradient steps of a perturbation.
        lr: Step size of a perturbation.
        tick: Called with 1 after every state.
    """
    twin = copy.deepcopy(model)
    seen: list[tuple[float, float, Tensor]] = []

    def note() -> dict[str, Tensor]:
        value, gradient = loss(twin)
        seen.append((value, squared(gradient), place_of(twin, gradient)))
        return gradient

    for state in states:
        twin.load_state_dict(state)
        gradient = note()
        for _ in range(steps - 1):
            _descend(twin, gradient, lr)
            _, gradient = loss(twin)
        _descend(twin, gradient, lr)
        note()
        if tick:
            tick(1)
    losses, squares, places = zip(*seen, strict=True)
    centre = places[losses.index(min(losses))]
    radius = max(float((place - centre).norm()) for place in places)
    return Neighbourhood(losses, squares, centre, radius)


@torch.no_grad()
def _descend(model: nn.Module, gradient: Mapping[str, Tensor], lr: float) -> None:
    """Take one gradient step in place."""
    weights = dict(model.named_parameters())
    for name, direction in gradient.items():
        weights[name].sub_(direction, alpha=lr)
