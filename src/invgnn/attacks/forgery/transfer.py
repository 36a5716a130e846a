"""Carriers whose features are tuned until every model of the task answers them as the bits want."""

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
from invgnn.training.fitting import fit_task
from invgnn.training.tasks import Task
from invgnn.watermark.reference import Reference
from invgnn.watermark.mark import Watermark


class TransferCarriers(Forgery):
    """Train models of one's own, tune the carriers' features on them, and accuse a model never asked.

    own    how many models the forger trains, for `epochs` each
    steps  of Adam on the features
    """

    fools = "plain bits of the structure, any features, T ≥ τ"
    stopped = "a plain mark is never owned; keyed bits change with every feature"

    def __init__(self, m: int = 128, own: int = 3, epochs: int = 10, steps: int = 60) -> None:
        self.m, self.own, self.epochs, self.steps = m, own, epochs, steps

    def forge(self, model: nn.Module, task: Task) -> Forged:
        """Tune for a plain mark read at the scores, which all models of a task share."""
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
        twin = fresh_twin(model)
        fit_task(twin, task, epochs=self.epochs, seed=self.seed + number)
        return twin.requires_grad_(False)

    def tune(self, models: list[nn.Module], mark: Watermark) -> Graphs:
        """The mark's carriers with features on which all the models lean towards its present bits."""
        graphs = mark.carriers
        if graphs.x is None:
            raise ParameterError("graphs without features", "there is nothing to tune")
        batch = to_batch(graphs, weight_of(models[0]))
        batch.x = x = batch.x.clone().requires_grad_()
        signs = torch.as_tensor(2.0 * mark.bits - 1).to(x)
        optimiser = torch.optim.Adam([x], lr=0.1)
        for _ in range(self.steps):
            optimiser.zero_grad()
            losses = [
                _lean(answer(observe(one, batch), mark.reading(), mark.direction), signs) for one in models
            ]
            torch.stack(losses).mean().backward()
            optimiser.step()
        return Graphs(graphs.ptr, graphs.edges, np.asarray(x.detach().numpy(), dtype=np.float32))

    def __repr__(self) -> str:
        return "transferable carriers"


def _lean(said: Tensor, signs: Tensor) -> Tensor:
    """How far answers are from leaning to their side of the mean by a standard deviation."""
    standard = (said - said.mean()) / said.std().clamp(min=1e-6)
    return softplus(2 * (1 - signs * standard)).mean()
