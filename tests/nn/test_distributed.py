"""Two processes, one mark: parameters stay equal, and the evidence is that of one process."""

from __future__ import annotations

import copy
import subprocess
import sys
import warnings
from contextlib import nullcontext
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

from invgnn.audit.provenance import digest_model
from invgnn.audit.verify import verify
from invgnn.nn.gradient_projection import projected_sum
from invgnn.secret import Secret
from invgnn.training.batching import Collated, accuracy
from invgnn.training.tasks import motif_task, new_model
from invgnn.training.trainer import train
from invgnn.watermark.mark import Watermark
from invgnn.watermark.recipe import Recipe

ROOT = Path(__file__).resolve().parents[2]
STEPS, SIZE, M = 200, 32, 64
WAYS = ("own", "joint", "guarded")
ORDERS = ("sum", "guard", "joint", "joint guard", "after", "late", "alone")
WRAPPERS = {
    "plain": ({}, ORDERS),
    "static graph": ({"static_graph": True}, ("guard", "joint guard", "after")),
    "unused parameters": ({"find_unused_parameters": True}, ("sum", "guard", "joint guard")),
}
CASES = [(order, name) for name, (_, orders) in WRAPPERS.items() for order in orders]
pytestmark = pytest.mark.story


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
        for order, name in CASES:
            torch.save(drift(rank, order, WRAPPERS[name][0]), f"{folder}/{order}-{name}-{rank}.pt")
        torch.save(drift(rank, "guard", {}, pause=True), f"{folder}/accumulated-{rank}.pt")
        torch.save(step_of_both(rank), f"{folder}/step-{rank}.pt")
        torch.save(selected(rank), f"{folder}/selected-{rank}.pt")
        if rank == 0:
            torch.save(read_alone(), f"{folder}/alone.pt")
        dist.destroy_process_group()


@cache
def owned(m, **options):
    task = motif_task(41, 200)
    mark = Watermark.draw(Secret(bytes(32)), task.graphs, m=m, recipe=Recipe(**options))
    return task, mark, Collated(task.graphs)


def parts(rank, m=M, backbone="GraphSAGE", **options):
    """Task, mark, model and the rank's share of a batch, the same on every rank but for the share."""
    task, mark, held = owned(m, **options)
    generator = torch.Generator().manual_seed(7)

    def draw():
        return held.batch(torch.randperm(200, generator=generator)[rank * SIZE : (rank + 1) * SIZE])

    return task, mark, new_model(task, backbone, 0, hidden_channels=48), draw


def teach(rank, world, way):
    """A user's own loop, on this rank's share of every batch."""
    _, mark, model, draw = parts(rank, beta=2.0)  # GraphSAGE has no batch statistics
    net = DistributedDataParallel(model) if world > 1 else model
    optimiser = torch.optim.Adam(net.parameters(), lr=0.01)
    torch.manual_seed(rank)
    for step in range(STEPS):
        batch = draw()
        if way == "joint":
            mixed = mark.mix(batch, step=step)
            loss = cross_entropy(mixed(net), batch.y) + mixed.loss()
        else:
            scores = net(batch.x, batch.edge_index, batch.batch)
            loss = cross_entropy(scores, batch.y)
            loss = mark.joint_loss(net, loss) if way == "guarded" else loss + mark.loss(net, step=step)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    return mark.evidence(mark.read(net)).bits(), model.state_dict()


def drift(rank, order, wrapper, pause=False):
    """Some steps with dropout, different on every rank; in `pause` gradients of two batches add up."""
    _, mark, model, draw = parts(rank, m=16, backbone="GIN")
    model.spare = nn.Linear(3, 3) if "find_unused_parameters" in wrapper else None
    net = DistributedDataParallel(model, **wrapper)
    optimiser = torch.optim.Adam(net.parameters(), lr=0.01)
    torch.manual_seed(rank)
    for step in range(3):
        batch = draw()
        if not pause or step % 2 == 0:
            optimiser.zero_grad()
        with net.no_sync() if pause and step % 2 == 0 else nullcontext():
            _backward(order, mark, net, batch, step)
        optimiser.step()
    return model.state_dict(), None if model.spare is None else model.spare.weight.grad


def _backward(order, mark, net, batch, step):
    if order.startswith("joint"):
        mixed = mark.mix(batch)
        loss = cross_entropy(mixed(net), batch.y)
        (mixed.joint_loss(loss) if order == "joint guard" else loss + mixed.loss()).backward()
        return
    if order == "alone" and step:
        mark.loss(net).backward()
        return
    loss = cross_entropy(net(batch.x, batch.edge_index, batch.batch), batch.y)
    if order == "guard":
        mark.joint_loss(net, loss).backward()
    elif order == "late":
        taken = mark.loss(net)
        loss.backward()
        taken.backward()
    elif order == "after":
        loss.backward()
        mark.loss(net).backward()
    else:
        (loss + mark.loss(net)).backward()


