"""What peers have sent to a site and no phase has used yet, within bounds."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

import numpy as np

__all__ = ["PeerInbox"]

MOST_WAITING = 4
"""The number of envelopes of one sender that wait; peers are never further ahead than that."""

Key = TypeVar("Key")


class PeerInbox(Generic[Key]):
    """Arrays by sender and key. A sender that sends too many loses its own oldest ones."""

    def __init__(self) -> None:
        self._waiting: dict[str, dict[Key, np.ndarray]] = {}
        self._lock = threading.Lock()

    def put(self, sender: str, key: Key, body: np.ndarray) -> None:
        """Keep what a peer sent; a second one with the same key replaces the first."""
        with self._lock:
            own = self._waiting.setdefault(sender, {})
            own.pop(key, None)
            own[key] = body
            while len(own) > MOST_WAITING:
                del own[next(iter(own))]

    def take(self, key: Key) -> dict[str, np.ndarray]:
        """Remove and return what came with this key, by sender."""
        with self._lock:
            return {sender: own.pop(key) for sender, own in self._waiting.items() if key in own}

    def take_from(self, sender: str, key: Key) -> np.ndarray | None:
        """Remove and return what this sender sent with this key; None if there is nothing."""
        with self._lock:
            return self._waiting.get(sender, {}).pop(key, None)

    def keep(self, wanted: Callable[[Key], bool]) -> None:
        """Forget everything whose key is not wanted."""
        with self._lock:
            self._waiting = {
                sender: {key: body for key, body in own.items() if wanted(key)}
                for sender, own in self._waiting.items()
            }
