"""Link prediction with PyG's graph autoencoder on Cora: marked in the encoder and in the link scores."""

import torch
from torch_geometric.nn import GAE, GCNConv
from torch_geometric.transforms import RandomLinkSplit

import invgnn


class Encoder(torch.nn.Module):
    def __init__(self, features, width=128, out=64):
        super().__init__()
        self.first, self.second = GCNConv(features, width), GCNConv(width, out)

    def forward(self, x, edge_index):
        return self.second(self.first(x, edge_index).relu(), edge_index)


def link_scores(model, batch):
    """The mean score of the links of every graph: one real number per question."""
    z = model.encode(batch.x, batch.edge_index)
    scores = model.decode(z, batch.edge_index, sigmoid=False)
    owner = batch.batch[batch.edge_index[0]]
    total = z.new_zeros(batch.num_graphs).index_add(0, owner, scores)
    return total / owner.bincount(minlength=batch.num_graphs).clamp(min=1)


def main(epochs=200):
    data = invgnn.load_task("Cora").data
    split = RandomLinkSplit(is_undirected=True, split_labels=True, add_negative_train_samples=False)
    train, _, test = split(data)
    mark = invgnn.Watermark.draw(
        invgnn.Secret.generate(), train, access=("embedding", "values"), forward=link_scores
    )
    model = GAE(Encoder(data.num_features))
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(epochs):
        optimiser.zero_grad()
        task_loss = model.recon_loss(model.encode(train.x, train.edge_index), train.pos_edge_label_index)
        loss = mark.joint_loss(model, task_loss)
        loss.backward()
        optimiser.step()

    model.eval()
    with torch.no_grad():
        z = model.encode(train.x, train.edge_index)
        yes, no = (
            model.decode(z, links) for links in (test.pos_edge_label_index, test.neg_edge_label_index)
        )
    print("area under the curve", float((yes[:, None] > no).float().mean()))
    verdict = invgnn.verify(model, mark)
    print(verdict)
    return verdict


if __name__ == "__main__":
    main()
