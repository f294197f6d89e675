"""A Flower grid in this process: messages reach sites without a SuperLink and a network."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from unittest import mock

from flwr.app import Message
from flwr.serverapp import Grid
from flwr.supercore.task_identity import TaskIdentity

from fedssca.deploy.engines.calls import CallLink
from fedssca.deploy.engines.flower.link import GridCalls, grid_link
from fedssca.deploy.engines.flower.parties import SiteRuns
from fedssca.deploy.engines.flower.records import content, read
from fedssca.deploy.local import write_site_files
from fedssca.deploy.project import site_names
from fedssca.deploy.server.run import RunOrder, RunServer
from fedssca.deploy.site import preparation
from fedssca.run.config import Config
from tests.deploy.loopback import RUN, _one_job, parties


class SiteGrid(Grid):
    """Gives every message to the site of its node, in a thread, as a SuperNode does."""

    def __init__(self, sites: dict[int, SiteRuns]) -> None:
        self._sites, self._replies = sites, dict[str, Message]()
        self.count = 0
        self.lock = threading.Lock()
        TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 1, 1, 1

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        names = []
        for message in messages:
            with self.lock:
                self.count += 1
                names.append(f"message {self.count}")
            message.metadata.__dict__["_message_id"] = names[-1]
            threading.Thread(target=self._answer, args=(message,), daemon=True).start()
        return names

    def _answer(self, message: Message) -> None:
        site = self._sites[message.metadata.dst_node_id]
        record = site.reply(1, read(message))
        self._replies[message.metadata.message_id] = Message(content(record), reply_to=message)

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        return [self._replies.pop(name) for name in message_ids if name in self._replies]

    def set_run(self, run: Any) -> None: ...
    def run(self) -> Any: ...  # type: ignore[override]
    def create_message(self, *a: Any, **b: Any) -> Any: ...
    def get_node_ids(self) -> Any: ...
    def get_nodes(self) -> Any: ...
    def send_and_receive(self, messages: Any, *, timeout: Any = None) -> Any: ...


def grid_of(sites: dict[str, SiteRuns]) -> tuple[SiteGrid, CallLink]:
    nodes = {name: number + 1 for number, name in enumerate(sites)}
    grid = SiteGrid({nodes[name]: runs for name, runs in sites.items()})
    return grid, grid_link(GridCalls(grid, nodes))


def deployed_over_flower(config: Config, sites: int, folder: Path) -> None:
    """The run of `loopback.deployed`, with Flower's messages between server and sites."""
    files = write_site_files(config, sites, folder / "data")
    made = parties(files)
    _, link = grid_of({name: SiteRuns(name, lambda party=p: party) for name, p in made.items()})
    order = RunOrder(config, site_names(sites), RUN, False)
    with mock.patch.object(preparation, "job_of", _one_job):
        RunServer(order, link, folder / "run").run()
