"""Messages in 16 or 8 bits, a combinator for clients that hold rows.

*Upload.* The server publishes the exponent e of a step 2^e for every vector of a message. A client
rounds its vector v_i to integers times that step, up or down at random so that the expectation is
v_i, and sends the integers. The random numbers are a function of (seed, round, client). Every
message also has the largest |entry| of v_i before rounding, and the sum L of these numbers sets the
next step: the range is

    HEADROOM L max_i N_i / N,

the same for all clients, so that their integers add up. What lies beyond it is cut off. In the
first round no size is known, and messages are not rounded.

*Download.* The server rounds the way from w(t) to its next point to half as many bits, to the
nearest integers times a step, and adds what earlier rounds left out:

    way(t) = next(t) - w(t) + rest(t-1),  w(t+1) = w(t) + rounded way(t),  rest(t) = what is left.

Its w is the rounded point, so that clients that have w(t) get exactly the same w(t+1) from the
integers (`rounds.broadcast`). The averaged statistic of local steps follows from these points.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from fedssca.data.sampling import uniforms
from fedssca.data.split import Rows
from fedssca.errors import UserError
from fedssca.methods.algorithm import Algorithm, Message, Request, State
from fedssca.problem.problem import Array, Batch, Problem, Terms
from fedssca.rounds.rounding import EXACT, FULL, Grid, Way, exponent, on_grid, packed_way
from fedssca.rounds.shapes import round_shapes

__all__ = ["BITS", "Compressed", "compressed"]

BITS = (8, 16)
"""The numbers of bits of a number in an upload that are possible, besides 32."""
HEADROOM = 2.0
"""How much further than in the last round the range reaches, if clients are alike."""
REACH = {4: 4.0, 8: 16.0}
"""Bits of a way -> its range, in root mean squares of its entries; what lies beyond comes later."""


class Compressed(NamedTuple):
    """The memory of a method, and what the server knows of the rounding."""

    method: Any
    rest: Array
    """What rounding has left out of the ways so far."""
    way: Way
    """The way to this point."""
    grid: Grid

    @property
    def returns(self) -> Any:
        """How often the method went back after it diverged."""
        return getattr(self.method, "returns", 0)


def compressed(
    algorithm: Algorithm, problem: Problem, clients: Rows, *, bits: int, seed: int = 0
) -> Algorithm:
    """`algorithm` with messages of `bits` bits per number, and broadcasts of half as many."""
    if bits == FULL:
        return algorithm
    if bits not in BITS:
        raise UserError(f"bits = {bits}: it must be 32, 16 or 8")
    if problem.personal is not None:
        raise UserError(
            f"algorithm.bits = {bits}: parts of a model that stay at a client are trained with "
            "messages of 32 bits; leave bits out, or model.personal"
        )
    vectors = round_shapes(problem, clients, algorithm)[1].vectors
    share, down = max(clients.sizes) / clients.total, bits // 2

    def bare(state: State) -> State:
        return state._replace(memory=state.memory.method)

    def init(w: Array) -> State:
        begun, here = algorithm.init(w), jnp.zeros_like(w)
        grid = jax.tree.map(lambda v: jnp.full(v.shape[:-1], EXACT, jnp.int32), vectors)
        way = packed_way(here, jnp.zeros((), jnp.int32), down)
        return begun._replace(memory=Compressed(begun.memory, here, way, grid))

    def request(state: State) -> Request:
        asked = algorithm.request(bare(state))
        return asked._replace(way=state.memory.way, grid=state.memory.grid)

    def reply(terms: Terms, asked: Request, data: Batch) -> Message:
        message = algorithm.reply(terms, asked, data)
        number, leaves = data["client"][0], iter(range(len(jax.tree.leaves(vectors))))

        def rounded(v: Array, e: Array) -> Array:
            draws = uniforms(seed, asked.round, number, next(leaves), v.size).reshape(v.shape)
            near = on_grid(v, e[..., None], bits, draws.astype(v.dtype))
            return jnp.where(e[..., None] == EXACT, v, near)

        largest = jax.tree.map(lambda v: jnp.abs(v).max(-1), message.vectors)
        return Message(
            (message.scalars, largest), jax.tree.map(rounded, message.vectors, asked.grid)
        )

    def update(state: State, total: Message) -> State:
        scalars, largest = total.scalars
        after = algorithm.update(bare(state), Message(scalars, total.vectors))
        way = after.w - state.w + state.memory.rest
        reach = REACH[down] * jnp.sqrt(jnp.mean(jnp.square(way)))
        e = exponent(jnp.minimum(jnp.abs(way).max(), reach), down)
        step = on_grid(way, e, down, 0.5)
        w, method = state.w + step, after.memory
        if algorithm.follow is not None:
            average = algorithm.follow(algorithm.request(bare(state)), w)
            # After a return to an earlier point w moves only a part of the way.
            average = jnp.where(state.pace < 1, method.average, average)
            method = method._replace(average=average)
        grid = jax.tree.map(lambda each: exponent(HEADROOM * share * each, bits), largest)
        return after._replace(
            w=w, memory=Compressed(method, way - step, packed_way(step, e, down), grid)
        )

    return algorithm._replace(init=init, request=request, reply=reply, update=update, bits=bits)
