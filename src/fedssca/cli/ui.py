"""`fedssca ui`: the page about runs on this machine."""

from __future__ import annotations

import json
import secrets
import socket
import threading
import webbrowser
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer

from fedssca.cli.options import Json, new_app
from fedssca.errors import UserError
from fedssca.system import free_port, starting_up

__all__ = ["app"]

app = new_app()


@app.command(epilog="Example: fedssca ui --dir runs --port 8765")
def ui(
    folder: Annotated[Path, typer.Option("--dir", help="The folder of runs.")] = Path("runs"),
    port: Annotated[
        int, typer.Option(help="The port on this machine; 0 takes any that is free.", max=65535)
    ] = 8765,
    browser: Annotated[bool, typer.Option(help="Open the page in the browser.")] = True,
    as_json: Json = False,
) -> None:
    """Watch, compare, start, stop and resume runs in a page on this machine."""
    try:
        with starting_up():
            from fedssca.report.live.server import serve
    except ModuleNotFoundError as error:
        raise UserError(f"the page needs {error.name}: pip install 'fedssca[ui]'") from error

    folder = _folder(folder)
    token = secrets.token_urlsafe(24)
    with _bound(port) as listening:
        address = f"http://127.0.0.1:{listening.getsockname()[1]}/?token={token}"
        print(json.dumps({"url": address}) if as_json else address, flush=True)
        if browser:
            threading.Thread(target=webbrowser.open, args=[address], daemon=True).start()
        with suppress(KeyboardInterrupt):  # Ctrl-C ends the page; the runs that it started go on
            serve(folder, token, listening)


def _folder(folder: Path) -> Path:
    if (folder / "config.toml").is_file():
        raise UserError(
            f"{folder} is a run itself: give the folder above it, --dir {folder.parent}"
        )
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        reason = error.strerror or error
        raise UserError(f"cannot use {folder}: {reason}; choose another with --dir") from error
    return folder.resolve()


def _bound(port: int) -> socket.socket:
    """Listen on a port of this machine only; if it is taken, name one that is free."""
    listening = socket.socket()
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind(("127.0.0.1", port))
        listening.listen(128)
    except (OSError, OverflowError) as error:
        listening.close()
        reason = getattr(error, "strerror", None) or error
        raise UserError(
            f"cannot use port {port}: {reason}; try: fedssca ui --port {free_port()}"
        ) from error
    return listening
