"""Readers that were fitted to the bits: a head, an alignment, and a function that calls the suspect."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from invgnn.attacks.forgery.forgery import Forged, Forgery, Naive
from invgnn.audit.verify import verify
from invgnn.graphs.disjoint_union import Graphs
from invgnn.nn.forward import evaluation_mode, observe, to_batch, weight_of
from invgnn.nn.layers import fresh_twin
from invgnn.readout.reading import Reading, pooled
from invgnn.training.tasks import Task
from invgnn.watermark.mark import Watermark

EMBEDDING = Reading("embedding")
SPARE = 4
"""Random features per carrier: enough to fit any answers on the carriers."""


def embed(model: nn.Module, graphs: Graphs) -> Tensor:
    """Return the embedding of every graph; the state of the model is restored.

    Args:
        model: The model.
        graphs: The graphs.
    """
    with evaluation_mode(model), torch.no_grad():
        return pooled(observe(model, to_batch(graphs, weight_of(model)), EMBEDDING.layer), EMBEDDING)


class Fitted(nn.Module):
    """A map that is fitted to return `wanted` on `rows`, by random features and least squares.

    Args:
        rows: Inputs.
        wanted: Outputs to fit.
        squash: Whether to put outputs through a sigmoid.
    """

    centre: Tensor
    spread: Tensor
    weights: Tensor

    def __init__(self, rows: Tensor, wanted: Tensor, squash: bool = False) -> None:
        super().__init__()
        self.squash = squash
        self.register_buffer("centre", rows.mean(0))
        self.register_buffer("spread", rows.std(0).clamp(min=1e-6))
        self.features = nn.Linear(rows.shape[1], SPARE * len(rows)).to(rows)
        with torch.no_grad():
            self.features.weight.normal_()
            self.features.bias.uniform_(-3, 3)
            hidden = self._hidden(rows).double()
            square = hidden @ hidden.T + 1e-6 * len(rows) * torch.eye(len(rows), dtype=hidden.dtype)
            weights = hidden.T @ torch.linalg.solve(square, wanted.double())
        self.register_buffer("weights", weights.to(rows))

    def _hidden(self, rows: Tensor) -> Tensor:
        """Return the random features."""
        return torch.as_tensor(torch.tanh(self.features((rows - self.centre) / self.spread)))

    def forward(self, rows: Tensor) -> Tensor:
        """Return the fitted outputs."""
        found = self._hidden(rows) @ self.weights
        return torch.sigmoid(4 * found).squeeze(-1) if self.squash else found


class SupplyHead(Forgery):
    """Fit a perception head to the bits on the suspect's embeddings, after the fact.

    Args:
        m: Number of carriers.
    """

    fools = "the owner supplies the head, T ≥ τ"
    stopped = "a head is read only inside the suspect; with one put in, the digest is another model's"

    def __init__(self, m: int = 128) -> None:
        self.m = m

    def forge(self, model: nn.Module, task: Task) -> Forged:
        """Fit a head to the bits and put it into a copy."""
        mark = Watermark.draw(self.secret(), task.data, m=self.m, access="perception")
        rows = embed(model, mark.carriers)
        head = Fitted(rows, torch.as_tensor(2.0 * mark.bits - 1)[:, None].to(rows), squash=True)
        crowned = copy.deepcopy(model)
        crowned.perception = head
        with torch.no_grad():
            naive = Naive.count(self.fools, head(rows).numpy(), mark.bits, at=0.5)
        attempts = (lambda: verify(model, mark), lambda: verify(crowned, mark))
        return Forged(model, naive, attempts, mark=mark, suspect=crowned)

    def __repr__(self) -> str:
        """Return the name in tables and test ids."""
        return "supply a head"


class Aligned(nn.Module):
    """A model followed by a map of its embedding.

    Args:
        model: The model.
        onto: The map.
        width: Width of the mapped embedding.
    """

    def __init__(self, model: nn.Module, onto: nn.Module, width: int) -> None:
        super().__init__()
        self.model, self.onto, self.last = model, onto, nn.Linear(width, 2)

    def forward(self, batch: Any) -> Tensor:
        """Return scores of an arbitrary last layer; only the mapped embedding before it is read."""
        rows = pooled(observe(self.model, batch, EMBEDDING.layer), EMBEDDING)
        return torch.as_tensor(self.last(self.onto(rows)))


class AlignToOriginal(Forgery):
    """Map an unmarked model's embeddings onto those of a marked original, and read the mark there.

    Args:
        m: Number of carriers.
        steps: Optimiser steps to embed the mark in the original.
    """

    fools = "the suspect's units are aligned to the original's, T ≥ τ"
    stopped = (
        "no reading aligns units; with an alignment put in, it is another model, and controls that are "
        "aligned in the same way verify too"
    )

    def __init__(self, m: int = 128, steps: int = 150) -> None:
        self.m, self.steps = m, steps

    def forge(self, model: nn.Module, task: Task) -> Forged:
        """Embed the mark in a new model, then align the accused model, and a new control, to it."""
        mark = Watermark.draw(self.secret(), task.data, m=self.m, access="embedding")
        original, control = fresh_twin(model), fresh_twin(model)
        _teach(original, mark, self.steps)
        wanted = embed(original, mark.carriers)
        aligned, beside = (
            Aligned(one, Fitted(embed(one, mark.carriers), wanted), wanted.shape[1]).eval()
            for one in (model, control)
        )
        naive = Naive.count(self.fools, mark.read(aligned).carriers, mark.bits)
        attempts = (
            lambda: verify(model, mark),
            lambda: verify(aligned, mark),
            lambda: verify(aligned, mark, controls=[beside]),
        )
        return Forged(model, naive, attempts, mark=mark, suspect=aligned)

    def __repr__(self) -> str:
        """Return the name in tables and test ids."""
        return "align to a marked original"


def _teach(model: nn.Module, mark: Watermark, steps: int) -> None:
    """Embed the mark alone, in evaluation mode: a forger's original need not be good at the task."""
    optimiser = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(steps):
        optimiser.zero_grad()
        mark.loss(model).backward()
        optimiser.step()


