"""The seam between methods and the loop: an Algorithm is a small tuple of pure functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp

from fedssca.problem.problem import Array, Batch, Problem, Terms

__all__ = [
    "Algorithm",
    "Cohort",
    "Frame",
    "Message",
    "Noise",
    "Request",
    "State",
    "Turnout",
    "start",
]


class State(NamedTuple):
    """What the server keeps between rounds; all of it goes into a checkpoint."""

    round: Array
    """Updates done: the coming round is t = round + 1."""
    w: Array
    memory: Any
    """The method's own: running averages, penalty stage, ..."""
    slack: Array
    multipliers: Array


class Turnout(NamedTuple):
    """Who is asked in a round, and who of them answers."""

    asked: Array
    answers: Array


class Request(NamedTuple):
    """What the server publishes at the start of a round."""

    round: Array
    """t = 1, 2, ..."""
    w: Array
    """The point w(t); a party that holds columns gets its own block only."""
    weights: Any = ()
    """Weights of F_0..F_M in the one gradient that is wanted; none: a gradient for every term."""
    average: Any = ()
    """The server's averaged statistic, where local steps need it to start from."""
    turnout: Any = ()
    """The clients whom this is for (a `Turnout`); none: all. It stays at the server."""


class Message(NamedTuple):
    """What a client sends. Messages of different clients add up."""

    scalars: Any
    """Numbers about the batch as a whole (values of terms)."""
    vectors: Any
    """Arrays whose last axis runs over the parameters (gradients): party i sends its own block."""


class Frame(NamedTuple):
    """How a message that says where a client went carries a gradient g: centre + unit g."""

    centre: Array
    """Where a client goes whose gradients are all 0; the server knows it too."""
    unit: Array


class Noise(NamedTuple):
    """What hides a unit in a round: every runtime adds it, from a source of its own."""

    scalar: float
    """Standard deviation on values, for a unit that weighs 1;"""
    vector: float
    """and on gradients."""
    own: Callable[[Any], Any]
    """N_i / N -> what client i's noise counts: how heavy a unit is in what is seen of it."""
    ledger: Any
    """What is spent of privacy: see `privacy.accountant`."""


class Cohort(NamedTuple):
    """So many of so many clients are asked in a round."""

    size: int
    clients: int


class Algorithm(NamedTuple):
    """One method. `reply` runs at a client, all else at the server; none has a side effect."""

    name: str
    batch: int
    """B, the samples that a client draws for one local step."""
    steps: int
    """E, the local steps in a round."""
    init: Callable[[Array], State]
    request: Callable[[State], Request]
    reply: Callable[[Terms, Request, Batch], Message]
    """Message of a client (or of one block of w) from the terms as a function of its parameters."""
    update: Callable[[State, Message], State]
    """The next state from the sum of all messages."""
    cohort: Cohort | None = None
    """Set where not all clients take part: see `participation`."""
    frame: Callable[[Request], Frame] | None = None
    """Set where clients send a change of w in place of a gradient."""
    whole: bool = False
    """The message is no sum over samples, even with one step."""
    noise: Noise | None = None
    """Set where messages are hidden: see `privacy.noise`."""

    @property
    def pooled(self) -> bool:
        """With one step the message is a sum over samples: a simulator may join all batches."""
        return self.steps == 1 and not self.whole


def start(problem: Problem, w: Array, memory: Any) -> State:
    """The state before round 1."""
    none = jnp.zeros(problem.constraints, w.dtype)
    return State(jnp.zeros((), jnp.int32), w, memory, none, none)


def publish(state: State) -> Request:
    """The usual request: the point w(t) and the number t of the round."""
    return Request(state.round + 1, state.w)
