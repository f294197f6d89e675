"""The server's connection to the sites: envelopes travel as messages of a Flower grid."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from typing import TypeAlias

from flwr.app import Message
from flwr.serverapp import Grid
from flwr.supercore.inflatable import inflatable_utils

from fedssca.deploy.engines.calls import CallLink
from fedssca.deploy.engines.flower.records import Record, content, mail_of, read, text, with_mail

__all__ = ["GridCalls", "grid_link", "look_often"]

LOOK = 0.01
"""The seconds between two looks for replies."""

GRACE = 5.0
"""The seconds beyond a call's own time after which its thread need not say that it is over."""

SOON = {"initial_backoff": 0.01, "backoff_cap": 0.5, "max_time": 10.0}
"""How Flower waits for a reply that has not arrived completely: the seconds until it looks again,
and until it gives up. By default it looks after a second, the time of many rounds, and waits two
hours for a node that was killed while it sent."""

Heard: TypeAlias = Callable[[Record, str], None]
"""Called with the record of a reply, or with why there is none."""


def look_often() -> None:
    """Let the ServerApp of this process look for replies as often as `SOON` says."""
    if settings := inflatable_utils.pull_objects.__kwdefaults__:
        settings.update(SOON)


def grid_link(calls: GridCalls) -> CallLink:
    """A `Link` to the nodes of these calls."""
    return CallLink(lambda site, data, timeout: GridCall(calls, site, data, timeout))


class GridCalls:
    """Sends messages to nodes, and looks for their replies in a thread of its own."""

    def __init__(self, grid: Grid, nodes: Mapping[str, int]) -> None:
        """`nodes` are the sites' names and the numbers of their nodes."""
        self._grid, self.nodes = grid, nodes
        self._mail: dict[str, list[tuple[str, bytes]]] = {site: [] for site in nodes}
        """What other sites have sent to each site since it was last asked."""
        self._waiting: dict[str, tuple[Heard, float]] = {}
        """The messages without a reply: who hears of it, and how long that is waited for."""
        self._lock, self._news = threading.Lock(), threading.Event()
        threading.Thread(target=self._look, daemon=True, name="flower-replies").start()

    def send(self, node: int, record: Record, timeout: float, heard: Heard) -> None:
        """Send a record to a node; `heard` is called when the reply is there, or never will be."""
        message = Message(content(record), node, "query", ttl=max(60.0, 2 * timeout))
        sent = list(self._grid.push_messages([message]))
        if sent and sent[0]:
            with self._lock:
                self._waiting[sent[0]] = heard, time.monotonic() + timeout
        if not sent or not sent[0]:
            heard({}, "the SuperLink did not take the message")
        self._news.set()

    def bring(self, sender: str, mail: Iterable[tuple[str, bytes]]) -> None:
        """Keep what a site has for others until they are asked next."""
        with self._lock:
            for site, data in mail:
                if site in self._mail:
                    self._mail[site].append((sender, data))

    def mail_for(self, site: str) -> list[tuple[str, bytes]]:
        """What others have sent to a site since it was last asked."""
        with self._lock:
            mail, self._mail[site] = self._mail[site], []
        return mail

    def ask_all(self, nodes: list[int], record: Record, timeout: float) -> dict[int, Record]:
        """Send the same record to many nodes and wait; those that do not reply are left out."""
        found: dict[int, Record] = {}
        ended = threading.Semaphore(0)

        def heard(node: int) -> Heard:
            def note(reply: Record, why: str) -> None:
                found.update({} if why else {node: reply})
                ended.release()

            return note

        for node in nodes:
            self.send(node, record, timeout, heard(node))
        for _ in nodes:
            ended.acquire()
        return found

    def _look(self) -> None:
        while True:
            self._news.wait()
            try:
                heard = self._replies()
            except Exception as error:
                self._fail_all(f"the SuperLink does not answer: {type(error).__name__}")
                continue
            for whom, record, why in heard:
                whom(record, why)
            with self._lock:
                if not self._waiting:
                    self._news.clear()
                    continue
            if not heard:
                time.sleep(LOOK)

    def _replies(self) -> list[tuple[Heard, Record, str]]:
        """What has come since the last look, and what is waited for no longer."""
        with self._lock:
            names = list(self._waiting)
        replies = self._grid.pull_messages(names)  # without the lock: it may take seconds
        with self._lock:
            return self._matched(replies)

    def _matched(self, replies: Iterable[Message]) -> list[tuple[Heard, Record, str]]:
        heard: list[tuple[Heard, Record, str]] = []
        for reply in replies:
            waits = self._waiting.pop(reply.metadata.reply_to_message_id, None)
            if waits is not None:
                heard.append((waits[0], read(reply), _why(reply)))
        now = time.monotonic()
        for name in [name for name, (_, until) in self._waiting.items() if now > until]:
            heard.append((self._waiting.pop(name)[0], {}, "no answer in time"))
        return heard

    def _fail_all(self, why: str) -> None:
        with self._lock:
            left, self._waiting = list(self._waiting.values()), {}
            self._news.clear()
        for whom, _ in left:
            whom({}, why)


class GridCall:
    """One call of one site."""

    def __init__(self, calls: GridCalls, site: str, data: bytes, timeout: float) -> None:
        self._calls, self._site = calls, site
        self._until = time.monotonic() + timeout
        self._data: bytes | None = None
        self._failure, self.arrived = "", 0.0
        self._ended = threading.Event()
        record = with_mail({"kind": "ask", "data": data}, calls.mail_for(site))
        calls.send(calls.nodes[site], record, timeout, self._heard)

    def ended(self) -> bool:
        """Whether the answer is there, or none will come."""
        return self._ended.is_set()

    def answered(self) -> bool:
        """Whether an answer is there."""
        return self._data is not None

    def wait(self) -> bytes | None:
        """The answer, once the call has ended; None if there is none."""
        if not self._ended.wait(max(0.0, self._until - time.monotonic()) + GRACE):
            self._failure = "no answer in time"
            self._ended.set()
        return self._data

    def failure(self) -> str:
        """Why there is no answer, in one line."""
        return " ".join(self._failure.split())[:200] or "no answer"

    def _heard(self, reply: Record, why: str) -> None:
        data = reply.get("data")
        if text(reply, "kind") == "answer" and isinstance(data, bytes):
            self._calls.bring(self._site, mail_of(reply))
            self._data, self.arrived = data, time.perf_counter()
        else:
            self._failure = why or text(reply, "error") or "this is no answer of a site"
        self._ended.set()


def _why(reply: Message) -> str:
    return f"{reply.error.reason or 'an error of its node'}" if reply.has_error() else ""
