"""Batches that are gathered with their carriers are those of `mark.mix`."""

import pytest
import torch

from invgnn.nn.forward import to_batch
from invgnn.training.batching import Collated
from invgnn.training.mixing import Mixing
from invgnn.training.tasks import new_model
from invgnn.watermark.recipe import Recipe


def test_graphs_followed_by_others_are_both(motifs, draw):
    held, others = Collated(motifs.graphs), draw().batches.carriers
    both = held.followed_by(to_batch(others))
    count = len(motifs.graphs)
    last, wanted = both.batch(torch.arange(count, count + len(others))), to_batch(others)
    for name in ("x", "edge_index", "batch", "ptr"):
        assert torch.equal(last[name], wanted[name]), name
    assert last.y.tolist() == [0] * len(others)
    chosen = torch.tensor([5, 0, 7])
    for name in ("x", "edge_index", "batch", "ptr", "y"):
        assert torch.equal(both.batch(chosen)[name], held.batch(chosen)[name]), name


@pytest.mark.parametrize("count", [3, 15, 16, 40])
@pytest.mark.parametrize("carriers", [5, 16])
def test_a_mixed_batch_is_that_of_the_mark(motifs, draw, count, carriers):
    mark = draw(m=16, recipe=Recipe(carriers=carriers, presentations=20, warmup_steps=0))
    held, model = Collated(motifs.graphs), new_model(motifs, "GIN", 0).eval()
    mixing, index = Mixing(held, mark, 80), torch.arange(count).flip(0)
    assert mark.recipe.plan(16, 80).use(63) is not None
    for step in (62, 63):  # not among the last, in which mark.mix treats batch norms in another way
        ours, theirs = mixing.batch(index, step), mark.mix(held.batch(index), step=step, steps=80)
        assert ours.batch.y.tolist() == held.y[index].tolist()
        for name in ("x", "edge_index", "batch", "ptr"):
            assert torch.equal(ours.batch[name], theirs.batch[name]), name
        assert torch.equal(ours(model), theirs(model))
        assert torch.equal(ours.loss(), theirs.loss())
