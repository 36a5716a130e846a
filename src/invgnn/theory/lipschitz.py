"""L_s: the largest gradient of the perception of a mark with respect to the parameters."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from invgnn.errors import ParameterError
from invgnn.graphs.attributed import Shown, joined
from invgnn.graphs.disjoint_union import Floats
from invgnn.nn.forward import evaluation_mode, observe, to_batch, unwrap, weight_of
from invgnn.readout.reading import Reading, answer, natural_spread, standardise
from invgnn.theory.statement import Assumption, Statement
from invgnn.watermark.losses import in_nats
from invgnn.watermark.mark import Watermark

BUFFER = 0.12  # the paper's
CHUNK = 32  # graphs per forward pass: the backward pass of each graph goes through all of them


@dataclass(frozen=True)
class Lipschitz(Statement):
    """The largest gradient norm of the perception with respect to the parameters.

    Guarantee: none. It is a maximum over the measured graphs. No bootstrap of a maximum can exceed it, so
    the buffer is a convention; `covers` says whether it was sufficient at the other checkpoints.

    Attributes:
        measured: The maximum over the measured graphs, at one set of parameters.
        buffer: Share that is added to it.
        nearby: The maximum over the carriers at other checkpoints; None if not measured.
    """

    measured: float
    buffer: float = BUFFER
    nearby: float | None = None

    def __post_init__(self) -> None:
        looked = Assumption("no other graph has a larger gradient than the measured graphs")
        nearby = Assumption("L_s bounds the perception's gradients at other checkpoints too", self.covers)
        object.__setattr__(self, "assumptions", (looked, nearby))

    @property
    def value(self) -> float:
        """L_s, including the buffer."""
        return (1 + self.buffer) * self.measured

    @property
    def covers(self) -> bool | None:
        """Whether L_s bounds the gradients at the other checkpoints; None if not measured."""
        return None if self.nearby is None else self.nearby <= self.value


def perceive(model: nn.Module, mark: Watermark, graphs: Shown, reading: Reading | None = None) -> Tensor:
    """Return the input of the mark's squared loss, one number in [0, 1] per graph, with gradients.

    At `perception` this is the output of the paper's head. At `embedding` and `logits` it is the answer as
    used in embedding, standardised by the model's own answers on ordinary inputs, and put through a
    sigmoid. If the mark's loss has a smaller slope (at `logits`), a certified β is conservative.

    Args:
        model: The model.
        mark: The mark.
        graphs: The graphs, with the tensors that carriers have.
        reading: The reading; by default the first that the mark declares.

    Raises:
        ParameterError: If the reading is `labels`, which has no gradient.
    """
    reading = reading or mark.reading()
    if reading.access == "labels":
        raise ParameterError(
            "labels have no gradient", "use the access level logits, embedding or perception"
        )
    size, head = len(graphs), reading.access == "perception"
    asked = graphs if head else joined([graphs, mark.presented[1]])
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


def perceived(model: nn.Module, mark: Watermark, graphs: Shown, reading: Reading | None = None) -> Floats:
    """Return the same as an array, with the model in evaluation mode and its state restored.

    Args:
        model: The model.
        mark: The mark.
        graphs: The graphs.
        reading: The reading; by default the first that the mark declares.
    """
    with evaluation_mode(model), torch.no_grad():
        return np.asarray(perceive(model, mark, graphs, reading).double().cpu().numpy())


def jacobian_norms(outputs: Tensor, parameters: Sequence[Tensor]) -> Tensor:
    """Return the Euclidean norm of the gradient of every output with respect to all parameters together.

    Args:
        outputs: One number per graph.
        parameters: The parameters.
    """
    rows = []
    for output in outputs:  # one backward pass each: torch's batched gradients take four times as long
        found = torch.autograd.grad(output, parameters, retain_graph=True, allow_unused=True)
        squares = [g.double().square().sum() for g in found if g is not None]
        rows.append(torch.stack(squares).sum().sqrt() if squares else output.new_zeros(()).double())
    return torch.stack(rows)


def perception_norms(
    model: nn.Module,
    mark: Watermark,
    graphs: Shown,
    reading: Reading | None = None,
    progress: Callable[[int], None] | None = None,
) -> Floats:
    """Return ‖∇θ s(G)‖ for every graph, in evaluation mode.

    In evaluation mode, the answer on a graph does not depend on the other graphs of the batch.

    Args:
        model: The model.
        mark: The mark.
        graphs: The graphs.
        reading: The reading; by default the first that the mark declares.
        progress: Called with the number of graphs after every chunk.
    """
    weights: list[Tensor] = [p for p in model.parameters() if p.requires_grad]
    found = []
    for part in _chunks(graphs):
        with evaluation_mode(model):
            norms = jacobian_norms(perceive(model, mark, part, reading), weights)
        found.append(norms.cpu().numpy())
        if progress:
            progress(len(part))
    return np.concatenate(found)


def _chunks(graphs: Shown) -> Iterator[Shown]:
    """Split graphs into chunks."""
    for start in range(0, len(graphs), CHUNK):
        yield graphs.take(np.arange(start, min(start + CHUNK, len(graphs))))
