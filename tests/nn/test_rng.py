"""Context managers that change global state and restore it."""

import pytest
import torch
from torch import nn
from torch.nn import functional

from invgnn.nn.rng import without_dropout

LAYERS = {
    "nn.Dropout": nn.Dropout(0.9),
    "in place": nn.Dropout(0.9, inplace=True),
    "whole channels": nn.Dropout1d(0.9),
    "alpha": nn.AlphaDropout(0.9),
    "alpha, whole channels": nn.FeatureAlphaDropout(0.9),
    "functional": lambda x: functional.dropout(input=x, p=0.9),
    "torch's own": lambda x: torch.dropout(x, 0.9, True),
    "inside a model": nn.Sequential(nn.Identity(), nn.Sequential(nn.Dropout(0.9))),
}


@pytest.mark.parametrize("layer", LAYERS.values(), ids=LAYERS)
def test_nothing_is_dropped_inside_and_everything_as_before_outside(layer):
    x = torch.ones(4, 30, 5, requires_grad=True)
    with without_dropout():
        output = layer(x * 1)
    assert torch.equal(output, x)
    output.sum().backward()
    assert torch.equal(x.grad, torch.ones_like(x))
    assert not torch.equal(layer(x * 1), x)


def test_an_error_inside_leaves_dropout_as_it_was():
    with pytest.raises(ZeroDivisionError), without_dropout():
        raise ZeroDivisionError
    assert not torch.equal(nn.Dropout(0.9)(torch.ones(100)), torch.ones(100))
