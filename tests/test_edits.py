"""Every edit: the original untouched, something changed, and as much as it says."""

from __future__ import annotations

import copy
import inspect

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch_geometric.nn import Linear

import invgnn.edits
from invgnn.edits import Edit, Prune, Quantise
from invgnn.edits.edit import weight_matrices
from invgnn.edits.quantise import quantised
from invgnn.errors import ParameterError, SuspectError
from invgnn.tasks import new_model

ARGUMENTS = {"Prune": [{"share": 0.2}, {"share": 0.5}], "Quantise": [{"bits": 8}, {"bits": 4}]}
ARGUMENTS["Cast"] = [{"precision": "bf16"}, {"precision": "fp16"}]
ARGUMENTS["FineTune"] = [{"epochs": 1}, {"epochs": 2, "lr": 1e-2}]
CLASSES = [getattr(invgnn.edits, name) for name in invgnn.edits.__all__]
EDITS = [
    kind(**options)
    for kind in CLASSES
    if inspect.isclass(kind) and issubclass(kind, Edit) and not inspect.isabstract(kind)
    for options in ARGUMENTS.get(kind.__name__, [{}])
]


@pytest.mark.parametrize("level", ["graph", "node"])
@pytest.mark.parametrize("edit", EDITS, ids=repr)
def test_every_edit_keeps_its_contract(edit, level, motifs, web, unchanged):
    task = {"graph": motifs, "node": web}[level]
    model = new_model(task, "GIN", 0, hidden_channels=8).train()
    with unchanged(model):
        edited = edit(model, task)
    assert edited is not model
    assert not any(module.training for module in edited.modules())
    assert list(edited.state_dict()) == list(model.state_dict())
    assert not {id(p) for p in edited.parameters()} & {id(p) for p in model.parameters()}
    data = task.graphs[0]
    with torch.no_grad():
        ours, theirs = (net.eval()(data.x, data.edge_index) for net in (model, edited))
    assert torch.isfinite(theirs).all()
    assert not torch.allclose(ours, theirs, atol=1e-7)
    again = edit(model, task)
    assert all(again.state_dict()[name].equal(value) for name, value in edited.state_dict().items())
    assert repr(edit) == repr(edit)


def test_names_tell_edits_apart():
    assert len({repr(edit) for edit in EDITS}) == len(EDITS)


@pytest.mark.parametrize("share", [0.2, 0.4, 0.5, 0.99])
def test_pruning_takes_exactly_its_share_and_the_smallest(motifs, share):
    model = new_model(motifs, "GIN", 0, hidden_channels=16)
    pruned = Prune(share)(model, motifs)
    before, after = (torch.cat([w.detach().view(-1) for w in weight_matrices(m)]) for m in (model, pruned))
    gone = after == 0
    assert int(gone.sum()) == int(share * len(before))
    assert before[gone].abs().max() < before[~gone].abs().min()
    assert after[~gone].equal(before[~gone])
    for name, value in model.state_dict().items():
        assert value.dim() >= 2 or value.equal(pruned.state_dict()[name])


@given(st.integers(2, 8), st.integers(1, 5), st.integers(1, 9), st.integers(0, 99))
def test_quantisation_per_channel(bits, rows, columns, seed):
    weight = torch.from_numpy(np.random.default_rng(seed).normal(size=(rows, columns)))
    found = quantised(weight, bits).numpy()
    for row, got in zip(weight.numpy(), found, strict=True):
        levels = (
            np.abs(row).max() * np.arange(-(2 ** (bits - 1)) + 1, 2 ** (bits - 1)) / (2 ** (bits - 1) - 1)
        )
        nearest = np.abs(row[:, None] - levels).min(1)
        np.testing.assert_allclose(np.abs(row - got), nearest, atol=1e-12)
        assert np.isin(np.round(got, 9), np.round(levels, 9)).all()


def test_quantisation_reaches_pygs_own_linear(motifs):
    model = new_model(motifs, "GCN", 0, hidden_channels=16)
    edited = dict(Quantise(4)(model, motifs).named_modules())
    linears = [name for name, module in model.named_modules() if isinstance(module, Linear)]
    assert len(linears) == 4
    assert not any(isinstance(module, nn.Linear) for module in model.modules())
    for name in linears:
        before, after = (m.weight.detach() for m in (dict(model.named_modules())[name], edited[name]))
        assert not before.equal(after)
        assert max(len(row.unique()) for row in after) <= 15


def test_zero_weights_stay_finite(motifs):
    model = new_model(motifs, "GCN", 0, hidden_channels=4)
    with torch.no_grad():
        model.convs[0].lin.weight.zero_()
    assert all(torch.isfinite(p).all() for p in Quantise(4)(model, motifs).parameters())
    empty = copy.deepcopy(model)
    with torch.no_grad():
        for weight in weight_matrices(empty):
            weight.zero_()
    with pytest.raises(SuspectError):
        Quantise(4)(empty, motifs)


@pytest.mark.parametrize(
    "make", [lambda: Prune(0), lambda: Prune(1), lambda: Prune(float("nan")), lambda: Quantise(1)]
)
def test_senseless_edits(make):
    with pytest.raises(ParameterError) as caught:
        make()
    assert caught.value.advice
