"""Weight scaling: the same function with larger weights, which fine-tuning changes less."""

from __future__ import annotations

import copy
from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.nn.utils import prune
from torch_geometric.nn import GATConv, GCNConv, GINConv, global_mean_pool

from invgnn.attacks.edits import Cast, FineTune, Prune
from invgnn.errors import ParameterError
from invgnn.nn.forward import placed, to_batch
from invgnn.nn.perception import attach_head
from invgnn.nn.rng import seeded
from invgnn.nn.weight_scaling import LARGEST, scale_weights, unscale_weights, weight_scale
from invgnn.training.batching import scores, some_inputs
from invgnn.training.tasks import new_model
from invgnn.training.trainer import train
from invgnn.watermark.recipe import Recipe


@pytest.fixture(scope="module")
def marked_gin(motifs, draw):
    """A marked GIN with unscaled weights, and the mark."""
    mark = draw(m=32, recipe=Recipe(weight_scale=None))
    model = new_model(motifs, "GIN", 0, hidden_channels=32)
    train(model, motifs, mark, epochs=100)
    return model, mark


class Stack(nn.Module):
    """Blocks of some convolutions and a norm, with an activation after each, pooling, and a head."""

    def __init__(self, norm=nn.BatchNorm1d, act=nn.ReLU, maps=1, head=1, width=6, seed=0):
        super().__init__()
        with seeded(seed):
            widths = [1] + [width] * 2 * maps
            self.convs = nn.ModuleList(GCNConv(a, b) for a, b in pairwise(widths))
            for conv in self.convs:
                nn.init.normal_(conv.bias)
            self.norms = nn.ModuleList([norm(width) for _ in range(2)])
            self.act, self.maps = act(), maps
            self.head = nn.Sequential(*(nn.Linear(width, width) for _ in range(head)))

    def forward(self, x, edge_index, batch):
        x = x[:, :1]
        for place, conv in enumerate(self.convs, 1):
            x = conv(x, edge_index)
            x = self.act(x if place % self.maps else self.norms[place // self.maps - 1](x))
        x = global_mean_pool(x, batch)
        for layer in self.head[:-1]:
            x = self.act(layer(x))
        return self.head[-1](x)


def settled(model, task):
    """The model with statistics that norms have gathered."""
    model.train()
    with torch.no_grad():
        for _ in range(5):
            batch = some_inputs(task)
            model(batch.x, batch.edge_index, batch.batch)
    return model.eval()


def matrices(model):
    return [p.detach().clone() for p in model.parameters() if p.dim() == 2]


# --- the same function ----------------------------------------------------------------------------


def test_every_matrix_grows_by_one_factor_and_no_score_changes(marked_gin, motifs):
    unscaled, _ = marked_gin
    scaled, inputs = copy.deepcopy(unscaled), some_inputs(motifs)
    factor = scale_weights(scaled, inputs, 32)
    assert factor > 8
    assert factor == pytest.approx(32 / weight_scale(unscaled, inputs))
    assert weight_scale(scaled, inputs) == pytest.approx(32)
    for before, after in zip(matrices(unscaled), matrices(scaled), strict=True):
        assert torch.allclose(after, factor * before)
    assert torch.allclose(scores(unscaled, motifs), scores(scaled, motifs), atol=1e-5)
    assert list(scaled.state_dict()) == list(unscaled.state_dict())


def test_new_weights_have_scale_one_and_scaling_twice_is_scaling_once(motifs):
    model, inputs = new_model(motifs, "GIN", 3), some_inputs(motifs)
    assert weight_scale(model, inputs) == pytest.approx(1, abs=0.1)
    assert scale_weights(model, inputs, 16) == pytest.approx(16, rel=0.1)
    held = copy.deepcopy(model.state_dict())
    assert scale_weights(model, inputs, 16) == pytest.approx(1)
    assert all(torch.allclose(v, held[k], rtol=1e-4) for k, v in model.state_dict().items())


def test_unscaling_reverts_scaling_and_leaves_other_models_unchanged(marked_gin, motifs):
    unscaled, _ = marked_gin
    model, inputs = copy.deepcopy(unscaled), some_inputs(motifs)
    unscale_weights(model, inputs)
    assert all(v.equal(unscaled.state_dict()[k]) for k, v in model.state_dict().items())
    scale_weights(model, inputs)
    unscale_weights(model, inputs)
    assert weight_scale(model, inputs) == pytest.approx(2)
    assert torch.allclose(scores(unscaled, motifs), scores(model, motifs), atol=1e-4)


@given(
    width=st.integers(2, 8),
    maps=st.integers(1, 3),
    to=st.floats(0.1, 200),
    act=st.sampled_from([nn.ReLU, nn.LeakyReLU, nn.Identity]),
    seed=st.integers(0, 99),
)
def test_any_stack_of_maps_and_norms_gives_the_same_scores(motifs, rings, width, maps, to, act, seed):
    """On the inputs it was checked with and on others, in double precision to all but rounding."""
    model = settled(Stack(act=act, maps=maps, width=width, seed=seed), motifs).double()
    others = to_batch(rings, torch.zeros(0, dtype=torch.float64))
    others.x = 7 * others.x - 3
    inputs = placed(some_inputs(motifs), others.x)
    before = [model(batch.x, batch.edge_index, batch.batch) for batch in (inputs, others)]
    factor = scale_weights(model, inputs, to)
    assert factor > 0
    after = [model(batch.x, batch.edge_index, batch.batch) for batch in (inputs, others)]
    for one, other in zip(before, after, strict=True):
        assert torch.allclose(one, other, atol=1e-7, rtol=1e-7)


def test_units_with_tiny_variance_keep_their_output(motifs):
    """A variance below the small number that norms add: without its weight a unit would grow tenfold."""
    model = settled(Stack(), motifs)
    with torch.no_grad():
        model.convs[0].lin.weight[0] *= 1e-4
        model.norms[0].running_var[0] *= 1e-8
        model.norms[0].running_mean[0] *= 1e-4
    before, weight = scores(model, motifs), model.norms[0].weight[0].item()
    assert scale_weights(model, some_inputs(motifs), 64)
    assert model.norms[0].weight[0] < weight / 10
    assert torch.allclose(before, scores(model, motifs), atol=1e-5)


class Twice(Stack):
    """Calls a convolution a second time."""

    def forward(self, x, edge_index, batch):
        x = self.act(self.norms[0](self.convs[0](x[:, :1], edge_index)))
        x = self.convs[1](self.act(self.norms[1](self.convs[1](x, edge_index))), edge_index)
        return self.head(global_mean_pool(x, batch))


class Tied(Stack):
    """Two convolutions with one matrix."""

    def __init__(self):
        super().__init__(maps=2)
        self.convs[2].lin.weight = self.convs[1].lin.weight


class Masked(Stack):
    """A matrix that torch's own pruning makes anew in every pass."""

    def __init__(self):
        super().__init__()
        prune.l1_unstructured(self.head[0], "weight", 0.5)


class Beside(Stack):
    """A norm, and a way around it."""

    def forward(self, x, edge_index, batch):
        x = self.act(self.norms[0](self.convs[0](x[:, :1], edge_index)))
        x = x + self.norms[1](self.convs[1](x, edge_index))
        return self.head(global_mean_pool(x.relu(), batch))


class Attention(Stack):
    def __init__(self):
        super().__init__()
        self.convs[1] = GATConv(6, 6)


class Headed(Stack):
    def __init__(self):
        super().__init__()
        attach_head(self, 6)


@pytest.mark.parametrize(
    "make",
    [
        lambda: Stack(nn.Identity),
        lambda: Stack(lambda width: nn.BatchNorm1d(width, affine=False)),
        lambda: Stack(lambda width: nn.BatchNorm1d(width, track_running_stats=False)),
        lambda: Stack(nn.LayerNorm),
        lambda: Stack(act=nn.Tanh),
        lambda: Stack(act=nn.ReLU6),
        lambda: Stack(act=lambda: nn.Hardtanh(-10, 10)),
        lambda: Stack(head=2),
        Twice,
        Tied,
        Beside,
        Attention,
        Headed,
        Masked,
    ],
    ids=[
        *("no norms", "nothing to shrink", "nothing kept", "LayerNorm", "tanh", "ReLU6", "Hardtanh"),
        *("longer head", "twice", "tied", "residual", "attention", "paper's head", "masked"),
    ],
)
def test_models_whose_scale_is_not_free_are_left_as_they_were(make, motifs, unchanged):
    model = settled(make(), motifs).train()
    with unchanged(model):
        assert scale_weights(model, some_inputs(motifs), 64) is None


def test_a_model_that_fails_when_its_numbers_grow_is_left_as_it_was(motifs, unchanged):
    class Fuse(Stack):
        def forward(self, x, edge_index, batch):
            if self.head[0].weight.abs().max() > 3:
                raise KeyboardInterrupt
            return super().forward(x, edge_index, batch)

    model = settled(Fuse(), motifs).train()
    with unchanged(model), pytest.raises(KeyboardInterrupt):
        scale_weights(model, some_inputs(motifs), 64)


def test_the_model_inside_a_wrapper_is_scaled(motifs):
    model, inputs = settled(Stack(), motifs), some_inputs(motifs)
    size = weight_scale(model, inputs)
    assert weight_scale(nn.DataParallel(model), inputs) == size
    assert scale_weights(nn.DataParallel(model), inputs, 16) == pytest.approx(16 / size)


def test_caches_of_convolutions_are_left_unchanged(web):
    class Caching(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv, self.norm = GCNConv(5, 4, cached=True), nn.BatchNorm1d(4)
            self.last = GCNConv(4, 2, cached=True)

        def forward(self, x, edge_index):
            return self.last(self.norm(self.conv(x, edge_index)).relu(), edge_index)

    model = Caching()
    assert scale_weights(model, web.graphs[0], 16) > 4
    assert model.conv._cached_edge_index is None


@pytest.mark.parametrize(("kind", "off"), [(torch.float16, 0.02), (torch.bfloat16, 0.2)])
def test_a_model_in_half_precision_can_be_unscaled(marked_gin, motifs, kind, off):
    scaled = copy.deepcopy(marked_gin[0])
    scale_weights(scaled, some_inputs(motifs))
    halved = scaled.to(kind)
    inputs = placed(some_inputs(motifs), next(halved.parameters()))
    before = halved(inputs.x, inputs.edge_index, inputs.batch).float()
    unscale_weights(halved, inputs)
    assert weight_scale(halved, inputs) == pytest.approx(2, rel=0.05)
    after = halved(inputs.x, inputs.edge_index, inputs.batch).float()
    assert (before - after).abs().max() < off * before.std()


def test_modes_hooks_and_random_state_stay(motifs, unchanged):
    model = settled(Stack(), motifs).train()
    with unchanged(model):
        assert weight_scale(model, some_inputs(motifs)) is not None
    modes = [m.training for m in model.modules()]
    state = torch.get_rng_state()
    scale_weights(model, some_inputs(motifs))
    assert [m.training for m in model.modules()] == modes
    assert torch.get_rng_state().equal(state)


def test_an_odd_signature_is_called_by_the_users_own_function(motifs):
    class Odd(Stack):
        def forward(self, graph, scale):
            return super().forward(graph.x * scale, graph.edge_index, graph.batch)

    model = Odd().eval()
    assert scale_weights(model, some_inputs(motifs), 8, forward=lambda m, batch: m(batch, 1.0)) > 1


@pytest.mark.parametrize("to", [0, -1, 1e4, float("nan")])
def test_a_size_out_of_range_is_refused(to, motifs):
    with pytest.raises(ParameterError, match="to="):
        scale_weights(Stack(), some_inputs(motifs), to)
    with pytest.raises(ParameterError, match=r"weight_scale|not in"):
        Recipe(weight_scale=to)


# --- the benefit ----------------------------------------------------------------------------------


def turned(before, after):
    """The largest angle, as one less the cosine, by which a matrix before a norm has turned."""
    pairs = zip(matrices(before)[:-1], matrices(after)[:-1], strict=True)
    return max(1 - float(torch.cosine_similarity(a.flatten(), b.flatten(), dim=0)) for a, b in pairs)


def test_fine_tuning_changes_scaled_weights_less_and_keeps_more_of_the_mark(marked_gin, motifs):
    unscaled, mark = marked_gin
    scaled = copy.deepcopy(unscaled)
    scale_weights(scaled, some_inputs(motifs))
    tune = FineTune(20, 0.01)
    after_unscaled, after_scaled = tune(unscaled, motifs), tune(scaled, motifs)
    assert turned(scaled, after_scaled) < turned(unscaled, after_unscaled) / 3
    bits = [mark.evidence(mark.read(m)).bits() for m in (unscaled, after_unscaled, after_scaled)]
    assert bits[0] > 20
    assert bits[2] > bits[1] + 5


def test_pruning_selects_the_same_weights(marked_gin, motifs):
    unscaled, _ = marked_gin
    scaled = copy.deepcopy(unscaled)
    scale_weights(scaled, some_inputs(motifs))
    for a, b in zip(
        matrices(Prune(0.5)(unscaled, motifs)), matrices(Prune(0.5)(scaled, motifs)), strict=True
    ):
        assert (a == 0).equal(b == 0)


def test_scaled_weights_fit_into_half_precision(marked_gin, motifs):
    unscaled, _ = marked_gin
    scaled = copy.deepcopy(unscaled)
    with torch.no_grad():  # a model of large numbers
        for conv in scaled.convs:
            for norm in conv.nn.norms:
                norm.module.running_var.fill_(1000.0)
    before = Cast("fp16")(scaled, motifs)
    factor = scale_weights(scaled, some_inputs(motifs), 1000)
    assert 1 < factor <= (LARGEST / 1000) ** 0.5 + 1e-6
    assert scale_weights(scaled, some_inputs(motifs), 1000) == pytest.approx(1)  # no further, and not back
    assert torch.allclose(scores(before, motifs), scores(Cast("fp16")(scaled, motifs), motifs), atol=1e-2)


@pytest.mark.parametrize("scale", [None, 64.0])
def test_train_scales_the_weights_of_marked_models_only(motifs, draw, scale):
    inputs = some_inputs(motifs)
    marked, plain = (new_model(motifs, "GIN", 0, hidden_channels=16) for _ in range(2))
    history = train(marked, motifs, draw(recipe=Recipe(weight_scale=scale)), epochs=2)
    train(plain, motifs, epochs=2)
    assert weight_scale(plain, inputs) < 3
    assert (weight_scale(marked, inputs) > 20) == (scale is not None)
    assert history.test_acc >= 0


def test_a_model_with_scaled_weights_learns_another_mark_as_if_unscaled(marked_gin, motifs, draw):
    unscaled, _ = marked_gin
    scaled = copy.deepcopy(unscaled)
    scale_weights(unscaled, some_inputs(motifs), 2)
    scale_weights(scaled, some_inputs(motifs))
    second = draw(m=32, seed=9)
    histories = [train(model, motifs, second, epochs=2, trained=True) for model in (unscaled, scaled)]
    assert histories[1].mark_loss == pytest.approx(histories[0].mark_loss, rel=0.05)
    assert weight_scale(scaled, some_inputs(motifs)) > 20


def test_a_refreshed_student_has_scaled_weights(motifs, draw):
    mark, batches = draw(), [some_inputs(motifs)]
    student, teacher = (new_model(motifs, "GIN", seed, hidden_channels=8) for seed in (1, 2))
    mark.refresh(student, teacher, batches, epochs=2)
    assert weight_scale(student, batches[0]) > 20


def test_a_node_task_whose_forward_wants_batches_can_be_trained(web, draw):
    """What a user writes for carriers need not understand the one graph of the task."""

    def forward(model, batch):
        assert batch.ptr is not None
        return model(batch.x, batch.edge_index)

    model = new_model(web, "GIN", 0, hidden_channels=8)
    assert train(model, web, draw("node", access="logits", forward=forward), epochs=2).best_epoch >= 2


def test_a_trainable_eps_is_no_obstacle(motifs):
    class Eps(nn.Module):
        def __init__(self):
            super().__init__()
            inner = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU())
            self.conv, self.head = GINConv(inner, train_eps=True), nn.Linear(8, 2)

        def forward(self, x, edge_index, batch):
            return self.head(global_mean_pool(self.conv(x, edge_index), batch))

    assert scale_weights(Eps().eval(), some_inputs(motifs), 8) > 1
