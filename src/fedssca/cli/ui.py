"""`fedssca ui`: the page about runs on this machine."""

from __future__ import annotations

import json
import os
import secrets
import socket
import tempfile
import threading
import webbrowser
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Annotated

import typer

from fedssca.cli.options import Json, new_app
from fedssca.errors import UserError
from fedssca.system import free_port, pip_install, starting_up, user_cache

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
        raise UserError(f"the page needs {error.name}: {pip_install('ui')}") from error

    folder = _folder(folder)
    token = secrets.token_urlsafe(24)
    with _bound(port) as listening:
        address = f"http://127.0.0.1:{listening.getsockname()[1]}/#token={token}"
        print(json.dumps({"url": address}) if as_json else address, flush=True)
        with redirect_file(address) as file:
            if browser:
                threading.Thread(target=webbrowser.open, args=[file.as_uri()], daemon=True).start()
            with suppress(KeyboardInterrupt):  # Ctrl-C ends the page; the runs it started go on
                serve(folder, token, listening)


@contextmanager
def redirect_file(address: str) -> Iterator[Path]:
    """A file that sends the browser to the page; it can be read by this user only.

    Other users see the arguments of a browser's process, so the token must not be among them.
    """
    with tempfile.TemporaryDirectory(prefix="fedssca-page-", dir=_own_folder()) as folder:
        file = Path(folder) / "open.html"
        with open(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as out:
            out.write(
                f'<!doctype html><meta charset="utf-8"><title>fedssca</title>'
                f'<meta http-equiv="refresh" content="0;url={address}">'
                f'<a href="{address}">Open the page</a>'
            )
        yield file


def _own_folder() -> Path | None:
    """The user's cache folder, which confined browsers can read; None if it cannot be made."""
    try:
        user_cache().mkdir(parents=True, exist_ok=True)
    except OSError:
        return None
    return user_cache()


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
