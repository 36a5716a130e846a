"""Load of `invgnn serve`: concurrent clients, latency, throughput against direct calls, and memory.

    OMP_NUM_THREADS=1 python -m benchmarks.speed.serving --clients 64 --seconds 60

Prints one JSON object. The server is a process of its own; the clients share this one, so on a small
machine they take time from the server.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

GRAPHS = 8  # per request


def resident(process: int) -> float:
    """Return the resident memory of a process in megabytes."""
    text = Path(f"/proc/{process}/status").read_text()
    found = re.search(r"VmRSS:\s+(\d+)", text)
    return int(found.group(1)) / 1024 if found else float("nan")


def processor(process: int) -> float:
    """Return the processor time of a process in seconds."""
    fields = Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()
    return sum(int(ticks) for ticks in fields[11:13]) / os.sysconf("SC_CLK_TCK")


def direct(model: Any, batch: Any, seconds: float) -> tuple[float, float]:
    """Return the calls per second of the model itself, one after the other, and their processor time."""
    import torch

    done, start, used = 0, time.perf_counter(), time.process_time()
    with torch.no_grad():
        while time.perf_counter() - start < seconds:
            model(batch.x, batch.edge_index, batch.batch)
            done += 1
    return done / (time.perf_counter() - start), (time.process_time() - used) / done


async def load(url: str, body: bytes, clients: int, seconds: float) -> tuple[list[float], int]:
    """Return the latency of every request, and the number of failures."""
    import httpx

    latencies: list[float] = []
    failures = 0
    end = time.perf_counter() + seconds

    async def client(held: httpx.AsyncClient) -> None:
        nonlocal failures
        while time.perf_counter() < end:
            start = time.perf_counter()
            try:
                reply = await held.post(url, content=body, headers={"content-type": "application/json"})
                failures += reply.status_code != 200
            except httpx.HTTPError:
                failures += 1
            latencies.append(time.perf_counter() - start)

    limits = httpx.Limits(max_connections=clients)
    async with httpx.AsyncClient(timeout=60, limits=limits, trust_env=False) as held:
        await asyncio.gather(*(client(held) for _ in range(clients)))
    return latencies, failures


def measure(clients: int, seconds: float) -> dict[str, Any]:
    """Serve a model, load it, and return the figures."""
    import numpy as np
    from torch_geometric.data import Batch

    import invgnn
    from invgnn.audit.remote.reply import graphs_of
    from invgnn.audit.remote.wire import OpenInference

    task = invgnn.load_task("BA-2motif")
    model = invgnn.new_model(task, "GIN", seed=0).eval()
    batch = Batch.from_data_list(task.data[:GRAPHS])
    body = json.dumps(OpenInference().encode(graphs_of(batch), "load")).encode()
    alone, each = direct(model, batch, 2.0)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.model"
        invgnn.save_model(path, model)
        command = [Path(sys.executable).with_name("invgnn"), "serve", "--model", path, "--port", "0"]
        server = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)  # noqa: S603 - our own command
        try:
            assert server.stderr is not None
            url = re.search(r"http://\S+", server.stderr.readline()).group()  # type: ignore[union-attr]
            asyncio.run(load(url, body, clients, 2.0))  # warm
            before, used = resident(server.pid), processor(server.pid)
            found, failures = asyncio.run(load(url, body, clients, seconds))
            after, used = resident(server.pid), processor(server.pid) - used
        finally:
            server.terminate()
            server.communicate()
    rate = len(found) / seconds
    return {
        "clients": clients,
        "seconds": seconds,
        "graphs per request": GRAPHS,
        "requests": len(found),
        "failures": failures,
        "median ms": round(1000 * float(np.median(found)), 1),
        "p99 ms": round(1000 * float(np.quantile(found, 0.99)), 1),
        "requests per second": round(rate, 1),
        "direct calls per second": round(alone, 1),
        "ratio": round(rate / alone, 3),
        "server processor ms per request": round(1000 * used / len(found), 2),
        "direct processor ms per call": round(1000 * each, 2),
        "memory before MB": round(before),
        "memory after MB": round(after),
    }


if __name__ == "__main__":
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--clients", type=int, default=64)
    options.add_argument("--seconds", type=float, default=60.0)
    given = options.parse_args()
    print(json.dumps(measure(given.clients, given.seconds)))
