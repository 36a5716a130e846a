"""stealth=True is one setting: carriers with the features of their seed graphs."""

from __future__ import annotations

import numpy as np
import pytest
from typer.testing import CliRunner

from invgnn.cli import app
from invgnn.errors import ParameterError
from invgnn.secret import Secret
from invgnn.watermark.mark import Watermark
from invgnn.watermark.recipe import Recipe
from invgnn.watermark.sampler import Sampler

SECRET = Secret(bytes(range(32)))


def looks(graphs):
    """The feature rows of every graph, in any order."""
    return {
        graphs.x[start:end][np.lexsort(graphs.x[start:end].T)].tobytes()
        for start, end in zip(graphs.ptr[:-1], graphs.ptr[1:], strict=True)
    }


@pytest.mark.parametrize("level", ["graph", "node"])
def test_carriers_look_like_graphs_of_the_task(references, level):
    known = looks(references[level].graphs)
    hidden = Watermark.draw(SECRET, references[level], m=16, classes=2, stealth=True)
    usual = Watermark.draw(SECRET, references[level], m=16, classes=2)
    assert looks(hidden.carriers) <= known
    assert not looks(usual.carriers) & known
    assert hidden.context["sampler"] == Sampler(donors=None).record()
    same = Watermark.draw(SECRET, references[level], m=16, classes=2, sampler=Sampler(donors=None))
    assert hidden.digest == same.digest
    assert hidden.recipe.after_task == 2 * same.recipe.after_task


def test_the_number_of_carriers(references):
    """256 on graph tasks, where some may be recognised; elsewhere, and without stealth, 128."""
    for level, stealth, m in (("graph", True, 256), ("node", True, 128), ("graph", False, 128)):
        mark = Watermark.draw(SECRET, references[level], classes=2, stealth=stealth)
        assert mark.m == m
    assert Watermark.draw(SECRET, references["graph"], classes=2, stealth=True, m=128).m == 128


def test_a_recipe_is_kept_and_a_sampler_is_refused(references):
    options = {"m": 16, "classes": 2, "stealth": True}
    recipe = Recipe(presentations=7)
    assert Watermark.draw(SECRET, references["graph"], **options, recipe=recipe).recipe == recipe
    with pytest.raises(ParameterError, match="chooses the sampler"):
        Watermark.draw(SECRET, references["graph"], **options, sampler=Sampler())
    with pytest.raises(ParameterError, match="stealth"):
        Watermark.draw(SECRET, references["graph"], m=16, classes=2, stealth="yes")


def test_the_command_line(tmp_path):
    path = tmp_path / "a.secret"
    SECRET.save(path, None, insecure_no_passphrase=True)
    common = ["carriers", "--secret", str(path), "--task", "BA-2motif", "--m", "16", "--stealth"]
    out = ["-o", str(tmp_path / "a.mark"), "--insecure-no-passphrase"]
    done = CliRunner().invoke(app, [*common, *out])
    assert done.exit_code == 0, done.output
    assert Watermark.load(tmp_path / "a.mark").context["sampler"] == Sampler(donors=None).record()
    done = CliRunner().invoke(app, [*common, *out, "--donors", "4", "--overwrite"])
    assert done.exit_code == 2
    assert "--stealth decides" in done.output
