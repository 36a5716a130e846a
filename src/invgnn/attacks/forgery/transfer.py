"""Carriers whose features are optimised until every model of the task answers them as the bits require."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import softplus

from invgnn.attacks.forgery.forgery import KEPT, Forged, Forgery, Naive, bound_anew
from invgnn.audit.verify import verify
from invgnn.errors import ParameterError
from invgnn.graphs.disjoint_union import Graphs
from invgnn.nn.forward import observe, to_batch, weight_of
from invgnn.nn.layers import fresh_twin
from invgnn.readout.reading import answer
from invgnn.training.fitting import FitOptions, fit_task
from invgnn.training.tasks import Task
from invgnn.watermark.mark import Watermark
from invgnn.watermark.reference import Reference


class TransferCarriers(Forgery):
    """Train models, optimise the carriers' features on them, and accuse a model that was never queried.

    Args:
        m: Number of carriers.
        own: Number of models that the forger trains.
        epochs: Epochs of each of them.
        steps: Steps of Adam on the features.
    """

    fools = "plain bits of the structure, any features, T ≥ τ"
    stopped = "a plain mark is never owned; keyed bits change with every feature"

    def __init__(self, m: int = 128, own: int = 3, epochs: int = 10, steps: int = 60) -> None:
        self.m, self.own, self.epochs, self.steps = m, own, epochs, steps

    def forge(self, model: nn.Module, task: Task) -> Forged:
        """Optimise for a plain mark read at the scores, which all models of a task have."""
        reference = Reference.of(task.data)
        plain, keyed = (
            Watermark.draw(self.secret(), reference, m=self.m, key=key, access="logits", sampler=KEPT)
            for key in ("plain", "keyed")
        )
        mine = [self._own_model(model, task, number) for number in range(self.own)]
        tuned = [bound_anew(mark, self.tune(mine, mark)) for mark in (plain, keyed)]
        said = tuned[0].read(model).carriers
        return Forged(
            accused=model,
            naive=Naive.count(self.fools, said, tuned[0].bits),
            attempts=(lambda: verify(model, tuned[0]), lambda: verify(model, tuned[1])),
            mark=tuned[0],
        )

    def _own_model(self, model: nn.Module, task: Task, number: int) -> nn.Module:
        """Train a model of the same architecture."""
        twin = fresh_twin(model)
        fit_task(twin, task, FitOptions(self.epochs, seed=self.seed + number))
        return twin.requires_grad_(False)

    def tune(self, models: list[nn.Module], mark: Watermark) -> Graphs:
        """Return the mark's carriers with features for which the answers of all models match its bits.

        Args:
            models: The models.
            mark: The mark.

        Raises:
            ParameterError: If the carriers have no features.
        """
        graphs = mark.carriers
        if graphs.x is None:
            raise ParameterError("the carriers have no node features", "use a task with node features")
        batch = to_batch(graphs, weight_of(models[0]))
        batch.x = x = batch.x.clone().requires_grad_()
        signs = torch.as_tensor(2.0 * mark.bits - 1).to(x)
        optimiser = torch.optim.Adam([x], lr=0.1)
        for _ in range(self.steps):
            optimiser.zero_grad()
            losses = [
                _margin_loss(answer(observe(one, batch), mark.reading(), mark.direction), signs)
                for one in models
            ]
            torch.stack(losses).mean().backward()
            optimiser.step()
        return Graphs(graphs.ptr, graphs.edges, np.asarray(x.detach().numpy(), dtype=np.float32))

    def __repr__(self) -> str:
        """Return the name in tables and test ids."""
        return "transferable carriers"


def _margin_loss(said: Tensor, signs: Tensor) -> Tensor:
    """Return the loss of answers that are not on their side of the mean by one standard deviation."""
    standard = (said - said.mean()) / said.std().clamp(min=1e-6)
    return softplus(2 * (1 - signs * standard)).mean()
