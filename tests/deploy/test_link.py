"""Calls of the engine: which sites are waited for, and when a late one is called again."""

from __future__ import annotations

import threading
from typing import Any

import pytest

pytest.importorskip("nvflare", reason="needs the deploy extra: pip install 'fedssca[deploy]'")
from nvflare.collab.api.exceptions import CollabCallError
from nvflare.collab.api.group_call_context import ResultQueue

from fedssca.deploy.engine import Answer, Patience
from fedssca.deploy.engines.calls import CallLink
from fedssca.deploy.engines.nvflare.link import CollabCall

SOON = Patience(0.05, 2)
"""A deadline that is over at once."""


class Engine:
    """The engine's own queues of results; sites that are not `stuck` answer at once."""

    def __init__(self, *stuck: str) -> None:
        self.stuck, self.calls = set(stuck), dict[str, list[ResultQueue]]()

    def call(self, site: str, data: bytes, timeout: float, arrived: Any) -> ResultQueue:
        del timeout
        results = ResultQueue(1)
        self.calls.setdefault(site, []).append(results)
        if site not in self.stuck:
            results.append((site, arrived(None, data)))
        return results

    def site_call(self, site: str, data: bytes, timeout: float) -> CollabCall:
        return CollabCall(site, data, timeout, self.call)

    def fail(self, site: str) -> None:
        error = CollabCallError(site, "handle", TimeoutError("timed out"))
        self.calls[site][-1].append_failure(site, error)


ENVELOPES = {"a": b"1", "b": b"2", "c": b"3"}


def test_a_late_site_is_called_again_when_it_has_answered() -> None:
    engine = Engine("c")
    link = CallLink(engine.site_call)
    answers = link.ask(ENVELOPES, 60.0, SOON)
    assert [answers[site].data for site in "ab"] == [b"1", b"2"]
    assert answers["c"].late
    assert link.busy() == ["c"]
    assert link.ask(ENVELOPES, 60.0, SOON)["c"].late
    assert len(engine.calls["c"]) == 1  # one call at a time, so that no threads are used up
    engine.stuck.clear()
    engine.calls["c"][0].append(("c", b"too late"))
    assert link.busy() == []
    assert link.ask(ENVELOPES, 60.0, SOON)["c"].data == b"3"
    assert link.late_answers() == {"c": Answer(b"too late")}
    assert link.late_answers() == {}


def test_a_late_answer_can_be_fetched_before_the_next_call() -> None:
    engine = Engine("c")
    link = CallLink(engine.site_call)
    link.ask(ENVELOPES, 60.0, SOON)
    assert link.late_answers() == {}
    engine.calls["c"][0].append(("c", b"late"))
    assert link.late_answers() == {"c": Answer(b"late")}
    assert link.late_answers() == {}


def test_a_site_whose_call_fails_is_not_called_again() -> None:
    engine = Engine("c")
    link = CallLink(engine.site_call)
    link.ask(ENVELOPES, 60.0, SOON)
    engine.fail("c")
    answer = link.ask(ENVELOPES, 60.0, SOON)["c"]
    assert (answer.data, answer.late) == (None, False)
    assert "timed out" in answer.error
    assert len(engine.calls["c"]) == 1


@pytest.mark.parametrize("patience", [None, Patience(0.0, 3)])
def test_a_late_site_that_is_needed_is_waited_for(patience: Patience | None) -> None:
    """In evaluations, which have no deadline, and where the others are not enough."""
    engine = Engine("c")
    link = CallLink(engine.site_call)
    link.ask(ENVELOPES, 60.0, SOON)

    def answer() -> None:
        engine.stuck.clear()
        engine.calls["c"][0].append(("c", b"too late"))

    later = threading.Timer(0.1, answer)
    later.start()
    answers = link.ask(ENVELOPES, 60.0, patience)
    later.join()
    assert [answers[site].data for site in "abc"] == [b"1", b"2", b"3"]
