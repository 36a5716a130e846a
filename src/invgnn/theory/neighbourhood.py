"""Where the task loss was looked at: losses and gradients at the last checkpoints and near them."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from invgnn.nn.forward import call, evaluation_mode
from invgnn.theory.curvature import Curvature, curvature
from invgnn.training.batching import Collated
from invgnn.training.tasks import Task

State = Mapping[str, Tensor]


class TaskLoss:
    """The mean cross-entropy over the training inputs, in evaluation mode, and its gradient.

    Running statistics are taken as the checkpoint has them, and as constants: that is the function the
    released model computes.
    """

    def __init__(self, task: Task) -> None:
        self.rows = task.train if task.level == "node" else slice(None)
        self.batch = task.graphs[0] if task.level == "node" else Collated(task.graphs).batch(task.train)

    def __call__(self, model: nn.Module) -> tuple[float, dict[str, Tensor]]:
        """The loss of a model and its gradient, by name, for the parameters that the task uses."""
        weights = {name: p for name, p in model.named_parameters() if p.requires_grad}
        with evaluation_mode(model):
            loss = cross_entropy(call(model, self.batch)[self.rows], self.batch.y[self.rows])
            found = torch.autograd.grad(loss, list(weights.values()), allow_unused=True)
        pairs = zip(weights, found, strict=True)
        return float(loss.detach()), {name: g for name, g in pairs if g is not None}


@dataclass(frozen=True, eq=False)
class Neighbourhood:
    """Recorded points, and the ball about the best of them that holds them all.

    centre   parameters of the point of least loss, θ* of the theorem
    radius   distance from it to the farthest point
    """

    losses: tuple[float, ...]
    squares: tuple[float, ...]
    centre: Tensor
    radius: float

    @property
    def least(self) -> float:
        """The least loss recorded."""
        return min(self.losses)

    def curvature(self) -> Curvature:
        """μ of the Polyak-Łojasiewicz inequality at these points."""
        return curvature(self.losses, self.squares)

    def distance(self, place: Tensor) -> float:
        """How far parameters lie from the centre."""
        return float((place - self.centre).norm())


def squared(gradient: Mapping[str, Tensor]) -> float:
    """The squared Euclidean norm of a gradient."""
    return float(sum(g.double().square().sum().item() for g in gradient.values()))


def place_of(model: nn.Module, gradient: Mapping[str, Tensor]) -> Tensor:
    """The parameters that the task uses as one vector: a head of the mark's own is no part of it."""
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
    """Loss and gradient at every state, and after a few small gradient steps from each.

    That makes two points per state: the paper's K checkpoints and K perturbations.
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
    weights = dict(model.named_parameters())
    for name, direction in gradient.items():
        weights[name].sub_(direction, alpha=lr)
