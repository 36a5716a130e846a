"""A LightningModule: the mark is one callback of the Trainer."""

import lightning.pytorch as lightning
import torch
from torch.nn.functional import cross_entropy
from torch_geometric.loader import DataLoader
from torch_geometric.nn import GIN, global_add_pool

import invgnn
from invgnn.integrations.lightning import MarkCallback


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.body = GIN(4, 64, 3, norm="batch_norm")
        self.out = torch.nn.Linear(64, 2)

    def forward(self, x, edge_index, batch):
        return self.out(global_add_pool(self.body(x, edge_index), batch))


class Classifier(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = Net()

    def training_step(self, batch, index):
        return cross_entropy(self.net(batch.x, batch.edge_index, batch.batch), batch.y)

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=1e-2)


def main(epochs=40):
    graphs = invgnn.load_task("BA-2motif").data
    mark = invgnn.Watermark.draw(invgnn.Secret.generate(), graphs)
    trainer = lightning.Trainer(
        max_epochs=epochs,
        callbacks=[MarkCallback(mark, lambda module: module.net)],  # the new line
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    model = Classifier()
    trainer.fit(model, DataLoader(graphs, 64, shuffle=True))
    return invgnn.verify(model.net, mark)


if __name__ == "__main__":
    main()
