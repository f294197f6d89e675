"""Everything that runs at a client, behind one function: handle(phase, request) -> messages.

Clients that hold rows know one phase:

    reply   batch of own rows at w(t)                                   -> message to the server

Parties that hold columns go through two or three:

    share   h_i = local(w_i, x_i) of the round's batch                  -> to every peer
            (labels known to one party only: to that party; see `exchange`)
    head    the label holder: d f_k / d h_j of every sample             -> to party j
    reply   own block of the message; one party speaks for w_0 as well  -> to the server
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedssca.data.sampling import Drawn, Population, drawn_rows, words
from fedssca.methods.algorithm import Algorithm, Message, Request
from fedssca.problem.problem import Array, Batch, Problem, Terms, Vertical
from fedssca.problem.programs import once_per_problem
from fedssca.rounds.codec import InvalidMessage
from fedssca.rounds.exchange import SERVER, Exchange, Outgoing, Pairwise
from fedssca.rounds.perturb import Perturbation, unperturbed
from fedssca.rounds.roles import Roles

__all__ = ["SERVER", "ColumnClient", "OpenClient", "Outgoing", "RowClient", "for_party"]


def for_party(split: Vertical, number: int, request: Request, index: Any) -> dict[str, Any]:
    """What the server sends to party `number`: its own block of w, the top block, the batch."""
    asked = {"round": request.round, "w": request.w[split.blocks[number + 1]], "indices": index}
    return asked | {"w0": request.w[split.blocks[0]], "weights": request.weights}


@once_per_problem
def _row_message(problem: Problem, algorithm: Algorithm) -> Callable[..., Message]:
    """The statistics of one mini-batch: one program for all clients that hold rows."""

    @jax.jit
    def message(
        batch: Batch, request: Request, number: Array, weight: Array, share: Array, present: Any
    ) -> Message:
        rows = len(next(iter(batch.values())))
        weights = jnp.full(rows, weight)
        batch = batch | {"client": jnp.full(rows, number), "weight": weights}
        if present is not None:
            batch["weight"] = jnp.where(present, weights, 0)
            batch["share"] = jnp.full(rows, share)
        return algorithm.reply(problem.terms, request, batch)

    return message


@jax.jit
def _taken(rows: Batch, index: Array) -> Batch:
    """Some of the rows."""
    return {name: column[index] for name, column in rows.items()}


@cache
def _drawing(batch: int, steps: int, places: int, few: bool) -> Callable[..., Drawn]:
    """Drawing rows by the seed, one program for all clients; `few`: with few rows."""

    @jax.jit
    def draw(seed: Array, round: Array, client: Array, size: Array, side: Array) -> Drawn:
        people = Population(size, side, any_few=few, any_many=not few)
        return drawn_rows(seed, round, client, people, batch, steps, places)

    return draw


class RowClient:
    """A client that holds rows: it draws its own mini-batch and sends its weighted statistics.

    `draw` replaces the batches that the seed determines, for clients whose batches are secret.
    """

    def __init__(
        self,
        number: int,
        problem: Problem,
        algorithm: Algorithm,
        rows: Batch,
        total: int,
        seed: int,
        perturbation: Perturbation = unperturbed,
        draw: Callable[[Request], Drawn] | None = None,
    ) -> None:
        self.number = number
        self._rows = {name: jnp.asarray(column) for name, column in rows.items()}
        size = len(rows["y"]) if "y" in rows else len(next(iter(rows.values())))

        self._message, self._batch = _row_message(problem, algorithm), algorithm.batch
        people = Population.of(np.array([size]))
        drawing = _drawing(algorithm.batch, algorithm.steps, algorithm.places, people.any_few)
        place = np.array([number]), people.size, people.side

        def by_seed(request: Request) -> Drawn:
            return drawing(words(seed), request.round, *place)

        self._draw, self._part = draw or by_seed, (size, total)
        self._perturb = perturbation.client(number, size / total)

    def handle(self, phase: str, request: Request) -> Outgoing:
        """Answer a request of the server."""
        del phase
        drawn, (size, total) = self._draw(request), self._part
        index = drawn.rows[0]
        batch = _taken(self._rows, index)
        parts = size / (self._batch * total), size / (total * len(index))
        weight, share = (np.asarray(part, request.w.dtype) for part in parts)
        present = None if drawn.present is None else drawn.present[0]
        number = np.int32(self.number)
        message = self._message(batch, request, number, weight, share, present)
        return {SERVER: self._perturb(message, request)}


class ColumnClient:
    """A party that holds columns, and the labels too unless one other party alone has them."""

    def __init__(
        self,
        number: int,
        problem: Problem,
        algorithm: Algorithm,
        columns: Batch,
        roles: Roles,
        exchange: Exchange | None = None,
        perturbation: Perturbation = unperturbed,
    ) -> None:
        assert problem.vertical is not None
        self.number = number
        self._split: Vertical = problem.vertical
        self._algorithm = algorithm
        self._roles = roles
        self._columns = {name: jnp.asarray(column) for name, column in columns.items()}
        self._exchange = exchange or Pairwise(number, len(self._split.locals))
        self._slopes: Array | None = None
        self._local = jax.jit(self._split.locals[number])
        self._head = jax.jit(self._head_gradients)
        self._block = jax.jit(self._block_message, static_argnames="block")
        self._perturb = {block: perturbation.client(block, 1.0) for block in (0, number + 1)}

    def receive(self, sender: int, payload: Any) -> None:
        """Store what a peer sent in this round: its h, or the label holder's derivatives."""
        if self.number in self._roles.readers:
            self._exchange.receive(sender, payload)
        else:
            self._slopes = payload

    def handle(self, phase: str, request: dict[str, Any]) -> Outgoing:
        """Answer a request: {"round", "w": own block, "w0": top block, "weights", "indices"}."""
        step: Callable[[dict[str, Any], Batch], Outgoing] = getattr(self, f"_on_{phase}")
        index = request["indices"]
        return step(request, {name: column[index] for name, column in self._columns.items()})

    def _on_share(self, request: dict[str, Any], batch: Batch) -> Outgoing:
        self._slopes = None
        h = self._local(request["w"], batch["x"])
        return self._exchange.send(h, self._roles.readers)

    def _on_head(self, request: dict[str, Any], batch: Batch) -> Outgoing:
        if self.number != self._roles.speaker:
            return {}
        slopes = self._head(request["w0"], self._exchange.collect(), batch)
        return {peer: slope for peer, slope in enumerate(slopes) if peer != self.number}

    def _on_reply(self, request: dict[str, Any], batch: Batch) -> Outgoing:
        if self.number in self._roles.readers:
            batch["peers"] = self._exchange.collect()
        elif self._slopes is None:
            raise InvalidMessage(
                f"party {self.number} has no slopes from party {self._roles.speaker}"
            )
        else:
            batch["slopes"] = self._slopes
        blocks = [0, self.number + 1] if self.number == self._roles.speaker else [self.number + 1]
        return {SERVER: {block: self._message(request, batch, block) for block in blocks}}

    def _message(self, request: dict[str, Any], batch: Batch, block: int) -> Message:
        """The message for one block of w, perturbed where the run asks for it."""
        message = self._block(request, batch, block=block)
        return self._perturb[block](message, self._point(request, block))

    def _point(self, request: dict[str, Any], block: int) -> Request:
        w = request["w0"] if block == 0 else request["w"]
        return Request(request["round"], w, request["weights"])

    def _head_gradients(self, w0: Array, hs: list[Array], batch: Batch) -> list[Array]:
        """d f_k(n) / d h_j(n) for every party j, (B, K, H_j)."""
        values, pullback = jax.vjp(lambda hs: self._split.head(w0, hs, batch), hs)
        rows = jnp.eye(len(values), dtype=values.dtype)[:, :, None] * jnp.ones_like(values[0])
        (slopes,) = jax.vmap(pullback)(rows)
        return [jnp.moveaxis(slope, 0, 1) for slope in slopes]

    def _block_message(self, request: dict[str, Any], batch: Batch, block: int) -> Message:
        """The algorithm's message for one block of w, all other blocks held fixed."""
        rows, point = len(request["indices"]), self._point(request, block)
        batch["weight"] = jnp.full(rows, 1 / rows, point.w.dtype)
        message = self._algorithm.reply(self._terms_of(block, request), point, batch)
        return message if block == 0 else message._replace(scalars=())

    def _terms_of(self, block: int, request: dict[str, Any]) -> Terms:
        """The terms as a function of one block: exact where labels are known.

        A party without labels uses f_k(n) ~ (d f_k / d h_i)(n)' h_i(w_i, x_i(n)), which has the
        right gradient for every sample.
        """
        split, own = self._split, self.number

        def top(w0: Array, batch: Batch) -> Array:
            return split.head(w0, batch["peers"], batch)

        def bottom(w: Array, batch: Batch) -> Array:
            hs = list(batch["peers"])
            hs[own] = split.locals[own](w, batch["x"])
            return split.head(request["w0"], hs, batch)

        def linear(w: Array, batch: Batch) -> Array:
            return jnp.einsum("bkh,bh->kb", batch["slopes"], split.locals[own](w, batch["x"]))

        if block == 0:
            return top
        return bottom if own in self._roles.readers else linear


class OpenClient:
    """One-step collection (the paper's remark): a party sends h_i and dh_i/dw_i of every sample.

    This takes one message per round and no exchange between peers. But with a linear first layer
    the Jacobian IS the raw feature block, and one party sends the labels to the server: use it only
    among parties that may see each other's data.
    """

    def __init__(self, number: int, problem: Problem, columns: Batch) -> None:
        assert problem.vertical is not None
        split, local = problem.vertical, problem.vertical.locals[number]
        everything = {name: jnp.asarray(column) for name, column in columns.items()}

        @jax.jit
        def reply(everything: Batch, request: dict[str, Any]) -> dict[str, Any]:
            batch = {name: column[request["indices"]] for name, column in everything.items()}
            x = batch.pop("x")
            jacobian = x if split.linear else jax.jacrev(local)(request["w"], x)
            own = {"h": local(request["w"], x), "jacobian": jacobian}
            return own | ({"columns": batch} if number == 0 else {})

        self.number = number
        self._reply: Callable[..., dict[str, Any]] = partial(reply, everything)

    def handle(self, phase: str, request: dict[str, Any]) -> Outgoing:
        """Answer the round's request with everything the server needs."""
        del phase
        return {SERVER: self._reply(request)}
