"""Bare calls of NVFlare, beside which the rounds of a deployment are measured.

Kits that start outside `echo_allowed` refuse jobs that name them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from nvflare.collab import collab

from fedssca.deploy.engines.nvflare import kit, session
from fedssca.deploy.engines.nvflare.job import JobSite

__all__ = ["EchoSite", "echo_all", "echo_allowed", "echo_jobs", "exchange_all"]

PATIENCE = 60.0
SITE = f"{__name__}.EchoSite"


class EchoSite(JobSite):
    """A site that also sends plain bytes around, as bare as the engine does it."""

    @collab.publish
    def echo(self, data: bytes, size: int) -> bytes:
        """Answer with so many bytes."""
        del data
        return bytes(size)

    @collab.publish
    def exchange(self, data: bytes, size: int, peers: list[str]) -> bool:
        """Send so many bytes to each peer, encrypted; whether all of them have got theirs."""
        del data
        waiting = collab.get_clients(peers)(secure=True, timeout=PATIENCE).take(bytes(size))
        return len(list(waiting)) == len(peers)

    @collab.publish
    def take(self, data: bytes) -> bool:
        """Take bytes of a peer."""
        del data
        return True


def echo_all(down: int, up: int) -> None:
    """Send so many bytes to every site, and as many of them get so many back."""
    got = list(collab.clients(timeout=PATIENCE).echo(bytes(down), up))
    assert all(len(data) == up for _, data in got)


def exchange_all(
    first: dict[str, tuple[int, int]], between: int, last: dict[str, tuple[int, int]]
) -> None:
    """Bytes down and from every site to all others, then bytes down and up."""
    sites = list(first)
    ask = {s: collab.get_clients([s])(blocking=False, timeout=PATIENCE) for s in sites}
    waiting = [
        ask[site].exchange(bytes(down), between, [peer for peer in sites if peer != site])
        for site, (down, _) in first.items()
    ]
    assert all(done for results in waiting for _, done in results)
    ask = {s: collab.get_clients([s])(blocking=False, timeout=PATIENCE) for s in sites}
    waiting = [ask[site].echo(bytes(down), up) for site, (down, up) in last.items()]
    assert all(data is not None for results in waiting for _, data in results)


@contextmanager
def echo_allowed(server: str) -> Iterator[None]:
    """Inside this block kits that start allow `EchoSite` and this class of a server's object."""
    listed = list(kit.ALLOWED)
    kit.ALLOWED.extend([SITE, server])
    try:
        yield
    finally:
        kit.ALLOWED[:] = listed


@contextmanager
def echo_jobs(server: str) -> Iterator[None]:
    """Inside this block jobs name `EchoSite` and this class of a server's object."""
    named = dict(session.JOB_CLASSES)
    session.JOB_CLASSES.update({"server": server, "site": SITE})
    try:
        yield
    finally:
        session.JOB_CLASSES.update(named)
