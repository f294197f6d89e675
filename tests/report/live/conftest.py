"""The page's server in a process of its own, as people start it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.report.live.ui_helpers import Server


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("runs")


@pytest.fixture(scope="module")
def start(folder: Path) -> Iterator[Callable[..., Server]]:
    """Starts servers of the folder; ends those that are left, and their runs."""
    servers: list[Server] = []

    def new(**options: Any) -> Server:
        servers.append(Server(folder, **options))
        return servers[-1]

    yield new
    for server in servers:
        server.end()
    for lock in (folder / ".page").glob("*.lock"):
        Server.kill(json.loads(lock.read_text())["pid"], lock)


@pytest.fixture(scope="module")
def server(start: Callable[..., Server]) -> Server:
    return start()
