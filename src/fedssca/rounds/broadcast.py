"""What the server sends to clients that hold rows: all of a request, or what they cannot derive.

A client that answered round t-1 has that round's request. From it, and from w(t), it computes the
averaged statistic of round t (`Algorithm.follow`), so that this is not sent. Where messages are
compressed it is sent the way from w(t-1) to w(t) in place of w(t). What is known before round 1
follows from the problem. All others get all of the request: those that were away in round t-1, and
everybody in the first round after a resume.

The server keeps what such a client has, and compares what the client will compute with what it
means. If they differ by more than rounding errors, as after training diverged and went back to an
earlier point, everybody gets all of the request.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

import jax
import numpy as np

from fedssca.methods.algorithm import Algorithm, Request
from fedssca.problem.problem import Problem
from fedssca.problem.programs import once_per_problem
from fedssca.rounds.codec import InvalidMessage
from fedssca.rounds.rounding import FULL, moved

__all__ = ["Publisher", "RequestMemory", "brief", "whole"]

CLOSE = 1e-4
"""The largest relative difference that counts as one of rounding."""


def brief(request: Request, algorithm: Algorithm) -> Request | None:
    """The request for a client that has the last one; None if that saves nothing.

    It works on the shapes of a request too.
    """
    average = request.average if algorithm.follow is None else ()
    if algorithm.bits < FULL:
        return request._replace(w=(), average=average)
    return None if algorithm.follow is None else request._replace(average=average)


def whole(request: Request) -> Request:
    """The request for a client that has nothing."""
    return request._replace(way=())


def _given(part: Any) -> bool:
    return not isinstance(part, tuple)


@once_per_problem
def _followed(problem: Problem, algorithm: Algorithm) -> Callable[..., Any] | None:
    """The program that computes an average, one for all clients."""
    del problem
    return None if algorithm.follow is None else jax.jit(algorithm.follow)


@once_per_problem
def _first(problem: Problem, algorithm: Algorithm) -> Request:
    """The request of round 1, which everybody who has the problem can compute."""
    return algorithm.request(algorithm.init(problem.start))._replace(way=(), turnout=())


class RequestMemory:
    """What a client remembers of the last request, and how it completes the next one."""

    def __init__(self, problem: Problem, algorithm: Algorithm) -> None:
        self._follow = _followed(problem, algorithm)
        self._first = partial(_first, problem, algorithm)
        self._remembers = self._follow is not None or algorithm.bits < FULL
        self._held: dict[int, Request] = {}
        """The requests of the last two rounds: a sum that fails is asked for again."""

    def complete(self, sent: Request) -> Request:
        """All of a request; an `InvalidMessage` if it leaves out what this client does not have."""
        if not self._remembers:
            return sent
        now = int(sent.round)
        last = self._held.get(now - 1)
        if not _given(sent.w) or (self._follow is not None and not _given(sent.average)):
            if now == 1:
                before, average = self._first(), self._first().average
            elif last is None:
                raise InvalidMessage(
                    f"round {now}: this client was not in the round before, and needs all of the "
                    "request"
                )
            else:
                before, average = last, sent.average
            w = sent.w if _given(sent.w) else moved(before.w, sent.way)
            if now > 1 and self._follow is not None:
                average = self._follow(before, w)
            sent = sent._replace(w=w, average=average, way=())
        self._held = {now: sent} if last is None else {now - 1: last, now: sent}
        return sent


class Publisher:
    """The server's side: which client needs all of a request."""

    def __init__(self, problem: Problem, algorithm: Algorithm) -> None:
        self._algorithm, self._mirror = algorithm, RequestMemory(problem, algorithm)
        self._there: frozenset[int] = frozenset()
        """The clients that answered the last round."""

    def address(self, request: Request, asked: Sequence[int]) -> dict[int, Request]:
        """What each client that is asked is sent."""
        there, self._there = self._there, frozenset()
        if int(request.round) == 1:
            there = frozenset(asked)
        short, full = brief(request, self._algorithm), whole(request)
        if short is None or not there or not self._derived(short, full):
            self._mirror.complete(full)
            return dict.fromkeys(asked, full)
        return {number: short if number in there else full for number in asked}

    def answered(self, who: Iterable[int]) -> None:
        """Remember who answered the request that was sent last."""
        self._there = frozenset(who)

    def _derived(self, short: Request, full: Request) -> bool:
        """Whether clients with the last request derive what this one says."""
        try:
            found = self._mirror.complete(short)
        except InvalidMessage:
            return False
        pairs = zip(jax.tree.leaves(found), jax.tree.leaves(full), strict=True)
        return all(_close(np.asarray(one), np.asarray(other)) for one, other in pairs)


def _close(one: np.ndarray, other: np.ndarray) -> bool:
    return bool(np.linalg.norm(one - other) <= CLOSE * np.linalg.norm(other))
