"""L_s: how fast what a mark perceives can move with the parameters."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from invgnn.errors import ParameterError
from invgnn.graphs.disjoint_union import Floats, Graphs
from invgnn.nn.forward import evaluation_mode, observe, to_batch, unwrap, weight_of
from invgnn.readout.reading import Reading, answer, natural_spread, standardise
from invgnn.theory.statement import Assumption, Statement
from invgnn.watermark.losses import in_nats
from invgnn.watermark.mark import Watermark

BUFFER = 0.12  # the paper's
CHUNK = 32  # graphs of one forward pass: a backward pass per graph goes through all of them


@dataclass(frozen=True)
class Lipschitz(Statement):
    """The largest gradient norm of the perception with respect to the parameters.

    measured  over the graphs looked at, at one set of parameters
    buffer    share added to it
    nearby    the largest of the carriers at other checkpoints; None if nobody looked

    Guarantee: none. It is a maximum over graphs that were looked at, and no bootstrap of a maximum can
    exceed it, so the buffer is a convention; `covers` says whether it sufficed at the other checkpoints.
    """

    measured: float
    buffer: float = BUFFER
    nearby: float | None = None

    def __post_init__(self) -> None:
        looked = Assumption("no graph is perceived more steeply than those looked at")
        nearby = Assumption("L_s bounds the perception's gradients at other checkpoints too", self.covers)
        object.__setattr__(self, "assumptions", (looked, nearby))

    @property
    def value(self) -> float:
        """L_s, the buffer included."""
        return (1 + self.buffer) * self.measured

    @property
    def covers(self) -> bool | None:
        """Whether the perception is no steeper than L_s at the other checkpoints."""
        return None if self.nearby is None else self.nearby <= self.value


def perceive(model: nn.Module, mark: Watermark, graphs: Graphs, reading: Reading | None = None) -> Tensor:
    """What the mark's squared loss acts on, one number in [0, 1] per graph, with gradients.

    At `perception` this is the output of the paper's head. At `embedding` and `logits` it is the answer as
    the mark is taught, measured by the model's own ordinary answers, and squashed once. Where the mark's
    loss counts less than once (at `logits`), what is certified for β holds with room to spare.
    """
    reading = reading or mark.reading()
    if reading.access == "labels":
        raise ParameterError("a label has no gradient", "calibrate at logits, embedding or perception")
    size, head = len(graphs), reading.access == "perception"
    asked = graphs if head else Graphs.concat([graphs, mark.ordinary])
    batch = to_batch(asked, weight_of(model))
    seen = observe(model, batch, reading.layer if reading.hidden else None, mark.forward)
    said = answer(seen, reading, mark.direction, unwrap(model))
    if head:
        return said
    usual = slice(size, None)
    if reading.access == "embedding":
        spread = natural_spread(seen, reading, usual)
        return torch.sigmoid(standardise(said[:size], said[usual], spread))
    return torch.sigmoid(in_nats(said[:size], said[usual]))


def perceived(model: nn.Module, mark: Watermark, graphs: Graphs, reading: Reading | None = None) -> Floats:
    """The same as plain numbers, the model in evaluation mode and left as found."""
    with evaluation_mode(model), torch.no_grad():
        return np.asarray(perceive(model, mark, graphs, reading).double().cpu().numpy())


def jacobian_norms(outputs: Tensor, parameters: Sequence[Tensor]) -> Tensor:
    """The Euclidean norm of the gradient of every output with respect to all parameters together."""
    rows = []
    for output in outputs:  # one backward each: torch's batched gradients take four times as long
        found = torch.autograd.grad(output, parameters, retain_graph=True, allow_unused=True)
        squares = [g.double().square().sum() for g in found if g is not None]
        rows.append(torch.stack(squares).sum().sqrt() if squares else output.new_zeros(()).double())
    return torch.stack(rows)


def perception_norms(
    model: nn.Module,
    mark: Watermark,
    graphs: Graphs,
    reading: Reading | None = None,
    progress: Callable[[int], None] | None = None,
) -> Floats:
    """‖∇θ s(G)‖ for every graph, in evaluation mode: a graph's answer does not depend on its company."""
    weights: list[Tensor] = [p for p in model.parameters() if p.requires_grad]
    found = []
    for part in _chunks(graphs):
        with evaluation_mode(model):
            norms = jacobian_norms(perceive(model, mark, part, reading), weights)
        found.append(norms.cpu().numpy())
        if progress:
            progress(len(part))
    return np.concatenate(found)


def _chunks(graphs: Graphs) -> Iterator[Graphs]:
    for start in range(0, len(graphs), CHUNK):
        yield graphs.take(np.arange(start, min(start + CHUNK, len(graphs))))
