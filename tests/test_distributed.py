"""Two processes, one mark: parameters stay equal, and the evidence is that of one process."""

from __future__ import annotations

import warnings

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

from invgnn.recipe import Recipe
from invgnn.secret import Secret
from invgnn.tasks import motif_task, new_model
from invgnn.training import Collated
from invgnn.watermark import Watermark

STEPS, SIZE, M = 200, 32, 64
WAYS = ("own", "joint", "guarded")


def work(rank, world, folder):
    """One rank of a user's run: the mark taught in every way; what came of it in files."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    meeting = {"init_method": f"file://{folder}/meeting", "rank": rank, "world_size": world}
    if world > 1:
        dist.init_process_group("gloo", **meeting)
    for way in WAYS:
        torch.save(teach(rank, world, way), f"{folder}/{way}-{world}-{rank}.pt")
    if world > 1:
        dist.destroy_process_group()


def teach(rank, world, way):
    """A user's own loop, on this rank's share of every batch."""
    task = motif_task(41, 200)
    mark = Watermark.draw(Secret(bytes(32)), task.graphs, m=M, recipe=Recipe(beta=2.0))
    model = new_model(task, "GraphSAGE", 0, hidden_channels=48)  # no batch statistics
    net = DistributedDataParallel(model) if world > 1 else model
    optimiser = torch.optim.Adam(net.parameters(), lr=0.01)
    held, generator = Collated(task.graphs), torch.Generator().manual_seed(7)
    torch.manual_seed(rank)
    for step in range(STEPS):
        batch = held.batch(torch.randperm(200, generator=generator)[rank * SIZE : (rank + 1) * SIZE])
        if way == "joint":
            mixed = mark.mix(batch, step=step)
            loss = cross_entropy(mixed(net), batch.y) + mixed.loss()
        else:
            scores = net(batch.x, batch.edge_index, batch.batch)
            loss = cross_entropy(scores, batch.y)
            loss = mark.guard(net, loss) if way == "guarded" else loss + mark.loss(net, step=step)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    return mark.weigh(mark.read(net)).bits(), model.state_dict()


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """What one process and two processes came to, by way, world and rank."""
    if not dist.is_available() or not dist.is_gloo_available():
        pytest.skip("torch was built without gloo")
    folder = tmp_path_factory.mktemp("ranks")
    workers = mp.start_processes(work, (2, folder), nprocs=2, join=False, start_method="spawn")
    with torch.random.fork_rng(), warnings.catch_warnings():
        work(0, 1, folder)
    while not workers.join():
        pass
    return {path.stem: torch.load(path) for path in folder.glob("*.pt")}


@pytest.mark.parametrize("way", WAYS)
def test_two_processes_teach_one_mark(results, way):
    alone, first, second = (results[f"{way}-{which}"] for which in ("1-0", "2-0", "2-1"))
    assert list(first[1]) == list(second[1]) == list(alone[1])
    for name, value in first[1].items():
        assert value.equal(second[1][name]), name
    assert first[0] == second[0]
    assert min(alone[0], first[0]) > 50  # of at most 59.7 bits with 64 carriers
