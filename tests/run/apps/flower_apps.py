"""Flower's apps in this process: a grid that gives every message to a ClientApp.

`python -m tests.run.apps.flower_apps 20 21 22 23 24 25 26 27` prints the table of docs/flower.md.
`--limit 0.7` sets another limit, `--weight 1.5` a constant multiplier instead of the strategy's
rule, `--mnist FOLDER` trains on 2400 rows of MNIST, `--after` leaves out the app without limits.
"""

from __future__ import annotations

import argparse
import gzip
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
from contextlib import ExitStack, contextmanager
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np
import torch
from flwr.app import Context, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid
from flwr.supercore.task_identity import TaskIdentity
from sklearn import datasets

from fedssca import flower
from fedssca.run.apps.flower.weights import Weights

ROOT = Path(__file__).parents[3]

_digits = cache(datasets.load_digits)
"""The app reads the file for every message; here it is read once."""

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
        with mock.patch.object(datasets, "load_digits", _digits):
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


def example(folder: Path, mnist: str | None = None) -> Path:
    """The example in a new folder, on request with rows of MNIST in place of its digits."""
    shutil.copytree(ROOT / "examples/flower", folder, ignore=shutil.ignore_patterns("__pycache__"))
    if mnist:
        task = folder / "digits_app/task.py"
        text = task.read_text().replace("1797", "4400").replace("1437", "2400")
        ours = "from tests.run.apps.flower_apps import mnist_rows"
        text = text.replace("from sklearn.datasets import load_digits", ours)
        task.write_text(text.replace("load_digits()", f"mnist_rows({mnist!r})"))
    return folder


def limited_example(folder: Path, limit: float = 0.9, mnist: str | None = None) -> Path:
    """The example with the changes of the page, in a new folder."""
    example(folder, mnist)
    changes = page_diff().replace('"confidence": 0.9', f'"confidence": {limit}')
    subprocess.run(["git", "apply", "-"], cwd=folder, input=changes.encode(), check=True)
    return folder


@cache
def mnist_rows(folder: str) -> SimpleNamespace:
    """The first rows of MNIST, with pixels from 0 to 16 like those of scikit-learn's digits."""
    images, labels = (
        np.frombuffer(gzip.decompress((Path(folder) / name).read_bytes()), np.uint8, offset=start)
        for name, start in (("train-images-idx3-ubyte.gz", 16), ("train-labels-idx1-ubyte.gz", 8))
    )
    pixels = images.reshape(-1, 28, 28)[:4400] / 255 * 16
    return SimpleNamespace(images=pixels, target=labels[:4400].astype(np.int64))


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


def main() -> None:
    """The example before and after the changes, for some seeds."""
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("seeds", type=int, nargs="*", default=[0])
    asked.add_argument("--limit", type=float, default=0.9)
    asked.add_argument("--weight", type=float)
    asked.add_argument("--mnist")
    asked.add_argument("--after", action="store_true")
    given = asked.parse_args()
    logging.getLogger("flwr").setLevel(logging.ERROR)
    with ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        made = stack.enter_context(trainings())
        if given.weight is not None:
            fixed = np.array([1.0, given.weight])
            stack.enter_context(mock.patch.object(Weights, "sent", return_value=fixed))
        folders = {} if given.after else {"before": example(scratch / "before", given.mnist)}
        folders["after"] = limited_example(scratch / "after", given.limit, given.mnist)
        print("| seed | app | accuracy | confidence, training rows | server's rows | limit kept |")
        print("|---|---|---|---|---|---|")
        accuracies: dict[str, list[float]] = {name: [] for name in folders}
        for seed in given.seeds:
            for name, folder in folders.items():
                accuracy, trained, unseen = run_example(folder, seed=seed)
                accuracies[name].append(accuracy)
                kept = "-" if name == "before" else "no"
                if name == "after" and made[-1][0].certificate["feasible"]:
                    kept = f"yes, {made[-1][0].certificate['model']}"
                cells = f"{100 * accuracy:.1f} % | {trained:.3f} | {unseen:.3f} | {kept}"
                print(f"| {seed} | {name} | {cells} |", flush=True)
        for name, found in accuracies.items():
            print(f"| mean | {name} | {100 * np.mean(found):.1f} % | | | |")


if __name__ == "__main__":
    main()
