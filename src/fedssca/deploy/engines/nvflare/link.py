"""The server's connection to the sites: envelopes travel as calls of `JobSite.handle`."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, TypeAlias

from nvflare.collab import collab

__all__ = ["CollabCall", "collab_call"]

Arrived: TypeAlias = Callable[..., Any]
Begin: TypeAlias = Callable[[str, bytes, float, Arrived], Any]
"""(site, envelope, seconds, what is called with the answer) -> the engine's queue of results."""


def collab_call(site: str, data: bytes, timeout: float) -> CollabCall:
    """Call a site of this job."""
    return CollabCall(site, data, timeout, call_site)


def call_site(site: str, data: bytes, timeout: float, arrived: Arrived) -> Any:
    """Call a site, without waiting for its answer."""
    group = collab.get_clients([site])
    return group(blocking=False, timeout=timeout, process_resp_cb=arrived).handle(data)


class CollabCall:
    """A call of one site, and the engine's queue for its result."""

    def __init__(self, site: str, data: bytes, timeout: float, begin: Begin) -> None:
        self._site, self.arrived = site, 0.0
        self._results = begin(site, data, timeout, self._note)

    def _note(self, gcc: Any, result: Any) -> Any:
        del gcc
        self.arrived = time.perf_counter()
        return result

    def ended(self) -> bool:
        """Whether the answer is there, or none will come."""
        return bool(self._results.num_whole_items_received)

    def answered(self) -> bool:
        """Whether an answer is there."""
        return len(self._results) > 0

    def wait(self) -> Any:
        """The answer, once the call has ended; None if there is none."""
        return next((data for _, data in self._results), None)

    def failure(self) -> str:
        """The engine's words in one line."""
        failure = self._results.failures.get(self._site)
        return " ".join(str(failure).split())[:200] if failure else "no answer"
