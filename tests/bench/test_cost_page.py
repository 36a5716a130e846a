"""The performance page shows what was measured, and networkx takes the same decisions as we do."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))

from speed import clock, drawing, growing, kept, page, protocol  # noqa: E402 - found beside the tests

from invgnn.graphs.disjoint_union import Graphs  # noqa: E402


def test_page_shows_the_kept_figures():
    text = (ROOT / "docs" / "results/cost.md").read_text()
    table = text.split("<!-- table -->")[1].split("<!-- end -->")[0].strip()
    assert table == page.summary(), "run make bench-speed"


def test_every_promise_was_measured():
    from speed.__main__ import rows

    assert {f.row for f in kept.read()} == {"machine", *rows()}


@pytest.mark.filterwarnings("ignore:The hashes produced for graphs:UserWarning")
def test_networkx_takes_the_same_decisions_on_the_same_candidates(rings):
    dense = growing.molecules(60)
    for graphs in (rings, dense):
        alike, judged = drawing.decisions(graphs, protocol.networks(graphs), m=24)
        assert alike == judged >= 256


@pytest.mark.filterwarnings("ignore:The hashes produced for graphs:UserWarning")
def test_the_slow_protocol_draws_carriers_too(rings):
    nets = protocol.networks(rings)
    sampler = drawing.Sampler(wave=32)
    drawn, values = protocol.draw(nets, 8, sampler, seed=3)
    assert len(drawn) == 8
    again = protocol.Protocol(nets, sampler)
    assert all(again.judge(g, True)[0] == "" for g in drawn)
    assert len({again.look(g) for g in drawn}) == 8
    ends = [np.sort(np.array(g.edges).reshape(-1, 2), axis=1) for g in drawn]
    sizes = np.cumsum([0, *map(len, drawn)])
    edges = np.concatenate([e[np.lexsort(e.T[::-1])] + by for e, by in zip(ends, sizes, strict=False)])
    np.testing.assert_allclose(values, drawing.lambda2(Graphs(sizes, edges)), atol=1e-5)


def test_figures_survive_the_file(tmp_path):
    race = clock.Race(np.array([[1.0, 2.0], [2.0, 2.0]]), np.array([[4.0, 8.0], [4.0, 4.0]]))
    figures = [race.faster("a", "b", "c", ">= 3", note="d, e"), race.dearer("a", "b", "c", "<= 0.3")]
    kept.write(figures, tmp_path / "speed.csv")
    assert kept.read(tmp_path / "speed.csv") == figures
    assert [f.value for f in figures] == [3.0, 0.375]
    assert [f.held for f in figures] == [True, False]
    assert clock.exponent([1, 10, 100], [2.0, 20.0, 200.0]) == pytest.approx(1)
