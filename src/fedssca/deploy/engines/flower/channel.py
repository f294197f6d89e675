"""Questions and answers between processes of one machine, over a socket in a private folder."""

from __future__ import annotations

import json
import logging
import os
import threading
from collections.abc import Callable
from multiprocessing.connection import Client, Connection, Listener
from pathlib import Path
from typing import Any

__all__ = ["ask", "serve"]

LOG = logging.getLogger(__name__)


def serve(place: Path, answer: Callable[[bytes], bytes]) -> Listener:
    """Answer questions at `place`, in threads, until the process ends.

    The name of a socket is limited to about a hundred characters, so `place` should be relative.
    """
    place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    place.unlink(missing_ok=True)
    before = os.umask(0o077)
    try:
        listener = Listener(str(place), "AF_UNIX", backlog=16)
    finally:
        os.umask(before)

    def accept() -> None:
        while True:
            try:
                line = listener.accept()
            except OSError:
                return
            threading.Thread(target=_talk, args=(line, answer), daemon=True).start()

    threading.Thread(target=accept, daemon=True, name=place.stem).start()
    return listener


def ask(place: Path, question: bytes) -> bytes:
    """The answer of the process that serves `place`; an OSError or EOFError if there is none."""
    with Client(str(place), "AF_UNIX") as line:
        line.send_bytes(question)
        return line.recv_bytes()


def _talk(line: Connection[Any, Any], answer: Callable[[bytes], bytes]) -> None:
    with line:
        try:
            line.send_bytes(answer(line.recv_bytes()))
        except (OSError, EOFError):
            LOG.debug("a question was not answered: its process has ended")


def as_json(answer: Callable[[Any], Any]) -> Callable[[bytes], bytes]:
    """Questions and answers as JSON."""
    return lambda question: json.dumps(answer(json.loads(question))).encode()
