"""What a thief has: a share of the owner's training data, or data that the owner never had.

Removal is measured on one half of the test part. The other half is data of the same kind that the owner
never had. On a node task the graph and the features of all nodes are public; what a thief has or lacks are
labels.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch

from invgnn.errors import ParameterError
from invgnn.training.tasks import Task

SHARES = {"1%": 0.01, "10%": 0.1, "100%": 1.0}
FRESH = "fresh"
"""Labelled data of the same kind that the owner never had: the other half of the test part."""
THIEVES = (*SHARES, FRESH)
HELD_OUT = 20
"""A thief with at least this many inputs in a tenth of the data selects epochs on that tenth."""


def thief_task(task: Task, thief: str, seed: int) -> Task:
    """Return the task as a thief has it.

    Args:
        task: The owner's task.
        thief: One of `THIEVES`.
        seed: Seed of the choice.

    Returns:
        A task whose training and validation part are the thief's. If a tenth of the thief's data is less
            than 20 inputs, nothing is held out and the validation part is the training part. The test
            part, the same for all thieves, was neither the owner's nor the thief's.

    Raises:
        ParameterError: If there is no such thief.
    """
    draws = np.random.default_rng([seed, 0x7419])
    test = task.test[torch.from_numpy(draws.permutation(len(task.test))).to(task.test.device)]
    measured, fresh = test[: (len(test) + 1) // 2], test[(len(test) + 1) // 2 :]
    if thief == FRESH:
        own = fresh
    elif thief in SHARES:
        order = torch.from_numpy(draws.permutation(len(task.train))).to(task.train.device)
        own = task.train[order[: max(2, round(SHARES[thief] * len(order)))]]
    else:
        raise ParameterError(f"there is no thief {thief!r}", f"choose one of {', '.join(THIEVES)}")
    tenth = len(own) // 10
    held, learnt = (own[:tenth], own[tenth:]) if tenth >= HELD_OUT else (own, own)
    return replace(task, train=learnt, val=held, test=measured)


def selects(task: Task) -> bool:
    """Return whether a thief has held data out to select epochs on.

    Args:
        task: What `thief_task` returned.
    """
    return len(task.val) != len(task.train) or not bool((task.val == task.train).all())
