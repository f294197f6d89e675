"""Gradients of single samples, clipped and added up without being held.

Weights meet data at few places of a network: out = F(v, z) with v some entries of w as they are,
such as a matrix, and z what the network computed of a sample before. The gradient of the sample in
v follows from z and the gradient d in out. For a matrix product out = z v' of one row it is d z',
and its length is known without it:

    |d z'|^2 = |d|^2 |z|^2.

So one pass back to all d gives the length of every sample's gradient, and the clipped sum is one
more product for each v: that of the same d, each times its factor. For everything else, such as
the kernels of a convolution, the gradients of v alone are held for a moment. Where this cannot be
done (weights that are used twice, or in a loop) or would save little, `places` finds nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr, JaxprEqn

from fedssca.problem.problem import Array, Batch, Terms
from fedssca.problem.tracing import bind, called, shape_of, walk

__all__ = ["Meeting", "Tapped", "places", "shrink", "tapped"]

REARRANGING = {"broadcast_in_dim", "concatenate", "convert_element_type", "copy", "expand_dims"}
REARRANGING |= {"reshape", "rev", "slice", "split", "squeeze", "transpose"}
"""What may be done to entries of w before they meet data: each is moved, repeated or left out."""


class Unsuited(Exception):
    """The terms use weights in a way that needs the gradients of single samples."""


class Value(NamedTuple):
    """A value while terms are computed; `where` has the positions in w, if it is entries of w."""

    x: Any
    where: np.ndarray | None = None


class Meeting(NamedTuple):
    """A place where weights meet data, for one sample."""

    equation: JaxprEqn
    side: int
    """Which operand the weights are."""
    shape: tuple[int, ...]
    """The shape of the output."""
    dtype: Any
    where: np.ndarray
    """The position in w of every weight."""

    def apply(self, weights: Array, data: Sequence[Array]) -> Array:
        """out = F(v, z)."""
        given = [*data[: self.side], weights, *data[self.side :]]
        (out,) = bind(self.equation, given)
        return out

    @property
    def held(self) -> int:
        """How many numbers of a sample's gradient are held; 0 if its length is known without."""
        return 0 if self._is_row() else self.where.size

    def _is_row(self) -> bool:
        """A matrix product with one row."""
        if self.equation.primitive.name != "dot_general" or self._repeats():
            return False
        (contract, batch), data = self.equation.params["dimension_numbers"], 1 - self.side
        shape = shape_of(self.equation.invars[data]).shape
        free = [size for axis, size in enumerate(shape) if axis not in contract[data]]
        return not batch[0] and math.prod(free) == 1

    def _repeats(self) -> bool:
        return np.unique(self.where).size < self.where.size

    def gradient(self, weights: Array, data: Sequence[Array], slope: Array) -> Array:
        """The gradient of one sample in the weights, from the gradient in the output."""
        (slopes,) = jax.vjp(lambda v: self.apply(v, data), weights)[1](slope)
        return slopes

    def square(self, gradient: Array) -> Array:
        """|g|^2 of one sample's gradient in these entries of w; repeated ones add up first."""
        flat = gradient.reshape(-1)
        if self._repeats():
            entries, whose = np.unique(self.where, return_inverse=True)
            flat = jnp.zeros(entries.size, flat.dtype).at[whose.reshape(-1)].add(flat)
        return flat @ flat


Meet: TypeAlias = Callable[[JaxprEqn, int, list[Value]], Any]
"""What to compute where weights (the operand with this number) meet data."""


class Tapped(NamedTuple):
    """Terms with the places where weights meet data."""

    program: ClosedJaxpr
    places: tuple[Meeting, ...]

    @property
    def held(self) -> int:
        """How many numbers of a sample's gradient are held at a time."""
        return sum(place.held for place in self.places)

    def weights(self, w: Array, sample: Batch) -> list[Array]:
        """The weights of all places; the sample gives shapes only."""
        found: list[Array] = []

        def meet(equation: JaxprEqn, side: int, given: list[Value]) -> Any:
            found.append(given[side].x)
            return bind(equation, [value.x for value in given])

        _terms(self.program, w, sample, meet)
        return found

    def run(
        self, w: Array, weights: Sequence[Array], sample: Batch, taps: Sequence[Array]
    ) -> tuple[Array, list[list[Array]]]:
        """The terms of a sample with `taps` added to the outputs of all places; and their z."""
        data: list[list[Array]] = []

        def meet(equation: JaxprEqn, side: int, given: list[Value]) -> Any:
            number = len(data)
            data.append([value.x for place, value in enumerate(given) if place != side])
            return [self.places[number].apply(weights[number], data[number]) + taps[number]]

        return _terms(self.program, w, sample, meet), data


def places(terms: Terms, w: Array, sample: Batch) -> Tapped | None:
    """The terms of one sample, if the length of its gradient follows from where weights meet data.

    `sample` is a batch of one row with the weight 1, without its first axis; shapes are enough.
    """
    found: list[Meeting] = []

    def alone(point: Array, row: Batch) -> Array:
        return terms(point, jax.tree.map(lambda leaf: leaf[None], row))[:, 0]

    def meet(equation: JaxprEqn, side: int, given: list[Value]) -> Any:
        where = given[side].where
        assert where is not None
        if len(equation.outvars) != 1:
            raise Unsuited
        out = shape_of(equation.outvars[0])
        found.append(Meeting(equation, side, out.shape, out.dtype, where))
        return bind(equation, [value.x for value in given])

    program = jax.make_jaxpr(alone)(w, sample)
    try:
        jax.eval_shape(lambda point, row: _terms(program, point, row, meet), w, sample)
    except Unsuited:
        return None
    used = np.concatenate([np.unique(place.where) for place in found] or [np.zeros(0, int)])
    model = Tapped(program, tuple(found))
    return model if np.unique(used).size == used.size and 2 * model.held < w.size else None


