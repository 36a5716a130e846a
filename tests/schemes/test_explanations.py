"""EXPL: its formulas against independent ones, its nulls, and sets that must be disjoint."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from _helpers.schemes import SCHEMES
from invgnn.errors import SchemeError
from invgnn.schemes.explanation import coefficients, feature_kernels, mark_size, match_index, output_kernel
from invgnn.schemes.explanations import SETS
from invgnn.schemes.secret_sets import require_disjoint
from invgnn.secret import Secret


def full_coefficients(x, p):
    """The regression on whole kernel matrices, in numpy."""

    def kernel(squared, width):
        k = np.exp(-squared / (0.2 * width))
        h = np.eye(len(k)) - 1 / len(k)
        k = h @ k @ h
        size = np.linalg.norm(k)
        return (k / size if size > 1e-7 else 0 * k).ravel()

    x, p = ((one - one.mean()) / one.std() for one in (x, p))
    columns = [kernel((x[:, None, k] - x[None, :, k]) ** 2, x.shape[1]) for k in range(x.shape[1])]
    k = np.stack(columns, axis=1)
    target = kernel(((p[:, None] - p[None]) ** 2).sum(-1), p.shape[1])
    return np.linalg.solve(k.T @ k + 0.1 * np.eye(k.shape[1]), k.T @ target)


@pytest.mark.parametrize(("n", "width"), [(6, 5), (4, 30)])
def test_coefficients_are_those_of_the_whole_matrices(n, width):
    rng = np.random.default_rng(0)
    x = (rng.random((n, width)) < 0.4).astype(float)
    x[:, 1] = 1.0  # a constant feature explains nothing
    p = rng.dirichlet(np.ones(3), size=n)
    found = coefficients(torch.from_numpy(x), torch.from_numpy(p)).numpy()
    assert np.allclose(found, full_coefficients(x, p), atol=1e-9)
    assert found[1] == 0


def test_constant_outputs_explain_nothing():
    x = torch.from_numpy(np.random.default_rng(1).random((5, 4)))
    assert not coefficients(x, torch.full((5, 3), 1 / 3, dtype=torch.float64)).any()
    assert output_kernel(torch.full((5, 3), 1 / 3)).isfinite().all()
    assert feature_kernels(x).shape == (15, 4)


def test_the_number_of_marked_features_is_that_of_the_authors():
    size = mark_size(745, 4)
    assert (size.threshold, size.marked) == (137, 107)
    assert mark_size(3, 4) is None  # PROTEINS
    assert mark_size(37, 4).marked == 34  # NCI1


def test_the_match_index_counts_equal_signs_other_than_zero():
    signs = np.array([[1, -1, 0, 1], [1, -1, 0, -1], [1, -1, 0, 1]], dtype=np.int8)
    assert match_index(signs) == 2
    assert match_index(np.stack([signs, -signs])).tolist() == [2, 2]


def test_overlapping_sets_are_refused(nodes):
    scheme = SCHEMES["EXPL"]
    secret = Secret(b"o" * 32)
    sets = scheme.draw_sets(secret.derive("sets"), nodes)
    require_disjoint(sets)
    bad = [*sets[:-1], np.concatenate([sets[-1][:-1], sets[0][:1]])]
    with pytest.raises(SchemeError, match="overlap"):
        scheme.on_sets(secret, nodes, bad, 4)
    with pytest.raises(SchemeError, match="overlap"):
        require_disjoint([[1, 1], [2]])


def test_features_that_are_constant_within_the_sets_are_refused(nodes):
    graph = nodes.graphs[0].clone()
    graph.x[:, 15:] = 0  # a constant feature explains nothing, so at most 15 signs could be read
    with pytest.raises(SchemeError, match=r"only 15 of \d+ marked features differ"):
        SCHEMES["EXPL"].prepare(Secret(b"o" * 32), replace(nodes, graphs=[graph]))
    graph.x[:, 15:25] = nodes.graphs[0].x[:, 15:25]
    SCHEMES["EXPL"].prepare(Secret(b"o" * 32), replace(nodes, graphs=[graph]))


def test_the_empirical_null_leaves_out_the_secret_tuple(nodes):
    mark = SCHEMES["EXPL"].prepare(Secret(b"o" * 32), nodes)
    assert mark.tuples.shape[1] == SETS
    assert (mark.tuples.max(1) >= SETS).all()
    assert all(len(set(row)) == SETS for row in mark.tuples[:50].tolist())
    assert 2 * mark.bits.sum() == len(mark.bits)


def test_p_values_of_the_match_index_are_fair_for_an_innocent_model(nodes, innocents):
    model = innocents["node"][0]
    marks = [SCHEMES["EXPL"].prepare(Secret(bytes([i]) * 32), nodes) for i in range(12)]
    found = [mark.read(model) for mark in marks]
    p = np.array([one.more["p of the match index"] for one in found])
    assert 0.15 < p.mean() <= 1
    assert sum(one.bits > 7 for one in found) <= 1
