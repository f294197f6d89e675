"""Questions and answers between processes of one machine, over a socket in a private folder."""

from __future__ import annotations

import json
import logging
import os
import socket
import struct
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

__all__ = ["ask", "serve"]

LOG = logging.getLogger(__name__)

LENGTH = struct.Struct("<Q")
"""What stands before the bytes of a question or an answer: their number."""

BUFFER = 1 << 22
"""The bytes that a socket takes at once, so that a model is not sent in many small pieces."""


def serve(place: Path, answer: Callable[[bytes], bytes]) -> socket.socket:
    """Answer questions at `place`, in threads, until the socket is closed or the process ends.

    The name of a socket is limited to about a hundred characters, so `place` should be relative.
    """
    place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    place.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX)
    before = os.umask(0o077)
    try:
        listener.bind(str(place))
    finally:
        os.umask(before)
    listener.listen(16)

    def accept() -> None:
        while True:
            try:
                line, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=_talk, args=(line, answer), daemon=True).start()

    threading.Thread(target=accept, daemon=True, name=place.stem).start()
    return listener


def ask(place: Path, question: bytes) -> bytes:
    """The answer of the process that serves `place`; an OSError or EOFError if there is none."""
    with socket.socket(socket.AF_UNIX) as line:
        line.connect(str(place))
        _send(line, question)
        return _receive(line)


def _talk(line: socket.socket, answer: Callable[[bytes], bytes]) -> None:
    with line:
        try:
            _send(line, answer(_receive(line)))
        except (OSError, EOFError):
            LOG.debug("a question was not answered: its process has ended")


def _send(line: socket.socket, data: bytes) -> None:
    line.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, BUFFER)
    line.sendall(LENGTH.pack(len(data)))
    line.sendall(data)


def _receive(line: socket.socket) -> bytes:
    (length,) = LENGTH.unpack(_exactly(line, LENGTH.size))
    return _exactly(line, length)


def _exactly(line: socket.socket, length: int) -> bytes:
    """So many bytes; an EOFError if the other side ends before."""
    data = bytearray(length)
    there = 0
    while there < length:
        read = line.recv_into(memoryview(data)[there:])
        if not read:
            raise EOFError
        there += read
    return bytes(data)


def as_json(answer: Callable[[Any], Any]) -> Callable[[bytes], bytes]:
    """Questions and answers as JSON."""
    return lambda question: json.dumps(answer(json.loads(question))).encode()
