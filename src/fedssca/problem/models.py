"""Ready-made networks, written once for both forms: scores = top(w_0, sum_i local(w_i, x_i)).

The first layer is linear in the features, so it can be divided among parties that hold columns.
With one party this is the ordinary network, with several parties the paper's vertical form.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from fedssca.errors import UserError, nearest
from fedssca.problem.constraints import Constraint, ScoreTerm, worst_parts
from fedssca.problem.pickling import portable, remembered
from fedssca.problem.problem import Array, Batch, Problem, Vertical
from fedssca.problem.scores import ScoreMeasures, assemble

__all__ = ["ACTIVATIONS", "Model", "Network", "classifier", "linear", "mlp"]

ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    "swish": jax.nn.swish,
    "relu": jax.nn.relu,
    "tanh": jnp.tanh,
    "sigmoid": jax.nn.sigmoid,
}


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

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), portable(tuple(self))

    def __deepcopy__(self, _memo: object) -> Model:
        return self


@remembered
def mlp(
    features: int,
    hidden: int,
    classes: int,
    activation: str = "swish",
    *,
    scale: float = 1.0,
    dtype: str = "float32",
) -> Model:
    """The paper's network P-J-L, no biases: scores = W_0 S(W_1 x), S(z) = z / (1 + exp(-z)).

    Weights start at N(0, 1 / fan_in). The flat vector is W_0 (L, J), then W_1 (J, P), row by row.
    """
    if activation not in ACTIVATIONS:
        raise UserError(
            f"activation = {activation!r} is unknown: {nearest(activation, ACTIVATIONS)}"
        )
    act = ACTIVATIONS[activation]

    def init(seed: int) -> tuple[Array, Array]:
        draw = np.random.default_rng(seed).standard_normal
        top, bottom = draw((classes, hidden)), draw((hidden, features))
        w0, w1 = top / np.sqrt(hidden), bottom / np.sqrt(features)
        return jnp.asarray(w0, dtype), jnp.asarray(w1, dtype)

    return Model(init, lambda w0, h: act(h) @ w0.T, scale)


@remembered
def linear(features: int, classes: int, *, scale: float = 1.0, dtype: str = "float32") -> Model:
    """Softmax regression, scores = W_1 x + w_0; with two classes logistic regression, (0, z)."""
    rows = 1 if classes == 2 else classes

    def init(seed: int) -> tuple[Array, Array]:
        del seed
        return jnp.zeros(rows, dtype), jnp.zeros((rows, features), dtype)

    def top(w0: Array, h: Array) -> Array:
        scores = h + w0
        return jnp.concatenate([jnp.zeros_like(scores), scores], axis=1) if rows == 1 else scores

    return Model(init, top, scale)


class Network(NamedTuple):
    """A ready-made network in plain values, from which it can be built again."""

    name: str
    """ "mlp" or "linear"."""
    features: int
    classes: int
    hidden: int
    """The number of hidden units; only "mlp" has them."""
    activation: str
    """The function of the hidden units."""
    scale: float
    """The factor by which inputs are multiplied."""
    dtype: str

    def model(self) -> Model:
        """The functions of the network."""
        shape: dict[str, Any] = {"scale": self.scale, "dtype": self.dtype}
        if self.name == "linear":
            return linear(self.features, self.classes, **shape)
        return mlp(self.features, self.hidden, self.classes, self.activation, **shape)


def classifier(
    model: Model,
    constraints: Sequence[Constraint] = (),
    *,
    objective: str = "loss",
    l2: float = 0.0,
    features: Sequence[np.ndarray] | None = None,
    seed: int = 0,
    sizes: Sequence[int] | None = None,
    groups: np.ndarray | None = None,
    column: str | None = None,
    titles: Sequence[str] = (),
) -> Problem:
    """min loss + l2 |w|^2 (or, objective "norm", min |w|^2) subject to `constraints`.

    Objective "worst_client" minimises the largest loss of a client, with `sizes` the numbers of
    rows of the clients (`clients.sizes`). "worst_group" minimises the largest loss of a group of
    rows with the same value in `column`; `groups` are its values in the training data. Both add
    l2 |w|^2, and the prices of the constraints `worst_...` are the weights of the clients or groups
    in the worst mixture. `titles` are the names of the clients, or of the values 0, 1, ... of the
    column, for results.

    `features` are the columns of each party, if parties hold columns. The layout of w is that of
    the whole network in both cases.
    """
    start, unravel = ravel_pytree(model.init(seed))

    def scores(w: Array, batch: Batch) -> Array:
        w0, w1 = unravel(w)
        return model.top(w0, model.local(w1, batch["x"]))

    def split(stacked: ScoreTerm, measures: ScoreMeasures) -> Vertical:
        return _split(model, stacked, measures, start, unravel, features or ())

    return assemble(
        scores,
        start,
        unravel,
        constraints,
        objective,
        l2,
        None if features is None else split,
        parts=worst_parts(objective, sizes, groups, column, titles),
        level=_chance(model, *unravel(start)),
    )


def _chance(model: Model, w0: Any, w1: Array) -> float:
    """log L, the loss if all L classes are equally likely."""
    hidden = jax.ShapeDtypeStruct((1, len(w1)), w1.dtype)
    return math.log(jax.eval_shape(model.top, w0, hidden).shape[1])


def _split(
    model: Model,
    stacked: Callable[[Array, Batch], Array],
    measures: ScoreMeasures,
    start: Array,
    unravel: Callable[[Array], tuple[Any, Array]],
    features: Sequence[np.ndarray],
) -> Vertical:
    """The vertical form: the block of party i is W_1[:, features[i]], at its positions in w."""
    positions = np.arange(start.size)
    w0, w1 = unravel(start)
    flat0, unravel0 = ravel_pytree(w0)
    places = positions[flat0.size :].reshape(w1.shape)

    def local(width: int) -> Callable[[Array, Array], Array]:
        return lambda w, x: model.local(w.reshape(-1, width), x)

    def scores(w: Array, hs: Sequence[Array]) -> Array:
        return model.top(unravel0(w), sum(hs[1:], start=hs[0]))

    return Vertical(
        locals=tuple(local(len(own)) for own in features),
        head=lambda w, hs, batch: stacked(scores(w, hs), batch),
        blocks=(positions[: flat0.size], *(places[:, own].ravel() for own in features)),
        features=tuple(features),
        linear=True,
        additive=True,
        scores=scores,
        measure=lambda w, hs, batch: measures(scores(w, hs), batch),
    )
