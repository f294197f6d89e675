"""Partial participation, a combinator: in each round a cohort of S of the I clients is asked.

The cohort of round t is drawn without replacement, as a function of (seed, t). Each of its members
stays silent with probability `dropout`. The sum of the A messages that arrive, times I / A, has the
sum of all clients' messages as its expectation, so the method itself sees only additional noise.
A round in which nobody answers changes nothing.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fedssca.data.sampling import batch_indices, uniform
from fedssca.errors import UserError
from fedssca.methods.algorithm import Algorithm, Message, Request, State, Turnout
from fedssca.problem.problem import Array, Problem

__all__ = ["Cohort", "asked_in", "cohort_of", "participation"]

SERVER = np.array([-1], np.int32)
"""The number under which the server draws: no client has it."""


class Cohort(NamedTuple):
    """`size` of `clients` clients are asked in every round."""

    size: int
    clients: int


def cohort_of(algorithm: Algorithm, problem: Problem) -> Cohort | None:
    """The cohort that an algorithm asks, or None where it asks all clients.

    It is read from the shape of a request, so nothing is computed.
    """
    first = jax.eval_shape(lambda w: algorithm.request(algorithm.init(w)), problem.start)
    turnout = first.turnout
    return Cohort(turnout.asked.shape[0], turnout.clients) if turnout else None


def asked_in(t: Array, cohort: Cohort, seed: int) -> Array:
    """The clients that are asked in round t."""
    return batch_indices(seed, t, SERVER, np.array([cohort.clients]), cohort.size)[0]


def participation(
    algorithm: Algorithm, *, clients: int, cohort: int, seed: int = 0, dropout: float = 0.0
) -> Algorithm:
    """`algorithm` with `cohort` of `clients` clients asked per round; all else stays as it is."""
    if not 1 <= cohort <= clients:
        raise UserError(f"cohort = {cohort}: it must lie between 1 and the {clients} clients")
    if not 0 <= dropout < 1:
        raise UserError(f"dropout = {dropout}: it must lie in [0, 1)")

    def turnout(t: Array) -> Turnout:
        asked = asked_in(t, Cohort(cohort, clients), seed)
        return Turnout(asked, uniform(seed, t, asked) >= dropout, clients)

    def request(state: State) -> Request:
        asked = algorithm.request(state)
        return asked._replace(turnout=turnout(asked.round))

    def update(state: State, total: Message) -> State:
        answered = turnout(algorithm.request(state).round).answers.sum()
        scale = (clients / jnp.maximum(answered, 1)).astype(state.w.dtype)
        after = algorithm.update(state, jax.tree.map(lambda leaf: leaf * scale, total))
        idle = state._replace(round=state.round + 1)
        return jax.tree.map(lambda new, old: jnp.where(answered > 0, new, old), after, idle)

    return algorithm._replace(request=request, update=update)
