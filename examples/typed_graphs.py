"""HGT on typed graphs: authors, papers and venues. The mark is drawn from `HeteroData` and read on them."""

import torch
from torch.nn.functional import cross_entropy
from torch_geometric.data import HeteroData
from torch_geometric.loader import DataLoader
from torch_geometric.nn import HGTConv, Linear, global_add_pool

import invgnn


class Library(torch.nn.Module):
    def __init__(self, metadata, width=32):
        super().__init__()
        self.first = torch.nn.ModuleDict({name: Linear(-1, width) for name in metadata[0]})
        self.convs = torch.nn.ModuleList(HGTConv(width, width, metadata, heads=2) for _ in range(2))
        self.hidden, self.out = torch.nn.Linear(width, width), torch.nn.Linear(width, 2)

    def forward(self, x_dict, edge_index_dict, batch_dict):  # called by the names of its arguments
        x = {name: self.first[name](value).relu() for name, value in x_dict.items()}
        for conv in self.convs:
            x = conv(x, edge_index_dict)
        return self.out(self.hidden(global_add_pool(x["paper"], batch_dict["paper"])).relu())


def library(kind):
    """Some authors and their papers; one kind of library has more authors per paper."""
    authors, papers = (int(torch.randint(*bounds, ())) for bounds in ((5, 9), (8, 14)))
    data = HeteroData(y=torch.tensor([kind]))
    for name, count, width in (("author", authors, 4), ("paper", papers, 6), ("venue", 3, 3)):
        data[name].x = torch.randn(count, width) + 0.3 * kind
    written = torch.rand(authors, papers) < 0.25 + 0.1 * kind
    data["author", "writes", "paper"].edge_index = written.nonzero().t()
    places = torch.randint(3, (papers,))
    data["paper", "in", "venue"].edge_index = torch.stack([torch.arange(papers), places])
    for one in list(data.edge_types):
        data[one[2], f"rev_{one[1]}", one[0]].edge_index = data[one].edge_index.flip(0)
    return data


def main(epochs=15):
    graphs = [library(number % 2) for number in range(300)]
    train, test = graphs[:200], next(iter(DataLoader(graphs[200:], batch_size=100)))
    model = Library(graphs[0].metadata())
    model(test.x_dict, test.edge_index_dict, test.batch_dict)  # sets the width of lazy layers
    optimiser = torch.optim.Adam(model.parameters(), lr=5e-3)
    for _ in range(epochs):
        for batch in DataLoader(train, batch_size=32, shuffle=True):
            optimiser.zero_grad()
            scores = model(batch.x_dict, batch.edge_index_dict, batch.batch_dict)
            cross_entropy(scores, batch.y).backward()
            optimiser.step()

    mark = invgnn.Watermark.draw(invgnn.Secret.generate(), train)
    print(mark.embed(model, train, steps=20 * epochs))
    return invgnn.verify(model, mark)


if __name__ == "__main__":
    print(main())
