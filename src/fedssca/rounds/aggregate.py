"""From what the clients sent to one message.

What clients with rows answer is added up by `Sums`, in as many exchanges as that takes: `in_clear`
takes one; `privacy.secure_sum` and `privacy.homomorphic` take more, and show the server less. The
two halves of a mechanism stand together, so that they change together.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from typing import Any, NamedTuple, Protocol, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from fedssca.methods.algorithm import Algorithm, Message, Request
from fedssca.problem.problem import Array, Batch, Vertical

__all__ = [
    "Adder",
    "Answerer",
    "Arrays",
    "Ask",
    "Combine",
    "Gathered",
    "Sums",
    "blocks",
    "complete",
    "in_clear",
    "open_collection",
    "plain_sum",
    "widened",
]

Arrays: TypeAlias = dict[str, np.ndarray]
"""What one exchange sends to a client, or brings back from it: arrays by name."""

Ask: TypeAlias = Callable[[str, Mapping[int, Arrays]], Mapping[int, Any]]
"""(phase, what each client is sent) -> what came back, from those who answered.

A runtime gives it to the server's half. In the phase "reply" it adds the round's request."""


Combine: TypeAlias = Callable[[Request, Sequence[Any]], Message]
"""At the server: the request of a round, and what the clients sent -> the sum of all messages."""


def add(left: Message, right: Message) -> Message:
    """The sum of two messages, leaf by leaf; of numpy arrays it is a numpy array."""
    return jax.tree.map(operator.add, left, right)


def widened(message: Any) -> Any:
    """The message with integers of 32 bits in place of shorter ones, so that sums fit."""

    def wide(leaf: Any) -> Any:
        short = leaf.dtype.kind == "i" and leaf.dtype.itemsize < 4
        return leaf.astype(np.int32) if short else leaf

    return jax.tree.map(wide, message)


def plain_sum(request: Request, messages: Sequence[Message]) -> Message:
    """The messages, which are not encrypted, added in the order of the clients."""
    del request
    return reduce(add, messages)


class Gathered(NamedTuple):
    """The sum of messages, and the numbers of the clients whose messages it contains."""

    total: Any
    who: tuple[int, ...]
    liars: tuple[int, ...] = ()
    """The clients that have certainly sent wrong shares; the sum is right all the same."""


class Answerer(Protocol):
    """The client's half of a sum: everything that leaves the client goes through it."""

    def handle(self, phase: str, asked: Arrays, answer: Callable[[], Any]) -> Any:
        """What goes to the server; `answer` computes the client's message."""


class Adder(Protocol):
    """The server's half of a sum."""

    def gather(self, ask: Ask, asked: Sequence[int], like: Any) -> Gathered:
        """The sum of the messages of the clients that answer; `like` has a message's shapes."""


class Sums(NamedTuple):
    """Both halves of a way to add up messages."""

    client: Callable[[int], Answerer]
    """The number of a client -> its half, which serves all rounds."""
    server: Callable[[], Adder]


def complete(found: Mapping[int, Arrays], *names: str) -> dict[int, Arrays]:
    """The answers that contain all of these arrays; others count as no answer."""
    return {who: said for who, said in found.items() if set(names) <= said.keys()}


class _Open:
    def handle(self, phase: str, asked: Arrays, answer: Callable[[], Any]) -> Any:
        del phase, asked
        return answer()


class _Clear:
    def gather(self, ask: Ask, asked: Sequence[int], like: Any) -> Gathered:
        found = ask("reply", {number: {} for number in asked})
        if not found:
            nothing = jax.tree.map(lambda leaf: np.zeros(leaf.shape, leaf.dtype), like)
            return Gathered(nothing, ())
        who = tuple(number for number in asked if number in found)
        return Gathered(reduce(add, [widened(found[number]) for number in who]), who)


in_clear = Sums(client=lambda number: _Open(), server=_Clear)
"""The server gets every message as it is, and adds them in the order of the clients."""


def blocks(split: Vertical) -> Combine:
    """For parties that hold columns: one sends w_0's block and the scalars, each its own block.

    A payload is (block number -> message of that block); combining puts the blocks in their places.
    """

    def combine(request: Request, payloads: Sequence[dict[int, Message]]) -> Message:
        size = request.w.size
        parts = {block: message for payload in payloads for block, message in payload.items()}

        def place(*pieces: Array) -> Array:
            whole = jnp.zeros((*pieces[0].shape[:-1], size), pieces[0].dtype)
            for piece, positions in zip(pieces, split.blocks, strict=True):
                whole = whole.at[..., positions].set(piece)
            return whole

        in_order = [parts[block].vectors for block in range(len(split.blocks))]
        return Message(parts[0].scalars, jax.tree.map(place, *in_order))

    return combine


def open_collection(split: Vertical, algorithm: Algorithm) -> Combine:
    """One-step collection: the server itself applies the chain rule to h_i and dh_i/dw_i."""

    @jax.jit
    def combine(request: Request, payloads: Sequence[dict[str, Any]]) -> Message:
        points = [request.w[positions] for positions in split.blocks]

        def terms(w: Array, batch: Batch) -> Array:
            hs = []
            for i, (h, jacobian) in enumerate(zip(batch["h"], batch["jacobian"], strict=True)):
                own = w[split.blocks[i + 1]]
                if split.linear:
                    hs.append(split.locals[i](own, jacobian))
                else:
                    hs.append(h + jnp.einsum("bhd,d->bh", jacobian, own - points[i + 1]))
            return split.head(w[split.blocks[0]], hs, batch)

        batch: Batch = dict(payloads[0]["columns"])
        batch["h"] = [payload["h"] for payload in payloads]
        batch["jacobian"] = [payload["jacobian"] for payload in payloads]
        rows = len(payloads[0]["h"])
        batch["weight"] = jnp.full(rows, 1 / rows, request.w.dtype)
        return algorithm.reply(terms, request, batch)

    combined: Combine = combine
    return combined
