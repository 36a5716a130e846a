"""The cost pages show what was measured, and networkx makes the same decisions as we do."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from invgnn.bench.measurements import read_measurements
from invgnn.bench.script import published
from invgnn.graphs.disjoint_union import Graphs
from invgnn.watermark.sampler import Sampler


def test_page_shows_the_kept_measurements(speed, root):
    page = root / "docs/results/appendix/cost.md"
    assert published(page) == speed("page").summary(), "run make bench-speed"


def test_every_promise_was_measured(speed):
    kept = read_measurements(speed("page").PATH)
    assert {one.row for one in kept} == {"machine", *speed("__main__").parts()}


def test_every_setting_of_the_paper_has_a_limit(speed, script):
    assert {*speed("embedding").LIMITS} == {*script("benchmarks/strength").SEEDS}


def test_the_generated_task_can_be_learnt(speed):
    """Its classes are balanced, its splits disjoint, its graphs undirected."""
    task = speed("embedding").large_task(400)
    labels = torch.cat([graph.y for graph in task.graphs])
    assert 0.4 < labels.float().mean() < 0.6
    rows = torch.cat([task.train, task.val, task.test])
    assert rows.sort().values.tolist() == list(range(400))
    for graph in task.graphs[:20]:
        assert graph.is_undirected()
        assert not graph.has_self_loops()


def test_measuring_a_part_again_keeps_the_other_rows(speed, tmp_path, monkeypatch):
    main, page = speed("__main__"), speed("page")
    path = tmp_path / "speed.csv"
    path.write_bytes(page.PATH.read_bytes())
    before = read_measurements(path)
    monkeypatch.setattr(main, "parts", lambda: dict.fromkeys({one.row for one in before[1:]}, list))
    main.measure(["growth"], path)
    after = read_measurements(path)
    assert not [one for one in after if one.row == "growth"]
    assert {one for one in before if one.row == "audit"} == {one for one in after if one.row == "audit"}


@pytest.mark.filterwarnings("ignore:The hashes produced for graphs:UserWarning")
def test_networkx_makes_the_same_decisions_on_the_same_candidates(speed, rings):
    drawing, protocol = speed("drawing"), speed("protocol")
    for graphs in (rings, speed("growing").molecules(60)):
        alike, judged = drawing.decisions(graphs, protocol.networks(graphs), m=24)
        assert alike == judged >= 256


@pytest.mark.filterwarnings("ignore:The hashes produced for graphs:UserWarning")
def test_the_slow_protocol_draws_carriers_too(speed, rings):
    protocol = speed("protocol")
    nets = protocol.networks(rings)
    sampler = Sampler(wave=32)
    drawn, values = protocol.draw(nets, 8, sampler, seed=3)
    assert len(drawn) == 8
    again = protocol.Protocol(nets, sampler)
    assert all(again.judge(g, True)[0] == "" for g in drawn)
    assert len({again.look(g) for g in drawn}) == 8
    ends = [np.sort(np.array(g.edges).reshape(-1, 2), axis=1) for g in drawn]
    sizes = np.cumsum([0, *map(len, drawn)])
    edges = np.concatenate([e[np.lexsort(e.T[::-1])] + by for e, by in zip(ends, sizes, strict=False)])
    np.testing.assert_allclose(values, speed("drawing").lambda2(Graphs(sizes, edges)), atol=1e-5)
