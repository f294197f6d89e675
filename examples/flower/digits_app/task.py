"""The network, the rows, and one pass of training and of evaluation."""

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Net(nn.Sequential):
    """Two convolutions with pooling, then three dense layers, for colour images of 32 x 32."""

    def __init__(self):
        super().__init__(
            *(nn.Conv2d(3, 6, 5), nn.ReLU(), nn.MaxPool2d(2)),
            *(nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()),
            *(nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, 10)),
        )


class Digits(Dataset):
    """Some of scikit-learn's digits, enlarged to colour images of 32 x 32."""

    def __init__(self, rows):
        digits = load_digits()
        images = torch.tensor(digits.images[rows], dtype=torch.float32)[:, None] / 8 - 1
        self.images = nn.functional.interpolate(images, (32, 32)).expand(-1, 3, -1, -1)
        self.labels = torch.tensor(digits.target[rows])

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, row):
        return self.images[row], self.labels[row]


def rows_of(part):
    """Row numbers of the clients or of the server, which has a fifth of all rows."""
    shuffled = torch.randperm(1797, generator=torch.Generator().manual_seed(42))
    return {"clients": shuffled[:1437], "server": shuffled[1437:]}[part]


def load_data(client, clients, batch_size):
    """The training rows of one client, and a fifth of its rows for evaluation."""
    own = rows_of("clients")[client::clients]
    cut = len(own) * 4 // 5
    trained = DataLoader(Digits(own[:cut]), batch_size, shuffle=True)
    return trained, DataLoader(Digits(own[cut:]), batch_size)


def load_server_data():
    """The rows of the server, which no client has."""
    return DataLoader(Digits(rows_of("server")), 128)


def train(net, loader, epochs, lr, criterion):
    """Train for some epochs; returns the mean loss of the batches."""
    optimizer = torch.optim.SGD(net.parameters(), lr=lr, momentum=0.9)
    net.train()
    losses = []
    for _ in range(epochs):
        for images, labels in loader:
            loss = criterion(net(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    return sum(losses) / len(losses)


def test(net, loader):
    """The mean loss and the accuracy over all rows of a loader."""
    net.eval()
    with torch.no_grad():
        scores = torch.cat([net(images) for images, _ in loader])
    labels = torch.cat([labels for _, labels in loader])
    loss = nn.functional.cross_entropy(scores, labels)
    return loss.item(), (scores.argmax(1) == labels).float().mean().item()