def tapped(model: Tapped, bound: float, value_bound: float) -> Terms:
    """The terms of `model` whose gradients are sums of clipped ones, and whose values are clipped.

    The gradient of sum_n weight_n f_n is sum_n weight_n g_n min(1, bound / |g_n|). It must be asked
    for once, with factors of the samples that are their weights times numbers common to all.
    """

    @jax.custom_vjp
    def terms(w: Array, batch: Batch) -> Array:
        return forward(w, batch)[0]

    def forward(w: Array, batch: Batch) -> tuple[Array, Any]:
        first = jax.tree.map(lambda leaf: leaf[0], batch)
        weights, back = jax.vjp(lambda point: model.weights(point, first), w)
        taps = [jnp.zeros((len(batch["weight"]), *p.shape), p.dtype) for p in model.places]

        def some(added: Sequence[Array]) -> tuple[Array, Any]:
            return jax.vmap(lambda row, tap: model.run(w, weights, row, tap))(batch, added)

        values, pullback, data = jax.vjp(some, taps, has_aux=True)
        kept = jnp.clip(values.T, -value_bound, value_bound)
        return kept, (weights, back, pullback, data, batch["weight"])

    def backward(kept: Any, asked: Array) -> tuple[Array, None]:
        weights, back, pullback, data, weight = kept
        (slopes,) = pullback(asked.T)
        squares, single = jnp.zeros(len(weight), asked.dtype), []
        for place, own, z, slope in zip(model.places, weights, data, slopes, strict=True):
            found, gradients = _squares(place, own, z, slope)
            squares += found
            single.append(gradients)
        factor = shrink(squares, bound * weight)
        sums = [
            _summed(*whole, factor)
            for whole in zip(model.places, weights, data, slopes, single, strict=True)
        ]
        return back(sums)[0], None

    terms.defvjp(forward, backward)
    return terms


def shrink(squares: Array, bound: float | Array) -> Array:
    """min(1, bound / length) from squared lengths; a length of 0 stays as it is."""
    tiny = np.finfo(squares.dtype).tiny
    return jnp.minimum(1, bound * jax.lax.rsqrt(jnp.maximum(squares, tiny)))


def _squares(
    place: Meeting, weights: Array, data: Sequence[Array], slopes: Array
) -> tuple[Array, Array | None]:
    """|g|^2 of every sample in the weights of a place, and the g where they are held."""
    if not place.held:
        (z,) = data
        rows = [leaf.reshape(len(leaf), -1) for leaf in (z, slopes)]
        one, other = (jnp.einsum("nd,nd->n", leaf, leaf) for leaf in rows)
        return one * other, None
    gradients = jax.vmap(lambda z, d: place.gradient(weights, z, d))(data, slopes)
    return jax.vmap(place.square)(gradients), gradients


def _summed(
    place: Meeting,
    weights: Array,
    data: Sequence[Array],
    slopes: Array,
    gradients: Array | None,
    factor: Array,
) -> Array:
    """sum_n factor_n g_n in the weights of a place."""
    if gradients is not None:
        return jnp.tensordot(factor, gradients, 1)
    whole = jax.vjp(lambda v: jax.vmap(lambda z: place.apply(v, z))(data), weights)[1]
    (total,) = whole(slopes * factor.reshape(-1, *[1] * (slopes.ndim - 1)))
    return total


def _terms(program: ClosedJaxpr, w: Array, sample: Batch, meet: Meet) -> Array:
    """Compute a traced program; `meet` computes where entries of w meet data."""
    flat = [Value(leaf) for leaf in jax.tree.leaves(sample)]
    inputs = [Value(w, np.arange(w.size)), *flat]
    (out,) = walk(program, inputs, partial(_step, meet), Value)
    if out.where is not None:
        raise Unsuited
    return out.x


def _step(meet: Meet, equation: JaxprEqn, given: list[Value]) -> list[Value]:
    name = equation.primitive.name
    own = [side for side, value in enumerate(given) if value.where is not None]
    if not own:
        return [Value(x) for x in bind(equation, [value.x for value in given])]
    if (inner := called(equation)) is not None:
        return walk(inner, given, partial(_step, meet), Value)
    if len(own) == len(given) and name in REARRANGING:
        with jax.ensure_compile_time_eval():
            moved = bind(_integers(equation), [jnp.asarray(value.where) for value in given])
        made = bind(equation, [value.x for value in given])
        return [Value(x, np.asarray(at)) for x, at in zip(made, moved, strict=True)]
    if len(own) > 1:
        raise Unsuited
    return [Value(x) for x in meet(equation, own[0], given)]


def _integers(equation: JaxprEqn) -> JaxprEqn:
    """The same for positions: a change of the number format leaves them as they are."""
    if "new_dtype" not in equation.params:
        return equation
    return equation.replace(params={**equation.params, "new_dtype": np.dtype("int32")})
