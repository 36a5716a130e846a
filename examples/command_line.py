"""A checkpoint of your own on the command line: `command_line:Net` names a class of this file.

invgnn keygen -o acme.secret
invgnn carriers --secret acme.secret --data command_line:graphs -o acme.mark
invgnn embed --mark acme.mark --architecture command_line:Net --data command_line:graphs \
  --start trained.ckpt --steps 300 -o acme.safetensors
invgnn stress --mark acme.mark --architecture command_line:Net --data command_line:graphs \
  --model acme.safetensors --only prune,4-bit
invgnn verify --mark acme.mark --architecture command_line:Net --model acme.safetensors
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
from torch.nn.functional import cross_entropy
from torch_geometric.loader import DataLoader
from torch_geometric.nn import GIN, global_add_pool

import invgnn


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.body = GIN(4, 64, 3, norm="batch_norm")
        self.out = torch.nn.Linear(64, 2)

    def forward(self, x, edge_index, batch):
        return self.out(global_add_pool(self.body(x, edge_index), batch))


def graphs():
    return invgnn.load_task("BA-2motif").data


def main(epochs=10):
    model = Net()
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for batch in (batch for _ in range(epochs) for batch in DataLoader(graphs(), 64, shuffle=True)):
        optimiser.zero_grad()
        cross_entropy(model(batch.x, batch.edge_index, batch.batch), batch.y).backward()
        optimiser.step()
    with tempfile.TemporaryDirectory() as name:
        folder, code = Path(name), Path(__file__).read_bytes()
        torch.save({"state_dict": model.state_dict()}, folder / "trained.ckpt")
        (folder / "command_line.py").write_bytes(code)  # commands import from the current folder
        commands = __doc__.partition("\n\n")[2]
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])  # finds `invgnn`
        env = os.environ | {"INVGNN_PASSPHRASE": "acme", "PATH": path}
        subprocess.run(commands, shell=True, cwd=folder, env=env)  # noqa: S602
        mark = invgnn.Watermark.load(folder / "acme.mark", "acme")
        return invgnn.verify(folder / "acme.safetensors", mark, architecture=Net)


if __name__ == "__main__":
    main()
