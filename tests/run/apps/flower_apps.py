"""Flower's apps in this process: a grid that gives every message to a ClientApp.

`python -m tests.run.apps.flower_apps 10 11 12 13 14` prints the table of docs/flower.md (seeds).
"""

from __future__ import annotations

import importlib
import logging
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from flwr.app import Context, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid
from flwr.supercore.task_identity import TaskIdentity

from fedssca import flower

ROOT = Path(__file__).parents[3]

SETTINGS = {
    "num-server-rounds": 10,
    "fraction-evaluate": 1.0,
    "local-epochs": 1,
    "learning-rate": 0.05,
    "batch-size": 32,
    "seed": 0,
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
    """Run the apps of a folder to their end, in a folder of their own.

    Returns the accuracy of the saved model on the server's test rows, and its mean confidence on
    the clients' training rows and on the server's test rows.
    """
    sys.path.insert(0, str(folder))
    threads, before = torch.get_num_threads(), Path.cwd()
    torch.set_num_threads(1)  # the same numbers on any machine, and no threads that wait
    try:
        client = importlib.import_module("digits_app.client_app").app
        server = importlib.import_module("digits_app.server_app").app
        task = importlib.import_module("digits_app.task")
        settings = {"seed": seed} | settings
        random.seed(seed)  # Flower draws the order of the clients
        with tempfile.TemporaryDirectory() as place:
            os.chdir(place)
            server(
                AppGrid(client, nodes, **settings),
                Context(1, 1, {}, RecordDict(), SETTINGS | settings),
            )
            model = task.Net()
            model.load_state_dict(torch.load("final_model.pt"))
        trained = [task.load_data(i, nodes, 32)[0].dataset for i in range(nodes)]
        test = task.load_server_data().dataset
    finally:
        os.chdir(before)
        torch.set_num_threads(threads)
        sys.path.remove(str(folder))
        for name in [name for name in sys.modules if name.startswith("digits_app")]:
            del sys.modules[name]

    def about(images: torch.Tensor, labels: torch.Tensor) -> tuple[float, float]:
        with torch.no_grad():
            sure, found = model(images).softmax(1).max(1)
        return float((found == labels).double().mean()), float(sure.mean())

    joined = [torch.cat([getattr(d, part) for d in trained]) for part in ("images", "labels")]
    accuracy, unseen = about(test.images, test.labels)
    return accuracy, about(*joined)[1], unseen


def page_diff() -> str:
    """The changes of the how-to page."""
    (found,) = re.findall(r"```diff\n(.*?)```", (ROOT / "docs/flower.md").read_text(), re.S)
    return str(found)


def limited_example(folder: Path) -> Path:
    """The example with the changes of the page, in a new folder."""
    shutil.copytree(ROOT / "examples/flower", folder, ignore=shutil.ignore_patterns("__pycache__"))
    subprocess.run(["git", "apply", "-"], cwd=folder, input=page_diff().encode(), check=True)
    return folder


@contextmanager
def trainings() -> Iterator[list[tuple[flower.LimitedFedAvg, Any]]]:
    """The strategies that are started inside, and what they return."""
    made: list[tuple[flower.LimitedFedAvg, Any]] = []
    original = flower.LimitedFedAvg.start

    def start(self: flower.LimitedFedAvg, *given: Any, **more: Any) -> Any:
        made.append((self, original(self, *given, **more)))
        return made[-1][1]

    with mock.patch.object(flower.LimitedFedAvg, "start", start):
        yield made


def main(seeds: Iterable[int]) -> None:
    """The example before and after the changes, for some seeds."""
    logging.getLogger("flwr").setLevel(logging.ERROR)
    with tempfile.TemporaryDirectory() as scratch, trainings() as made:
        limited = limited_example(Path(scratch) / "limited")
        for seed in seeds:
            for name, folder in (("before", ROOT / "examples/flower"), ("after", limited)):
                accuracy, trained, unseen = run_example(folder, seed=seed)
                print(
                    f"seed {seed} {name:6} accuracy {accuracy:.3f}, confidence: "
                    f"training rows {trained:.3f}, test rows {unseen:.3f}",
                    flush=True,
                )
            strategy, result = made[-1]
            last = max(result.train_metrics_clientapp)
            print(
                f"seed {seed} returned the model of round {strategy.certificate['round']}; after "
                f"the last round: {result.train_metrics_clientapp[last]['confidence']:.3f}"
            )


if __name__ == "__main__":
    main(map(int, sys.argv[1:] or "0"))
