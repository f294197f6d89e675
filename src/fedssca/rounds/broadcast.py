"""What the server sends to clients that hold rows: all of a request, or what they cannot derive.

A client that answered round t-1 has that round's request. From it, and from w(t), it computes the
averaged statistic of round t (`Algorithm.follow`), so that this is not sent. All others get all of
the request: those that were away in round t-1, and everybody in the first round after a start.

The server keeps what such a client has, and compares what the client will compute with what it
means. If they differ by more than rounding errors, as after training diverged and went back to an
earlier point, everybody gets all of the request.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import jax
import numpy as np

from fedssca.methods.algorithm import Algorithm, Request
from fedssca.problem.problem import Problem
from fedssca.problem.programs import once_per_problem
from fedssca.rounds.codec import InvalidMessage

__all__ = ["Follower", "Publisher", "brief"]

CLOSE = 1e-4
"""The largest relative difference that counts as one of rounding."""


def brief(request: Request) -> Request | None:
    """The request for a client that has the last one; None if that saves nothing.

    It works on the shapes of a request too.
    """
    return request._replace(average=()) if _given(request.average) else None


def _given(part: Any) -> bool:
    return not isinstance(part, tuple)


@once_per_problem
def _followed(problem: Problem, algorithm: Algorithm) -> Callable[..., Any] | None:
    """The program that computes an average, one for all clients."""
    del problem
    return None if algorithm.follow is None else jax.jit(algorithm.follow)


class Follower:
    """What a client remembers of the last request, and how it completes the next one."""

    def __init__(self, problem: Problem, algorithm: Algorithm) -> None:
        self._follow = _followed(problem, algorithm)
        self._held: dict[int, Request] = {}
        """The requests of the last two rounds: a sum that fails is asked for again."""

    def complete(self, sent: Request) -> Request:
        """All of a request; an `InvalidMessage` if it leaves out what this client does not have."""
        if self._follow is None:
            return sent
        now = int(sent.round)
        last = {now - 1: self._held[now - 1]} if now - 1 in self._held else {}
        if not _given(sent.average):
            if not last:
                raise InvalidMessage(
                    f"round {now}: this client was not in the round before, and needs all of the "
                    "request"
                )
            sent = sent._replace(average=self._follow(last[now - 1], sent.w))
        self._held = last | {now: sent}
        return sent


class Publisher:
    """The server's side: which client needs all of a request."""

    def __init__(self, problem: Problem, algorithm: Algorithm) -> None:
        self._has_more = algorithm.follow is not None
        self._mirror = Follower(problem, algorithm)
        self._there: frozenset[int] = frozenset()
        """The clients that answered the last round."""

    def address(self, request: Request, asked: Sequence[int]) -> dict[int, Request]:
        """What each client that is asked is sent."""
        there, self._there = self._there, frozenset()
        short = brief(request)
        if short is None or not self._has_more or not there or not self._derived(short, request):
            self._mirror.complete(request)
            return dict.fromkeys(asked, request)
        return {number: short if number in there else request for number in asked}

    def answered(self, who: Iterable[int]) -> None:
        """Remember who answered the request that was sent last."""
        self._there = frozenset(who)

    def _derived(self, short: Request, request: Request) -> bool:
        """Whether clients with the last request derive what this one says."""
        try:
            found = self._mirror.complete(short)
        except InvalidMessage:
            return False
        pairs = zip(jax.tree.leaves(found), jax.tree.leaves(request), strict=True)
        return all(_close(np.asarray(one), np.asarray(other)) for one, other in pairs)


def _close(one: np.ndarray, other: np.ndarray) -> bool:
    return bool(np.linalg.norm(one - other) <= CLOSE * np.linalg.norm(other))
