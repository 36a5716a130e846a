"""The library's training loop against a plain hand-written PyG loop, side by side in one process.

make loop
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
from torch.nn.functional import cross_entropy
from torch_geometric.loader import DataLoader

from invgnn.randomness import seeded
from invgnn.tasks import load_task, new_model
from invgnn.training import train

EPOCHS, REPEATS = 2, 7


def plain_loop(model: Any, task: Any) -> None:
    """What a PyG tutorial would write, with the same selection by validation accuracy."""
    loader = DataLoader([task.graphs[i] for i in task.train], batch_size=64, shuffle=True)
    held = DataLoader([task.graphs[i] for i in task.val], batch_size=len(task.val))
    optimiser = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=5e-4)
    best = -1.0
    for _ in range(EPOCHS):
        model.train()
        for batch in loader:
            optimiser.zero_grad()
            cross_entropy(model(batch.x, batch.edge_index, batch.batch), batch.y).backward()
            optimiser.step()
        model.eval()
        with torch.no_grad():
            right = sum(int((model(b.x, b.edge_index, b.batch).argmax(-1) == b.y).sum()) for b in held)
        if right > best:
            best, _kept = right, {k: v.clone() for k, v in model.state_dict().items()}


def seconds(run: Callable[[Any, Any], Any], task: Any) -> float:
    """How long one run takes on a fresh model."""
    model = new_model(task, "GIN", 41)
    with seeded(41):
        start = time.perf_counter()
        run(model, task)
        return time.perf_counter() - start


def main() -> None:
    """Alternate the two loops and print the ratio of their times."""
    torch.set_num_threads(1)
    for name in ("PROTEINS", "NCI1"):
        task = load_task(name, 41)
        ours, plain = [], []
        for _ in range(REPEATS):
            ours.append(seconds(lambda m, t: train(m, t, epochs=EPOCHS), task))
            plain.append(seconds(plain_loop, task))
        ratios = sorted(a / b for a, b in zip(ours, plain, strict=True))
        middle = statistics.median(ratios)
        print(
            f"{name}/GIN: ours/plain = {middle:.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f}, {REPEATS} pairs)"
        )


if __name__ == "__main__":
    main()