def step_of_both(rank):
    """The guarded gradient that DDP leaves, and that of one process on both shares at once."""
    _, mark, model, draw = parts(rank, m=16, gradient_projection=True, cap=0.5)
    model.eval()  # no dropout: the shares of a mean are the mean's
    net = DistributedDataParallel(model)
    batch = draw()
    mark.joint_loss(net, cross_entropy(net(batch.x, batch.edge_index, batch.batch), batch.y)).backward()
    found = [p.grad.clone() for p in model.parameters()]

    twin = copy.deepcopy(model).eval()
    twin.zero_grad()
    order = torch.randperm(200, generator=torch.Generator().manual_seed(7))
    whole = owned(16, gradient_projection=True, cap=0.5)[2].batch(order[: 2 * SIZE])
    task_loss = cross_entropy(twin(whole.x, whole.edge_index, whole.batch), whole.y)
    projected_sum(task_loss, mark.loss(twin), twin.parameters(), 0.5).backward()
    return found, [p.grad for p in twin.parameters()]


def selected(rank):
    """The library's loop, the mark after the task: batches and dropout differ, and so do statistics."""
    task, mark, model, _ = parts(rank, m=16, backbone="GIN", after_task=6)
    net = DistributedDataParallel(model)
    mine = replace(task, train=task.train[rank::2])
    history = train(net, mine, mark, epochs=3, seed=rank, batch_size=len(mine.train))
    return model.state_dict(), len(history.loss)


def read_alone():
    """What the first process finds while the other does not take part; GIN has buffers to broadcast."""
    task, mark, model, _ = parts(0, m=16, backbone="GIN")
    net = nn.parallel.DistributedDataParallel.__new__(nn.parallel.DistributedDataParallel)
    nn.Module.__init__(net)
    net.module = model  # a wrapper whose own forward cannot run
    return verify(net, mark).evidence_bits, accuracy(net, task, task.test), digest_model(net)


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """What one process and two processes came to, by way, world and rank."""
    if not dist.is_available() or not dist.is_gloo_available():
        pytest.skip("torch was built without gloo")
    folder = tmp_path_factory.mktemp("ranks")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(ROOT)  # the processes import this module as tests.nn.test_distributed
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


@pytest.mark.parametrize(("order", "wrapper"), CASES)
def test_no_process_drifts_however_losses_are_sent_backward(results, order, wrapper):
    (first, spare), (second, _) = (results[f"{order}-{wrapper}-{rank}"] for rank in (0, 1))
    weights = [name for name in first if "running" not in name]  # statistics are the first process's
    assert [name for name in weights if not first[name].equal(second[name])] == []
    assert spare is None  # a layer that nobody uses gets no gradient


def test_no_process_drifts_while_gradients_add_up(results):
    first, second = (results[f"accumulated-{rank}"][0] for rank in (0, 1))
    assert [name for name in first if "running" not in name and not first[name].equal(second[name])] == []


def test_all_processes_keep_one_model(results):
    (first, epochs), (second, _) = (results[f"selected-{rank}"] for rank in (0, 1))
    assert epochs == 9  # the mark came after the task
    assert [name for name in first if not first[name].equal(second[name])] == []


def test_gradient_projection_compares_means_over_all_processes(results):
    for rank in (0, 1):
        found, whole = results[f"step-{rank}"]
        for one, other in zip(found, whole, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-6)


def test_one_process_reads_alone(results):
    evidence, right, digest = results["alone"]
    assert evidence < 20
    assert 0 <= right <= 1
    assert digest == digest_model(parts(0, m=16, backbone="GIN")[2])


def test_example_under_torchrun(tmp_path):
    path = ROOT / "examples" / "ddp.py"
    script = tmp_path / "run.py"
    script.write_text(
        "import os, pathlib, runpy, sys\n"
        f"verdict = runpy.run_path({str(path)!r})['main'](epochs=4)\n"
        f"out = pathlib.Path({str(tmp_path)!r}, os.environ['RANK'])\n"
        "out.write_text(f'{verdict.evidence_bits} {verdict.digests[\"mark\"]}')\n"
    )
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc_per_node", "2", str(script)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    first, second = ((tmp_path / rank).read_text().split() for rank in "01")
    assert first[1] == second[1]  # one mark
    assert min(float(first[0]), float(second[0])) > 20
