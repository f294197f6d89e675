"""A `Link` made of calls: each engine says how one site is called, the rest is the same for all."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from typing import Any, Protocol, TypeAlias

from fedssca.deploy.engine import Answer, Patience

__all__ = ["CallLink", "SiteCall"]

LOOK = 0.005
"""The seconds between two looks at calls that have a deadline."""


class SiteCall(Protocol):
    """One call of one site."""

    arrived: float
    """When the answer came, on the clock `time.perf_counter`; 0 before that."""

    def ended(self) -> bool:
        """Whether the answer is there, or none will come."""

    def answered(self) -> bool:
        """Whether an answer is there."""

    def wait(self) -> Any:
        """The answer, once the call has ended; None if there is none."""

    def failure(self) -> str:
        """Why there is no answer, in one line."""


Call: TypeAlias = Callable[[str, bytes, float], SiteCall]
"""(site, envelope, seconds) -> the call, which is not waited for."""


class CallLink:
    """A `Link`. A site has one open call at most.

    Engines have a limited number of threads for calls, and a call that nobody waits for keeps one
    of them until it ends. So a site that is late gets its next envelope when its call has ended.
    """

    def __init__(self, call: Call) -> None:
        self._call = call
        self._open: dict[str, SiteCall] = {}
        """The calls that sites were late for."""
        self._late: dict[str, Answer] = {}

    def busy(self) -> Collection[str]:
        """The sites that were late and have not answered since."""
        return [site for site, call in self._open.items() if not call.ended()]

    def late_answers(self) -> Mapping[str, Answer]:
        """What sites that were late have answered since the last look."""
        for site in [site for site, call in self._open.items() if call.answered()]:
            self._keep(site, self._open.pop(site))
        found, self._late = self._late, {}
        return found

    def _keep(self, site: str, call: SiteCall) -> None:
        self._late[site] = Answer(call.wait())

    def ask(
        self, envelopes: Mapping[str, bytes], timeout: float, patience: Patience | None = None
    ) -> Mapping[str, Answer]:
        """Call all sites at once; each answer comes with the time it took."""
        begun = time.perf_counter()
        calls: dict[str, SiteCall] = {}

        def call_those_that_can_be() -> None:
            busy = set(self.busy())
            for site in envelopes:
                if site in calls or site in busy:
                    continue
                earlier = self._open.pop(site, None)
                if earlier is not None and not earlier.answered():
                    calls[site] = earlier  # It never answered: this one need not be asked.
                else:
                    if earlier is not None:
                        self._keep(site, earlier)
                    calls[site] = self._call(site, envelopes[site], timeout)

        call_those_that_can_be()
        while _waits(envelopes, calls, begun, patience):
            time.sleep(LOOK)
            call_those_that_can_be()
        answers = {}
        for site in envelopes:
            if site not in calls or (patience and not calls[site].ended()):
                self._open.update({site: calls[site]} if site in calls else {})
                answers[site] = Answer(None, "late", time.perf_counter() - begun, late=True)
                continue
            data = calls[site].wait()
            if calls[site].answered():
                answers[site] = Answer(data, "", max(0.0, calls[site].arrived - begun))
            else:
                why = calls[site].failure()
                answers[site] = Answer(None, why, time.perf_counter() - begun)
        return answers


def _waits(
    asked: Collection[str], calls: Mapping[str, SiteCall], begun: float, patience: Patience | None
) -> bool:
    """Whether some sites are to be called yet or, if there is a deadline, to be waited for."""
    if patience is None:
        return len(calls) < len(asked)
    answered = sum(call.answered() for call in calls.values())
    enough = answered >= patience.enough and time.perf_counter() - begun >= patience.seconds
    return not enough and (
        len(calls) < len(asked) or not all(call.ended() for call in calls.values())
    )
