"""The two forms of networks that give scores: one that can be divided, and one for each party.

A `Model` has a first layer that is linear in the features, so that it can be divided among any
parties that hold columns: scores = top(w_0, sum_i local(w_i, x_i)). With one party this is the
ordinary network, with several parties the paper's vertical form. A `JoinedModel` has a network of
its own for each party: scores = head(w_0, (h_i)_i), h_i = bottoms[i](w_i, x_i).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from fedssca.errors import UserError
from fedssca.problem.pickling import portable
from fedssca.problem.problem import Array
from fedssca.problem.stacks import Places

__all__ = ["AnyModel", "DividedModel", "JoinedModel", "Model"]


class DividedModel(NamedTuple):
    """A model for parties that hold columns; the names are those of `Vertical`."""

    locals: tuple[Callable[[Array, Array], Array], ...]
    scores: Callable[[Array, Sequence[Array]], Array]
    blocks: tuple[np.ndarray, ...]
    linear: bool
    additive: bool


class Model(NamedTuple):
    """A network with first layer W_1 (H, P), scaled inputs, and a top with parameters w_0."""

    init: Callable[[int], tuple[Any, Array]]
    """seed -> (w_0, W_1)."""
    top: Callable[[Any, Array], Array]
    """(w_0, h (B, H)) -> scores (B, L)."""
    scale: float
    """The factor by which inputs are multiplied, so that images can stay uint8 in memory."""

    def local(self, weights: Array, x: Array) -> Array:
        """h = scale * x W_1' for all columns, or for the columns of one party."""
        return (x.astype(weights.dtype) * self.scale) @ weights.T

    def apply(self, params: tuple[Any, Array], x: Array) -> Array:
        """The scores (B, L) of rows x with all columns."""
        w0, w1 = params
        return self.top(w0, self.local(w1, x))

    def width(self, params: Any) -> int:
        """The number of columns of x."""
        return int(params[1].shape[1])

    def divided(self, start: Any, features: Sequence[np.ndarray]) -> DividedModel:
        """The block of party i is W_1[:, features[i]], at its positions in w."""
        w0, w1 = start
        flat0, unravel0 = ravel_pytree(w0)
        positions = np.arange(flat0.size + w1.size)
        places = positions[flat0.size :].reshape(w1.shape)

        def local(width: int) -> Callable[[Array, Array], Array]:
            return lambda w, x: self.local(w.reshape(-1, width), x)

        return DividedModel(
            locals=tuple(local(len(own)) for own in features),
            scores=lambda w, hs: self.top(unravel0(w), sum(hs[1:], start=hs[0])),
            blocks=(positions[: flat0.size], *(places[:, own].ravel() for own in features)),
            linear=True,
            additive=True,
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), portable(tuple(self))

    def __deepcopy__(self, _memo: object) -> Model:
        return self


