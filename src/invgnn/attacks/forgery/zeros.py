"""The sign of zero: a model may see it, and a digest may not."""

from __future__ import annotations

import hashlib

import numpy as np
import torch
from torch import Tensor, nn

from invgnn.attacks.forgery.forgery import KEPT, Forged, Forgery, Naive, bound_anew, scratch
from invgnn.audit.verdict import Verdict
from invgnn.audit.verify import verify
from invgnn.errors import ParameterError
from invgnn.graphs.disjoint_union import Bools, Floats, Graphs
from invgnn.readout.query import answers_on
from invgnn.training.tasks import Task
from invgnn.watermark.mark import Watermark


def digest_without_sign(graphs: Graphs) -> str:
    """Return the digest that graphs once had, which writes -0.0 as 0.0.

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
    """A model of points in the plane: it sees the first two features as radius and angle.

    Nobody's secret is in it. Models of geometric graphs do the same.
    """

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor | None = None) -> Tensor:
        """The inner model's scores; on the negative axis the angle is π or -π, by the sign of zero."""
        radius, angle = torch.linalg.vector_norm(x[:, :2], dim=1), torch.atan2(x[:, 1], x[:, 0])
        seen = torch.cat([torch.stack([radius, angle], dim=1), x[:, 2:]], dim=1)
        return torch.as_tensor(self.model(seen, edge_index, batch))


class SignOfZero(Forgery):
    """Put the carriers' nodes on the negative axis, and choose the sign of zero once the bits are known.

    looks  how many choices of signs are put before the model
    """

    fools = "keyed bits, carriers bound by a digest that writes -0.0 as 0.0, T ≥ τ"
    stopped = "there is one zero: carriers are shown as decoded from the bytes that the bits are bound to"

    def __init__(self, m: int = 128, looks: int = 40) -> None:
        self.m, self.looks = m, looks

    def forge(self, model: nn.Module, task: Task) -> Forged:
        """Keep for every carrier the signs that are answered highest, or lowest, as its bit wants."""
        accused = Polar(model).eval()
        drawn = Watermark.draw(self.secret(), task.data, m=self.m, access="logits", sampler=KEPT)
        if drawn.carriers.x is None or drawn.carriers.x.shape[1] < 2:
            raise ParameterError("there are no two features", "forge on a task with features")
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
        """The carriers with the signs that suit their bits."""
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
        return "sign of zero"


def _on_axis(graphs: Graphs, negative: Bools) -> Graphs:
    """The graphs with every node at (-1, 0), or at (-1, -0) where `negative`; nothing else is put right."""
    x = np.array(graphs.x, dtype=np.float32)
    x[:, 0], x[:, 1] = -1.0, np.where(negative, -0.0, 0.0)
    return Graphs.unchecked(graphs.ptr, graphs.edges, x)


def _said(model: nn.Module, mark: Watermark, graphs: Graphs) -> Floats:
    return answers_on(model, graphs, mark.reading(), mark.direction)


def _through_file(model: nn.Module, mark: Watermark) -> Verdict:
    """Verify with the mark as it comes out of its file."""
    with scratch("signed.mark") as path:
        mark.save(path, insecure_no_passphrase=True)
        return verify(model, Watermark.load(path))
