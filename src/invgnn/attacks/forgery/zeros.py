"""The sign of zero: a model may use it, and a digest may ignore it."""

from __future__ import annotations

import hashlib

import numpy as np
import torch
from torch import Tensor, nn

from invgnn.attacks.forgery.forgery import KEPT, Forged, Forgery, Naive, bound_anew, scratch
from invgnn.audit.verdict import Verdict
from invgnn.audit.verify import verify
from invgnn.checks import check_whole
from invgnn.errors import ParameterError
from invgnn.graphs.disjoint_union import Bools, Floats, Graphs
from invgnn.readout.query import answers_on
from invgnn.training.tasks import Task
from invgnn.watermark.mark import Watermark


def digest_without_sign(graphs: Graphs) -> str:
    """Return the former digest of graphs, which writes -0.0 as 0.0.

    Guarantee: none. A model may be shown either of them.
    """
    x = np.zeros((graphs.num_nodes, 0)) if graphs.x is None else graphs.x
    shape = np.array([graphs.num_graphs, graphs.num_nodes, len(graphs.edges), x.shape[1]])
    state = hashlib.sha256(b"invgnn.graphs/1\0")
    for numbers in (shape, graphs.ptr, graphs.edges):
        state.update(numbers.astype("<i8").tobytes())
    state.update((x + np.float32(0)).astype("<f4").tobytes())
    return state.hexdigest()


class Polar(nn.Module):
    """A model of points in the plane: it uses radius and angle in place of the first two features.

    It contains no secret. Models of geometric graphs do the same.

    Args:
        model: The inner model.
    """

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor | None = None) -> Tensor:
        """Return the inner model's scores; on the negative axis the angle is ±π, by the sign of zero."""
        radius, angle = torch.linalg.vector_norm(x[:, :2], dim=1), torch.atan2(x[:, 1], x[:, 0])
        seen = torch.cat([torch.stack([radius, angle], dim=1), x[:, 2:]], dim=1)
        return torch.as_tensor(self.model(seen, edge_index, batch))


class SignOfZero(Forgery):
    """Put the carriers' nodes on the negative axis, and choose the sign of zero after the bits are known.

    Args:
        m: Number of carriers.
        looks: Number of choices of signs that are tested.
    """

    fools = "keyed bits, carriers bound by a digest that writes -0.0 as 0.0, T ≥ τ"
    stopped = "graphs contain only +0; carriers are shown as decoded from the bytes that bits are bound to"

    def __init__(self, m: int = 128, looks: int = 40) -> None:
        check_whole("looks", looks, 2, 2**20)
        self.m, self.looks = m, looks

    def forge(self, model: nn.Module, task: Task) -> Forged:
        """Keep for every carrier the signs with the highest or lowest answer, as its bit requires.

        Raises:
            ParameterError: If the task has fewer than two node features.
        """
        accused = Polar(model).eval()
        drawn = Watermark.draw(self.secret(), task.data, m=self.m, access="logits", sampler=KEPT)
        if drawn.carriers.x is None or drawn.carriers.x.shape[1] < 2:
            raise ParameterError(
                "this forgery needs two node features", "use a task with two or more node features"
            )
        mark = bound_anew(drawn, _on_axis(drawn.carriers, np.zeros(drawn.carriers.num_nodes, dtype=bool)))
        once = [digest_without_sign(graphs) for graphs in (mark.carriers, mark.ordinary)]
        bits = mark.secret.derive("bits", mark.bound, *once).balanced(self.m)  # as they were derived
        chosen = self._chosen(accused, mark, bits == 1)
        alike = digest_without_sign(chosen) == once[0]
        naive = Naive.count(self.fools, _said(accused, mark, chosen), bits if alike else 1 - bits)
        signed = bound_anew(mark, Graphs(chosen.ptr, chosen.edges, chosen.x))
        return Forged(
            accused=accused,
            naive=naive,
            attempts=(
                lambda: verify(accused, signed),
                lambda: verify(accused, bound_anew(mark, chosen)),
                lambda: _through_file(accused, signed),
                lambda: _through_file(accused, bound_anew(mark, chosen)),
            ),
            tried=self.looks,
            mark=signed,
        )

    def _chosen(self, model: nn.Module, mark: Watermark, high: Bools) -> Graphs:
        """Return the carriers with the signs that fit their bits best."""
        rng, owner = np.random.default_rng(self.seed), mark.carriers.graph_of_node
        best, signs = np.full(mark.m, -np.inf), np.zeros(len(owner), dtype=bool)
        for share in [0.0, 1.0, *rng.random(self.looks - 2).tolist()]:
            tried = rng.random(len(owner)) < share
            said = _said(model, mark, _on_axis(mark.carriers, tried)) * np.where(high, 1, -1)
            better = said > best
            best = np.where(better, said, best)
            signs = np.where(better[owner], tried, signs)
        return _on_axis(mark.carriers, signs)

    def __repr__(self) -> str:
        """Return the name in tables and test ids."""
        return "sign of zero"


def _on_axis(graphs: Graphs, negative: Bools) -> Graphs:
    """Return the graphs with every node at (-1, 0), or (-1, -0) where `negative`, not in canonical form."""
    x = np.array(graphs.x, dtype=np.float32)
    x[:, 0], x[:, 1] = -1.0, np.where(negative, -0.0, 0.0)
    return Graphs.unchecked(graphs.ptr, graphs.edges, x)


def _said(model: nn.Module, mark: Watermark, graphs: Graphs) -> Floats:
    """Return the model's answers on graphs."""
    return answers_on(model, graphs, mark.reading(), mark.direction)


def _through_file(model: nn.Module, mark: Watermark) -> Verdict:
    """Verify with the mark after saving and loading it."""
    with scratch("signed.mark") as path:
        mark.save(path, insecure_no_passphrase=True)
        return verify(model, Watermark.load(path))
