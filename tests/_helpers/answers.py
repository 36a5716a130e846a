"""Answers to all questions of a mark, of a model that matches as many bits as a test likes."""

from __future__ import annotations

import numpy as np

from _helpers import hostile


def answers_for(mark, access, matches, seed):
    """Probabilities for every question: on carriers so that this many bits match, else by class."""
    draws = np.random.default_rng(seed)
    graphs, labels = mark.asked
    signs = mark.direction(access, 2).numpy()
    each = (mark.m - matches) // 2  # as many ones as zeros, so that the median separates the rest
    wrong = {int(n) for bit in (0, 1) for n in draws.permutation(np.flatnonzero(mark.bits == bit))[:each]}
    table = {}
    for place, number in enumerate(mark.order.tolist()):
        if number < mark.m:
            said = int(mark.bits[number]) ^ (number in wrong)
            logit = (2 * said - 1) * signs * draws.uniform(0.5, 2)
        else:
            logit = np.eye(2)[int(labels[place])] * 2 + draws.normal(size=2) * 0.7
        weights = np.exp(logit)
        graph = graphs.take([place])
        key = hostile.key_of(graph.x.tolist(), graph.directed().T.tolist())
        kind = "carrier" if number < mark.m else "ordinary"
        table[key] = [(weights / weights.sum()).tolist(), kind]
    return table
