"""The check for authors of plug-ins: good edits pass, and every bad one is told what is wrong."""

from __future__ import annotations

import random
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from invgnn.attacks.edits import Edit, Prune
from invgnn.errors import ParameterError
from invgnn.nn.rng import preserved_rng
from invgnn.testing import check_edit, small_task
from invgnn.training.tasks import Task, new_model

PAGE = Path(__file__).parents[2] / "docs" / "how-to/add-an-edit.md"


class Good(Edit):
    """Half of every weight: a decent edit to spoil in one place."""

    @torch.no_grad()
    def apply(self, model, task):
        for value in model.parameters():
            value.mul_(0.5)
        return model

    def __repr__(self):
        return "halve"


class Mutating(Good):
    def __call__(self, model, task):
        return super().__call__(self.apply(model, task), task)


class LeavingMode(Good):
    def __call__(self, model, task):
        model.eval()
        return super().__call__(model, task)


class LeavingBuffers(Good):
    def __call__(self, model, task):
        with preserved_rng():
            model.train()(task.graphs[0].x, task.graphs[0].edge_index)
        return super().__call__(model, task)


class LeavingGradients(Good):
    def __call__(self, model, task):
        sum(p.sum() for p in model.parameters()).backward()
        return super().__call__(model, task)


class LeavingHooks(Good):
    def __call__(self, model, task):
        model.register_forward_hook(lambda *_: None)
        return super().__call__(model, task)


class LeavingHooksInTheCopy(Good):
    def apply(self, model, task):
        super().apply(model, task).register_forward_hook(lambda *_: None)
        return model


class ConsumingChance(Good):
    def __call__(self, model, task):
        torch.rand(1)
        return super().__call__(model, task)


class ConsumingNumpysChance(Good):
    def __call__(self, model, task):
        np.random.random()  # noqa: NPY002 - a bad edit
        return super().__call__(model, task)


class ConsumingPythonsChance(Good):
    def __call__(self, model, task):
        random.random()  # noqa: S311 - a bad edit
        return super().__call__(model, task)


class SpoilingTheTask(Good):
    def apply(self, model, task):
        task.graphs[0].x[0, 0] += 1
        return super().apply(model, task)


class GivingNaN(Good):
    def apply(self, model, task):
        next(iter(model.parameters())).data.fill_(torch.nan)
        return model


class Overflowing(Good):
    """All weights finite, scores not."""

    def apply(self, model, task):
        for value in model.parameters():
            value.data.fill_(1e30)
        return model


class Rolling(Good):
    """Chance that no seed reaches."""

    def apply(self, model, task):
        noise = np.random.default_rng().normal()
        for value in model.parameters():
            value.data.add_(noise)
        return model


class Remembering(Good):
    """Every call does more."""

    calls = 0

    def apply(self, model, task):
        self.calls += 1
        for value in model.parameters():
            value.data.div_(1 + self.calls)
        return model


class Training(Good):
    def __call__(self, model, task):
        return super().__call__(model, task).train()


class Idle(Good):
    def apply(self, model, task):
        return model


class Sharing(Good):
    def __call__(self, model, task):
        edited = super().__call__(model, task)
        edited.convs[0].nn.lins[0].weight = model.convs[0].nn.lins[0].weight
        return edited


class Widening(Good):
    """Another architecture, undeclared."""

    def apply(self, model, task):
        return new_model(task, "GIN", 0, hidden_channels=12)


class WideningOpenly(Widening):
    same_architecture = False


class GivingTooManyClasses(Good):
    same_architecture = False

    def apply(self, model, task):
        class More(nn.Module):
            def __init__(self):
                super().__init__()
                self.model = model

            def forward(self, x, edge_index, batch=None):
                return self.model(x, edge_index, batch).repeat(1, 2)

        return More()


class ClaimingTheSameFunction(Good):
    same_function = True


class Counting(Good):
    calls = 0

    def apply(self, model, task):
        self.calls += 1
        return super().apply(model, task)

    def __repr__(self):
        return f"halve {self.calls}"


class Nameless(Good):
    def __repr__(self):
        return object.__repr__(self)


class Empty(Good):
    def __repr__(self):
        return ""


class Verbose(Good):
    def __repr__(self):
        return "halve\nall"


@pytest.mark.parametrize("edit", [Good(), WideningOpenly(), Prune(0.5)], ids=lambda e: type(e).__name__)
def test_good_edits_pass(edit):
    check_edit(edit)


@pytest.mark.parametrize(
    ("edit", "says"),
    [
        (Mutating(), "original's weights or buffers"),
        (LeavingMode(), "training mode changed"),
        (LeavingBuffers(), "weights or buffers changed"),
        (LeavingGradients(), "gradients changed"),
        (LeavingHooks(), "original's hooks changed"),
        (LeavingHooksInTheCopy(), "hooks stay behind"),
        (ConsumingChance(), "random state of torch"),
        (ConsumingNumpysChance(), "random state of numpy"),
        (ConsumingPythonsChance(), "random state of Python"),
        (SpoilingTheTask(), "task's own data changed"),
        (GivingNaN(), "weights are NaN"),
        (Overflowing(), "scores are NaN"),
        (Rolling(), "two runs differ"),
        (Remembering(), "two runs differ"),
        (Training(), "training mode; call eval"),
        (Idle(), "nothing changed"),
        (Sharing(), "shares memory"),
        (Widening(), "same_architecture = False"),
        (GivingTooManyClasses(), r"shape \(.*, 4\), not \(.*, 2\)"),
        (ClaimingTheSameFunction(), "same_function = True"),
        (Counting(), "repr.. became"),
        (Nameless(), "one object in memory"),
        (Empty(), "one short line"),
        (Verbose(), "one short line"),
        (lambda model, task: model, "does not derive"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Edit) else None,
)
def test_bad_edits_are_told(edit, says):
    with pytest.raises(AssertionError, match=says):
        check_edit(edit)


def test_the_authors_model_is_safe(motifs, unchanged):
    model = new_model(motifs, "GIN", 0, hidden_channels=8).eval()
    with unchanged(model):
        check_edit(Good(), model, motifs)
        with pytest.raises(AssertionError):
            check_edit(Mutating(), model, motifs)


def test_a_task_alone_gets_a_small_model(web):
    check_edit(Good(), task=web)


def test_a_model_needs_its_task(web):
    with pytest.raises(ParameterError, match="without a task"):
        check_edit(Good(), new_model(web, "GCN", 0))


@pytest.mark.parametrize("level", ["graph", "node"])
def test_small_tasks_are_tasks(level):
    task = small_task(level)
    assert isinstance(task, Task)
    assert task.level == level
    inputs = len(task.graphs) if level == "graph" else task.graphs[0].num_nodes
    assert torch.cat([task.train, task.val, task.test]).sort().values.tolist() == list(range(inputs))
    labels = torch.cat([graph.y for graph in task.graphs])
    assert labels.unique().tolist() == [0, 1]


def test_the_page_on_adding_an_edit_runs_as_written():
    space: dict = {}
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    for block in blocks:
        exec(compile(block, PAGE.name, "exec"), space)  # noqa: S102 - the page's own code
    assert issubclass(space["ClipWeights"], Edit)
    assert len([line for line in blocks[0].splitlines() if line.strip()]) <= 20
