"""The seam between methods and the loop: an Algorithm is a small tuple of pure functions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from fedssca.problem.problem import Array, Batch, Problem, Terms
from fedssca.problem.starts import first_array, zeros

__all__ = [
    "Algorithm",
    "LocalChange",
    "Message",
    "Request",
    "State",
    "Turnout",
    "first_state",
    "publish",
    "shortened",
]


class State(NamedTuple):
    """What the server keeps between rounds; all of it goes into a checkpoint."""

    round: Array
    """The number of updates done; the next round is t = round + 1."""
    w: Array
    memory: Any
    """What the method itself remembers: running averages, the penalty stage, and the like."""
    slack: Array
    multipliers: Array
    pace: Array
    """The factor of every step: 1, or less after training diverged and went back."""


@partial(
    jax.tree_util.register_dataclass,
    data_fields=["asked", "answers"],
    meta_fields=["clients"],
)
@dataclass(frozen=True)
class Turnout:
    """Who is asked in a round, and who of them answers."""

    asked: Array
    """The numbers of the clients that are asked."""
    answers: Array
    """For each of them, whether it answers."""
    clients: int
    """How many clients there are in all; a constant, known without computing anything."""


class Request(NamedTuple):
    """What the server publishes at the start of a round."""

    round: Array
    """t = 1, 2, ..."""
    w: Any
    """The point w(t); a party that holds columns gets its own block only. () where `way` leads."""
    weights: Any = ()
    """Weights of F_0..F_M in the one gradient that is wanted; () asks for one per term."""
    average: Any = ()
    """The server's averaged statistic, where local steps need it to start from."""
    way: Any = ()
    """The rounded way to w from the point before, for clients that have that point."""
    grid: Any = ()
    """The steps to which clients round their vectors, as exponents of two; (): they do not."""
    turnout: Any = ()
    """The clients that are asked (a `Turnout`); () asks all. It is not sent to clients."""


class Message(NamedTuple):
    """What a client sends. Messages of different clients add up."""

    scalars: Any
    """Numbers about the batch as a whole (values of terms)."""
    vectors: Any
    """Arrays whose last axis runs over the parameters (gradients): party i sends its own block."""


class LocalChange(NamedTuple):
    """How the change of w after local steps carries one gradient g: change = centre + unit g."""

    centre: Array
    """The change that local steps make when all gradients are 0; the server knows it too."""
    unit: Array
    """The factor of the gradient, a number."""


class Algorithm(NamedTuple):
    """One method. `reply` runs at a client, all else at the server; none has a side effect.

    Functions that take an algorithm and return one (`participation`, clipping) change what it
    does; whoever runs the rounds cannot tell the difference.
    """

    name: str
    batch: int
    """B, the number of samples that a client draws for one local step."""
    steps: int
    """E, the number of local steps in a round."""
    init: Callable[[Array], State]
    request: Callable[[State], Request]
    reply: Callable[[Terms, Request, Batch], Message]
    """Message of a client (or of one block of w) from the terms as a function of its parameters."""
    update: Callable[[State, Message], State]
    """The next state from the sum of all messages."""
    places: int = 0
    """Places for the rows of a batch that is a Poisson sample of B rows on average; 0: a batch has
    exactly B rows."""
    one_gradient: bool = False
    """A message has the means of some terms, and the gradient of one weighted sum of these means,
    which may be read from a change of w. It is then known how it is clipped."""
    reweighed: Callable[[State, Array], State] | None = None
    """Given where `update` reads the weights of the request: the state with these weights in their
    place, for a sum of messages that answer several requests (`methods/staleness.py`)."""
    apart: bool = False
    """`update` takes the messages of single clients, one row for each, instead of their sum."""
    follow: Callable[[Request, Array], Any] | None = None
    """(the request of a round, the point w that came of it) -> `average` of the next request.

    A client that answered the last round can compute it, so that it need not be sent. The server
    has it as `state.memory.average`."""
    bits: int = 32
    """The number of bits of each number in the vectors that a client sends."""


def first_state(problem: Problem, w: Array, memory: Any) -> State:
    """The state before round 1."""
    none = zeros(problem.constraints, w.dtype)
    one = first_array(1, w.dtype)
    return State(zeros((), jnp.int32), w, memory, none, none, one)


def shortened(state: State, w: Array) -> Array:
    """The way from the state to w, times the state's pace; w itself, to the last bit, at pace 1."""
    return jnp.where(state.pace < 1, state.w + state.pace * (w - state.w), w)


def publish(state: State) -> Request:
    """The usual request: the point w(t) and the number t of the round."""
    return Request(state.round + 1, state.w)
