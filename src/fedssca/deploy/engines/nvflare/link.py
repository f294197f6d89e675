"""The server's connection to the sites: envelopes travel as calls of `JobSite.handle`."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from typing import Any, TypeAlias

from nvflare.collab import collab

from fedssca.deploy.engine import Answer, Patience

__all__ = ["CollabLink"]

LOOK = 0.005
"""The seconds between two looks at calls that have a deadline."""

Arrived: TypeAlias = Callable[..., Any]
Call: TypeAlias = Callable[[str, bytes, float, Arrived], Any]
"""(site, envelope, seconds, what is called with the answer) -> the engine's queue of results."""


def call_site(site: str, data: bytes, timeout: float, arrived: Arrived) -> Any:
    """Call a site, without waiting for its answer."""
    group = collab.get_clients([site])
    return group(blocking=False, timeout=timeout, process_resp_cb=arrived).handle(data)


class CollabLink:
    """A `Link`. A site has one open call at most.

    The engine has a limited number of threads for calls, and a call that nobody waits for keeps one
    of them until it ends. So a site that is late gets its next envelope when its call has ended.
    """

    def __init__(self, call: Call = call_site) -> None:
        self._call = call
        self._open: dict[str, Any] = {}
        """The calls that sites were late for."""

    def busy(self) -> Collection[str]:
        """The sites that were late and have not answered since."""
        return [site for site, calls in self._open.items() if not _ended(calls)]

    def ask(
        self, envelopes: Mapping[str, bytes], timeout: float, patience: Patience | None = None
    ) -> Mapping[str, Answer]:
        """Call all sites at once; each answer comes with the time it took."""
        begun = time.perf_counter()
        seconds: dict[str, float] = {}
        calls: dict[str, Any] = {}

        def clock(site: str) -> Arrived:
            def arrived(gcc: Any, result: Any) -> Any:
                del gcc
                seconds[site] = time.perf_counter() - begun
                return result

            return arrived

        def call_those_that_can_be() -> None:
            for site in envelopes.keys() - calls.keys() - set(self.busy()):
                earlier = self._open.pop(site, None)
                if earlier is not None and earlier.failures:
                    calls[site] = earlier  # It never answered: this one need not be asked.
                else:
                    calls[site] = self._call(site, envelopes[site], timeout, clock(site))

        call_those_that_can_be()
        while _waits(envelopes, calls, begun, patience):
            time.sleep(LOOK)
            call_those_that_can_be()
        answers = {}
        for site in envelopes:
            if site not in calls or (patience and not _ended(calls[site])):
                self._open.update({site: calls[site]} if site in calls else {})
                answers[site] = Answer(None, "late", time.perf_counter() - begun, late=True)
            elif got := [data for _, data in calls[site]]:
                answers[site] = Answer(got[0], "", seconds.get(site, 0.0))
            else:
                why = _reason(calls[site].failures.get(site))
                answers[site] = Answer(None, why, time.perf_counter() - begun)
        return answers


def _waits(
    asked: Collection[str], calls: Mapping[str, Any], begun: float, patience: Patience | None
) -> bool:
    """Whether some sites are to be called yet or, if there is a deadline, to be waited for."""
    if patience is None:
        return len(calls) < len(asked)
    answered = sum(len(each) for each in calls.values())
    enough = answered >= patience.enough and time.perf_counter() - begun >= patience.seconds
    return not enough and (len(calls) < len(asked) or not all(map(_ended, calls.values())))


def _ended(calls: Any) -> bool:
    return bool(calls.num_whole_items_received)


def _reason(failure: Any) -> str:
    """The engine's words in one line."""
    return " ".join(str(failure).split())[:200] if failure else "no answer"