class JoinedModel(NamedTuple):
    """A network for the columns of each party, and a head that joins what they give.

    With one party that has all columns it is any network at all.
    """

    init: Callable[[int], tuple[Any, Sequence[Any]]]
    """seed -> (w_0, (w_1, ..., w_I)), each of which may be any pytree."""
    bottoms: tuple[Callable[[Any, Array], Array], ...]
    """(w_i, x_i) -> h_i (B, H_i), one function for each party."""
    head: Callable[[Any, Sequence[Array]], Array]
    """(w_0, (h_i)_i) -> scores (B, L)."""
    parties: Places
    """The places of the columns of each party."""
    additive: bool = False
    """Whether the head depends on the h_i only through their sum, so that the sum is enough."""
    depth: int = 0
    """The number of layers from x to the scores, if w_i are flat vectors that do not tell it."""

    def apply(self, params: tuple[Any, Sequence[Any]], x: Array) -> Array:
        """The scores (B, L) of rows x with all columns."""
        w0, own = params
        parts = [x] if self.parties == (tuple(range(x.shape[1])),) else self._parts(x)
        return self.head(
            w0, [h(w, part) for h, w, part in zip(self.bottoms, own, parts, strict=True)]
        )

    def _parts(self, x: Array) -> list[Array]:
        return [x[:, np.array(places)] for places in self.parties]

    def width(self, params: Any) -> int:
        """The number of columns of x."""
        del params
        return sum(map(len, self.parties))

    def divided(self, start: Any, features: Sequence[np.ndarray]) -> DividedModel:
        """The blocks of w lie one after the other: w_0, then those of the parties.

        A party may have several of the networks, whose columns together are its own. Its h_i are
        their outputs side by side, or the sum of them if the head needs no more.
        """
        given = tuple(tuple(map(int, own)) for own in features)
        owned = _owned(self.parties, given)
        if owned is None and len(self.parties) == 1:
            raise UserError(
                "the model is one function of all columns, which parties that hold columns cannot "
                "divide: make a fedssca Model or a JoinedModel, or let the clients hold rows"
            )
        if owned is None:
            told = ", ".join(str(len(own)) for own in self.parties)
            held = ", ".join(str(len(own)) for own in given)
            raise UserError(
                f"the networks of the parties are made for {told} columns, the parties hold {held}:"
                " make one network for the columns of each party"
            )
        return self._divided(start, given, owned)

    def _divided(self, start: Any, given: Places, owned: Sequence[Sequence[int]]) -> DividedModel:
        """The parties have the columns `given` and the networks with the numbers `owned`."""
        flats = [ravel_pytree(part) for part in (start[0], *start[1])]
        sizes = [flat.size for flat, _ in flats]
        places = np.split(np.arange(sum(sizes)), np.cumsum(sizes)[:-1])
        unravels = [unravel for _, unravel in flats]

        def local(party: int) -> Callable[[Array, Array], Array]:
            own, held = owned[party], list(given[party])
            ends = np.cumsum([sizes[number + 1] for number in own])[:-1]
            columns = [np.array([held.index(p) for p in self.parties[n]]) for n in own]

            def all_of(w: Array, x: Array) -> Array:
                if len(own) == 1:
                    return self.bottoms[own[0]](unravels[own[0] + 1](w), x)
                hs = [
                    self.bottoms[number](unravels[number + 1](part), x[:, places])
                    for number, part, places in zip(own, jnp.split(w, ends), columns, strict=True)
                ]
                return sum(hs[1:], start=hs[0]) if self.additive else jnp.concatenate(hs, axis=1)

            return all_of

        def scores(w: Array, hs: Sequence[Array]) -> Array:
            if self.additive or all(len(own) == 1 for own in owned):
                return self.head(unravels[0](w), hs)
            apart: dict[int, Array] = {}
            for own, h in zip(owned, hs, strict=True):
                ends = np.cumsum([self._outputs(start, number) for number in own])[:-1]
                apart |= dict(zip(own, jnp.split(h, ends, axis=1), strict=True))
            return self.head(unravels[0](w), [apart[number] for number in sorted(apart)])

        blocks = [np.concatenate([places[number + 1] for number in own]) for own in owned]
        return DividedModel(
            locals=tuple(local(party) for party in range(len(given))),
            scores=scores,
            blocks=(places[0], *blocks),
            linear=False,
            additive=self.additive,
        )

    def _outputs(self, start: Any, number: int) -> int:
        """The number of outputs of a bottom."""
        rows = jax.ShapeDtypeStruct((1, len(self.parties[number])), np.float32)
        return int(jax.eval_shape(self.bottoms[number], start[1][number], rows).shape[1])

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), portable(tuple(self))

    def __deepcopy__(self, _memo: object) -> JoinedModel:
        return self


def _owned(networks: Places, parties: Places) -> list[list[int]] | None:
    """The numbers of the networks of each party; None if they do not fit the columns of parties."""
    if networks == parties:
        return [[number] for number in range(len(networks))]
    owned = [
        [number for number, columns in enumerate(networks) if set(columns) <= set(own)]
        for own in parties
    ]
    for own, columns in zip(owned, parties, strict=True):
        held = [place for number in own for place in networks[number]]
        if sorted(held) != sorted(columns) or (len(own) == 1 and tuple(held) != columns):
            return None
    return owned if sum(map(len, owned)) == len(networks) else None


AnyModel: TypeAlias = Model | JoinedModel
