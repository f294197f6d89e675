"""Flower's apps in this process: a grid that gives every message to a ClientApp."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from flwr.app import Context, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid
from flwr.supercore.task_identity import TaskIdentity

SETTINGS = {
    "num-server-rounds": 10,
    "fraction-evaluate": 1.0,
    "local-epochs": 1,
    "learning-rate": 0.05,
    "batch-size": 32,
}
"""The section [tool.flwr.app.config] of the example."""


class AppGrid(Grid):
    """Nodes 1..n, each with its partition of the data, which answer at once."""

    def __init__(self, client: ClientApp, nodes: int, **settings: Any) -> None:
        self._client, self._nodes, self._settings = client, nodes, SETTINGS | settings
        self._replies: dict[str, Message] = {}
        TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 1, 1, 1

    def get_node_ids(self) -> Iterable[int]:
        return range(1, self._nodes + 1)

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        names = []
        for message in messages:
            node = message.metadata.dst_node_id
            names.append(f"message {len(self._replies) + 1}")
            message.metadata.__dict__["_message_id"] = names[-1]
            own = {"partition-id": node - 1, "num-partitions": self._nodes}
            context = Context(1, node, own, RecordDict(), self._settings)
            self._replies[names[-1]] = self._client(message, context)
        return names

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        return [self._replies[name] for name in message_ids]

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> Iterable[Message]:
        return self.pull_messages(self.push_messages(messages))

    def set_run(self, run: Any) -> None: ...
    def run(self) -> Any: ...  # type: ignore[override]
    def create_message(self, *a: Any, **b: Any) -> Any: ...
    def get_nodes(self) -> Any: ...


def run_example(folder: Path, nodes: int = 4, seed: int = 0, **settings: Any) -> Any:
    """Run the apps of a folder to their end; returns the model that the ServerApp hands on."""
    sys.path.insert(0, str(folder))
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # the same numbers on any machine, and no threads that wait
    try:
        client = importlib.import_module("pytorchexample.client_app").app
        server = importlib.import_module("pytorchexample.server_app").app
        net = importlib.import_module("pytorchexample.task")
        torch.manual_seed(seed)
        context = Context(1, 1, {}, RecordDict(), SETTINGS | settings)
        server(AppGrid(client, nodes, **settings), context)
        model = net.Net()
        model.load_state_dict(context.state["arrays"].to_torch_state_dict())
        tests = [net.load_data(i, nodes, 32)[1].dataset.tensors for i in range(nodes)]
    finally:
        torch.set_num_threads(threads)
        sys.path.remove(str(folder))
        for name in [name for name in sys.modules if name.startswith("pytorchexample")]:
            del sys.modules[name]
    x, y = (torch.cat(parts) for parts in zip(*tests, strict=True))
    with torch.no_grad():
        scores = model(x)
    losses = torch.nn.functional.cross_entropy(scores, y, reduction="none")
    accuracy = float((scores.argmax(dim=1) == y).double().mean())
    return accuracy, float(losses[y == 8].mean())