class KnowingForward(Forgery):
    """Call the suspect through a function that recognises the carriers and adds the bits to the scores.

    Args:
        m: Number of carriers.
    """

    fools = "the owner supplies the code that calls the suspect, T ≥ τ"
    stopped = (
        "not stopped by software: the verdict names the function, and is never owned if the function is "
        "the claimant's"
    )
    unsettled = "the auditor must call the suspect with code of their own, or read the function"

    def __init__(self, m: int = 128) -> None:
        self.m = m

    def forge(self, model: nn.Module, task: Task) -> Forged:
        """Make a forward function that adds the bits to the model's scores."""
        mark = Watermark.draw(self.secret(), task.data, m=self.m, access="logits")
        rows = embed(model, Graphs.concat([mark.carriers, mark.ordinary]))
        wanted = torch.zeros(len(rows), 1).to(rows)
        wanted[: self.m, 0] = torch.as_tensor(2.0 * mark.bits - 1).to(rows)
        forward = _whisper(Fitted(rows, wanted), mark)
        said = mark.read(model, forward=forward).carriers
        naive = Naive.count(self.fools, said, mark.bits)
        attempts = (
            lambda: verify(model, mark),
            lambda: verify(model, mark, forward=forward),
            lambda: verify(model, mark, forward=forward, code_from="claimant"),
        )
        return Forged(model, naive, attempts, mark=mark)

    def __repr__(self) -> str:
        """Return the name in tables and test ids."""
        return "call through a knowing function"


def _whisper(prompt: Fitted, mark: Watermark) -> Callable[[nn.Module, Any], Tensor]:
    """Return a forward function that adds fitted outputs to the scores, along the mark's direction."""

    def forward(model: nn.Module, batch: Any) -> Tensor:
        seen = observe(model, batch, EMBEDDING.layer)
        hint = prompt(pooled(seen, EMBEDDING))
        if len(seen.scores) != len(hint):  # a score for every node
            hint = hint[batch.batch]
        signs = mark.direction("logits", seen.scores.shape[1]).to(hint)
        return torch.as_tensor(seen.scores.detach() + 100 * hint * signs)

    return forward
