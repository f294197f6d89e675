"""Rounds that do not wait for slow clients: messages of several rounds in one sum.

The server updates as soon as enough clients have answered. A client that is late goes on with its
message, which counts when it comes. So client i counts in round t with its last message, which
answers the request of a round s_i <= t, unless it is older than A rounds:

    q(t) = sum_i q_i(s_i) / (sum_i N_i / N)      over the clients with t - s_i <= A

w(s_i) differs from w(t) by at most A steps, so that the error of q(t) vanishes with gamma, and the
averages Q(t) of Theorems 1-4 have the same limit: docs/decisions/0025 has the argument. Steps along
old gradients must be short, so every step is divided by 1 + the mean age t - s_i of the messages.

Weights of F_0..F_M can change faster than w does (the default method lets signs alternate). So a
message says which request it answers (`AnsweredRequest`), and a method whose `update` reads the
weights of its request reads the mean of the weights in the messages (`Algorithm.reweighed`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fedssca.errors import UserError
from fedssca.methods.algorithm import Algorithm, Message, Request, State
from fedssca.problem.problem import Array, Batch, Problem, Terms

__all__ = [
    "Clock",
    "Delays",
    "Timed",
    "answers_for",
    "clock_of",
    "counted",
    "of_several_rounds",
    "timed",
]

NEVER = -(2**30)
"""The round of a message that has not come yet."""


def counted(messages: Any, share: Any, age: Any, most: int) -> tuple[Any, Array]:
    """q(t), the sum of the clients' last messages that count, and the share of rows it is about.

    Leaves of `messages` have one row per client, and `share[i]` is N_i / N. Where no message
    counts, the sum is 0.
    """
    here = jnp.asarray(age) <= most
    covered: Array = jnp.where(here, share, 0).sum()
    scale = 1 / jnp.where(covered > 0, covered, 1)

    def added(leaf: Any) -> Array:
        kept = jnp.where(here.reshape(-1, *[1] * (leaf.ndim - 1)), leaf, 0)
        return kept.sum(axis=0) * scale.astype(leaf.dtype)

    return jax.tree.map(added, messages), covered


class AnsweredRequest(NamedTuple):
    """What a message says of the request that it answers; sums of messages have the means."""

    round: Array
    """N_i / N s_i."""
    weights: Any
    """N_i / N a(s_i), where the request has weights."""


def of_several_rounds(algorithm: Algorithm) -> Algorithm:
    """`algorithm` for sums of messages that answer requests of different rounds."""
    if algorithm.steps > 1:
        raise UserError(
            f"local_steps = {algorithm.steps}: what local steps changed counts in the round that "
            "they belong to; with staleness use local_steps = 1"
        )

    def reply(terms: Terms, request: Request, batch: Batch) -> Message:
        sent = algorithm.reply(terms, request, batch)
        share: Array = batch["weight"].sum().astype(request.w.dtype)
        of = AnsweredRequest(request.round, request.weights)
        return sent._replace(scalars=(sent.scalars, jax.tree.map(lambda leaf: share * leaf, of)))

    def update(state: State, total: Message) -> State:
        values, of = total.scalars
        age = jnp.maximum(state.round + 1 - of.round, 0).astype(state.w.dtype)
        seen = state if algorithm.reweighed is None else algorithm.reweighed(state, of.weights)
        short = seen._replace(pace=state.pace / (1 + age))
        after = algorithm.update(short, total._replace(scalars=values))
        return after._replace(pace=jnp.minimum(1, after.pace * (1 + age)))

    return algorithm._replace(reply=reply, update=update)


class Delays(NamedTuple):
    """Simulated clients that take their time, and how the server waits for them."""

    times: tuple[float, ...]
    """The time that each client takes for a message, in any unit."""
    enough: int
    """The number of answers that end a round."""
    most: int
    """A: a message counts up to so many rounds after the one that it answers."""

    @classmethod
    def of(cls, times: Sequence[float], enough: float, most: int) -> Delays:
        """Delays of clients of which the part `enough` must answer in a round."""
        if not all(math.isfinite(time) and time > 0 for time in times):
            raise UserError(f"delays = {list(times)}: every client takes a time above 0")
        return cls(tuple(times), answers_for(enough, len(times)), most)


def answers_for(enough: float, clients: int) -> int:
    """How many of the clients are at least the part `enough` of them."""
    return max(1, math.ceil(enough * clients - 1e-9))


class Clock(NamedTuple):
    """What simulated clients work on, and what has come of them."""

    now: Array
    """The time that has passed."""
    free_at: Array
    """When each client has sent the message that it works on."""
    working: Message
    """The messages that clients work on, one row per client."""
    asked: Array
    """The rounds that these belong to."""
    last: Message
    """The last message of each client that has come."""
    of: Array
    """The rounds that these belong to."""
    came: Array
    """The number of messages that have come."""


class Timed(NamedTuple):
    """The memory of a method, and the clock of a simulation."""

    method: Any
    clock: Clock


def clock_of(state: State) -> Clock | None:
    """The clock in a state, if it has one."""
    return state.memory.clock if isinstance(state.memory, Timed) else None


def timed(
    algorithm: Algorithm, problem: Problem, like: Message, shares: Sequence[float], delays: Delays
) -> Algorithm:
    """An algorithm `of_several_rounds` with simulated clients that take their time.

    Clients that are free begin with the request of the round. The round ends when `delays.enough`
    answers have come since it began, be they to this request or to earlier ones. Clock and messages
    are in the state, so that a run that was stopped goes on with the same numbers. `like` has the
    shapes of a client's message, `shares[i]` is N_i / N.
    """
    clients, kind = len(delays.times), problem.start.dtype
    if len(shares) != clients:
        raise UserError(f"delays has {clients} entries for {len(shares)} clients: give one each")
    takes, share = np.asarray(delays.times, kind), np.asarray(shares, kind)

    def bare(state: State) -> State:
        return state._replace(memory=state.memory.method)

    def init(w: Array) -> State:
        begun = algorithm.init(w)
        none = jax.tree.map(lambda leaf: jnp.zeros((clients, *leaf.shape), leaf.dtype), like)
        never, zero = jnp.full(clients, NEVER, jnp.int32), jnp.zeros((), kind)
        clock = Clock(zero, jnp.zeros(clients, kind), none, never, none, never, zero)
        return begun._replace(memory=Timed(begun.memory, clock))

    def tick(clock: Clock, fresh: Message, t: Array) -> Clock:
        free = clock.free_at <= clock.now
        free_at = jnp.where(free, clock.now + takes, clock.free_at)
        working, asked = _those(free, fresh, clock.working), jnp.where(free, t, clock.asked)
        now = jnp.sort(free_at)[delays.enough - 1]
        came = free_at <= now
        last, of = _those(came, working, clock.last), jnp.where(came, asked, clock.of)
        return Clock(now, free_at, working, asked, last, of, clock.came + came.sum())

    def update(state: State, fresh: Message) -> State:
        before, t = bare(state), state.round + 1
        clock = tick(state.memory.clock, fresh, t)
        total, covered = counted(clock.last, share, t - clock.of, delays.most)
        after, idle = algorithm.update(before, total), before._replace(round=t)
        after = jax.tree.map(lambda new, old: jnp.where(covered > 0, new, old), after, idle)
        return after._replace(memory=Timed(after.memory, clock))

    return algorithm._replace(
        init=init, request=lambda state: algorithm.request(bare(state)), update=update, apart=True
    )


def _those(which: Array, new: Message, old: Message) -> Message:
    """The rows of `new` for which `which` holds, and the others of `old`."""
    return jax.tree.map(
        lambda a, b: jnp.where(which.reshape(-1, *[1] * (a.ndim - 1)), a, b), new, old
    )
