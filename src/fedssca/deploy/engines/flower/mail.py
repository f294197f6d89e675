"""Requests for messages are answered when there may be some.

Flower's nodes and apps ask for messages again and again, and each such request costs the SuperLink
several milliseconds. Here a request waits until somebody has pushed a message since the last
request of the same party that found nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from contextlib import suppress
from typing import Any, TypeAlias

__all__ = ["Handler", "Mail", "Receive", "Scope", "Send"]

Scope: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send: TypeAlias = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Handler: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]

LONGEST = 2.0
"""The seconds that a request waits at most."""

EMPTY = 16
"""An answer of so few bytes holds no message."""

PULLS = {"/v1/fleet/pull-messages": "nodes", "/v1/runtime/pull-messages": "apps"}
PUSHES = {"/v1/runtime/push-messages": "nodes", "/v1/fleet/push-messages": "apps"}
"""The requests that ask for messages and those that bring some, and for whom these are."""

WHO = (b"flwr-public-key", b"flwr-task-token")
"""The headers that say who asks."""


class Mail:
    """Passes requests on to Flower, those for messages when there is news."""

    def __init__(self, flower: Handler) -> None:
        self._flower = flower
        self._news = dict.fromkeys(PULLS.values(), 0)
        """How many messages were brought, for nodes and for apps."""
        self._seen: dict[Any, int] = {}
        """How many there were when a party was last told that there is none for it."""
        self._waiting = {who: asyncio.Event() for who in self._news}

    async def carry(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass one request on."""
        path = scope.get("path", "")
        if path in PULLS:
            await self._pull(PULLS[path], scope, receive, send)
            return
        await self._flower(scope, receive, send)
        if path in PUSHES:
            self._news[PUSHES[path]] += 1
            self._waiting[PUSHES[path]].set()
            self._waiting[PUSHES[path]] = asyncio.Event()

    async def _pull(self, whose: str, scope: Scope, receive: Receive, send: Send) -> None:
        me = (whose, *(value for key, value in scope["headers"] if key in WHO))
        if self._seen.get(me) == self._news[whose]:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._waiting[whose].wait(), LONGEST)
        before, size = self._news[whose], 0

        async def counted(event: MutableMapping[str, Any]) -> None:
            nonlocal size
            size += len(event.get("body", b""))
            await send(event)

        await self._flower(scope, receive, counted)
        self._seen[me] = before if size < EMPTY else -1
