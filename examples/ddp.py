"""Your own loop on several processes or GPUs: each sees its share of the data, all teach one mark.

torchrun --nproc_per_node 2 examples/ddp.py
"""

import torch
import torch.distributed as dist
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DistributedSampler
from torch_geometric.loader import DataLoader

import invgnn


def meet():
    """Join the other processes; without torchrun there are none. Returns where this one computes."""
    alone = {"store": dist.HashStore(), "rank": 0, "world_size": 1}
    gpus = torch.cuda.device_count()
    launched = dist.is_torchelastic_launched()
    dist.init_process_group("nccl" if gpus else "gloo", **({} if launched else alone))
    return torch.device("cuda", dist.get_rank() % gpus) if gpus else torch.device("cpu")


def one_secret(device):
    """The same secret on every process; with a file it is Watermark.load on every process."""
    drawn = torch.frombuffer(bytearray(bytes(invgnn.Secret.generate())), dtype=torch.uint8).to(device)
    dist.broadcast(drawn, 0)
    return invgnn.Secret(drawn.cpu().numpy().tobytes())


def main(epochs=20):
    device = meet()
    task = invgnn.load_task("BA-2motif")
    mark = invgnn.Watermark.draw(one_secret(device), task.data)
    net = DistributedDataParallel(invgnn.new_model(task, "GIN", seed=0).to(device))
    optimiser = torch.optim.Adam(net.parameters(), lr=0.01)
    sampler = DistributedSampler(task.data, seed=0)
    for epoch in range(epochs):
        sampler.set_epoch(epoch)
        for batch in DataLoader(task.data, batch_size=32, sampler=sampler):
            batch = batch.to(device)
            joint = mark.mix(batch)  # the carriers ride along on every process
            loss = joint.joint_loss(cross_entropy(joint(net), batch.y))  # of all processes' gradients
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()

    verdict = invgnn.verify(net, mark)  # any process may read by itself
    if dist.get_rank() == 0:
        print(verdict)
    dist.destroy_process_group()
    return verdict


if __name__ == "__main__":
    main()
