"""A Flower app that `flwr run` starts, in Flower's simulation or on its SuperLink and SuperNodes.

template   the files of the app, which `fedssca deploy init --engine flower` writes
server     its ServerApp
client     its ClientApp, which passes messages on to `host`
host       the process that keeps a site's party in memory between two messages
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from fedssca.deploy.engines.flower.app.template import app_files
from fedssca.deploy.engines.flower.fits import require

if TYPE_CHECKING:
    from flwr.clientapp import ClientApp
    from flwr.serverapp import ServerApp

__all__ = ["app_files", "client_app", "server_app"]


def server_app(folder: Path) -> ServerApp:
    """The ServerApp of the app in `folder`; a UserError if this version of Flower does not fit."""
    require()
    from fedssca.deploy.engines.flower.app.server import new_server_app

    return new_server_app(folder)


def client_app() -> ClientApp:
    """The ClientApp of every app; a UserError if this version of Flower does not fit."""
    require()
    from fedssca.deploy.engines.flower.app.client import new_client_app

    return new_client_app()
