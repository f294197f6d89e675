"""Ready-made networks, alone and for the columns of parties, and the problem of a classifier."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedssca.errors import UserError
from fedssca.problem.constraints import Constraint, ScoreTerm, worst_parts
from fedssca.problem.forms import AnyModel, DividedModel, JoinedModel, Model
from fedssca.problem.layers import ACTIVATIONS, Dense, apply_stack
from fedssca.problem.pickling import remembered
from fedssca.problem.problem import Array, Batch, Problem, Vertical
from fedssca.problem.scores import ScoreMeasures, assemble, layers
from fedssca.problem.stacks import (
    Filters,
    Join,
    Stacks,
    Style,
    dense_stacks,
    party_stacks,
)
from fedssca.problem.starts import first_array, flattened
from fedssca.problem.tasks import CLASSIFICATION, Task

__all__ = [
    "classifier",
    "cnn",
    "divisible",
    "joined",
    "linear",
    "mlp",
    "party_mlp",
    "vertical_form",
]


@remembered
def mlp(
    features: int,
    hidden: int | Sequence[int],
    classes: int,
    activation: str = "swish",
    *,
    biases: bool | None = None,
    layer_norm: bool = False,
    scale: float = 1.0,
    dtype: str = "float32",
) -> Model:
    """A network of dense layers; with a number J of hidden units the paper's network P-J-L.

    The paper's network has no biases: scores = W_0 S(W_1 x), S(z) = z / (1 + exp(-z)). Its weights
    start at N(0, 1 / fan_in), and the flat vector is W_0 (L, J), then W_1 (J, P), row by row.

    A list of hidden units gives one layer for each entry, with biases unless `biases` is false, and
    with a LayerNorm before every activation if `layer_norm` is true. The flat vector is everything
    above the first layer, then W_1.
    """
    _check_widths(features=features, classes=classes)
    if isinstance(hidden, int):
        _check_widths(hidden=hidden)
    paper = isinstance(hidden, int) and not biases and not layer_norm
    style = Style.of(activation, not paper if biases is None else biases, layer_norm)
    if not isinstance(hidden, int) or not paper:
        return divisible(dense_stacks(features, hidden, classes, style, scale, dtype))
    act, shape = ACTIVATIONS[activation], (classes, hidden)

    def init(seed: int) -> tuple[Array, Array]:
        draw = np.random.default_rng(seed).standard_normal
        top, bottom = draw(shape), draw((hidden, features))
        w0, w1 = top / np.sqrt(hidden), bottom / np.sqrt(features)
        return first_array(w0, dtype), first_array(w1, dtype)

    return Model(init, lambda w0, h: act(h) @ w0.T, scale)


@remembered
def linear(
    features: int,
    classes: int,
    *,
    scale: float = 1.0,
    dtype: str = "float32",
    exclusive: bool = True,
) -> Model:
    """Softmax regression, scores = W_1 x + w_0; with two classes logistic regression, (0, z).

    With `classes` = 1 there is one score, which predicts a number. Scores of several labels at once
    are not `exclusive`: each of two has its own.
    """
    _check_widths(features=features, classes=classes)
    two = classes == 2 and exclusive
    rows = 1 if two else classes

    def init(seed: int) -> tuple[Array, Array]:
        del seed
        return first_array(np.zeros(rows), dtype), first_array(np.zeros((rows, features)), dtype)

    def top(w0: Array, h: Array) -> Array:
        scores = h + w0
        return scores if not two else jnp.concatenate([jnp.zeros_like(scores), scores], axis=1)

    return Model(init, top, scale)


def _check_widths(**widths: int) -> None:
    """Raise a UserError about a number of features, units or classes below 1."""
    for name, width in widths.items():
        if width < 1:
            raise UserError(f"{name} = {width}: it must be at least 1")


def party_mlp(
    parties: Sequence[Sequence[int]],
    bottom: Sequence[int] | Sequence[Sequence[int]],
    hidden: int | Sequence[int],
    classes: int,
    activation: str = "swish",
    *,
    join: Join = "sum",
    biases: bool = True,
    layer_norm: bool = False,
    scale: float = 1.0,
    dtype: str = "float32",
) -> JoinedModel:
    """A network of dense layers for each party, and a head: scores = head(join_i bottom_i(x_i)).

    `parties` are the columns of each party, and `bottom` the widths of the layers of its network:
    one list for all of them, or one list for each. The last of these layers is linear. The outputs
    h_i are added or concatenated; the head adds biases, applies the activation and has the hidden
    layers `hidden`.

    >>> model = party_mlp([[0, 1], [2, 3, 4]], [8, 4], [16], 2)
    >>> sum(leaf.size for leaf in jax.tree.leaves(model.init(0)))
    238
    """
    style = Style.of(activation, biases, layer_norm)
    return joined(party_stacks(parties, bottom, hidden, classes, join, style, scale, dtype))


def cnn(
    image: Sequence[int],
    classes: int,
    channels: Sequence[int] = (16, 32),
    hidden: int | Sequence[int] = (128,),
    activation: str = "swish",
    *,
    kernel: int = 3,
    pool: int = 2,
    pooling: str = "max",
    parties: Sequence[Sequence[int]] | None = None,
    bottom: Sequence[int] | Sequence[Sequence[int]] = (),
    join: Join = "concatenate",
    biases: bool = True,
    layer_norm: bool = False,
    scale: float = 1.0,
    dtype: str = "float32",
) -> JoinedModel:
    """A convolutional network for images of the shape (height, width) or (height, width, channels).

    Each entry of `channels` is a convolution with so many kernels of kernel x kernel, an activation
    and pooling over squares of pool x pool. Dense layers with the widths `hidden` follow. If
    parties hold parts of every image, `parties` are their columns: each party has convolutions of
    its own, and dense layers of the widths `bottom` if these are given, before the join.
    """
    filters = Filters.of(image, channels, kernel, pool, pooling)
    places = [range(math.prod(filters.image))] if parties is None else parties
    style = Style.of(activation, biases, layer_norm)
    return joined(party_stacks(places, bottom, hidden, classes, join, style, scale, dtype, filters))


@remembered
def divisible(stacks: Stacks) -> Model:
    """The model of stacks with one bottom that is one layer without biases."""
    ((first,),) = stacks.bottoms
    assert isinstance(first, Dense)

    def init(seed: int) -> tuple[Any, Array]:
        head, (((weights,),),) = stacks.init(seed)
        return head, weights

    return Model(init, lambda w0, h: apply_stack(stacks.head, w0, h), stacks.scale)


@remembered
def joined(stacks: Stacks) -> JoinedModel:
    """The model of stacks with one bottom for each party."""

    def bottom(number: int) -> Callable[[Any, Array], Array]:
        layers = stacks.bottoms[number]

        def applied(values: Any, x: Array) -> Array:
            return apply_stack(layers, values, x.astype(stacks.dtype) * stacks.scale)

        return applied

    def head(w0: Any, hs: Sequence[Array]) -> Array:
        added = stacks.join == "sum"
        joined = sum(hs[1:], start=hs[0]) if added else jnp.concatenate(list(hs), axis=1)
        return apply_stack(stacks.head, w0, joined)

    return JoinedModel(
        stacks.init,
        tuple(bottom(number) for number in range(len(stacks.bottoms))),
        head,
        stacks.parties,
        stacks.join == "sum",
    )


def classifier(
    model: AnyModel,
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
    task: Task = CLASSIFICATION,
) -> Problem:
    """min loss + l2 |w|^2 (or, objective "norm", min |w|^2) subject to `constraints`.

    Objective "worst_client" minimises the largest loss of a client, with `sizes` the numbers of
    rows of the clients (`clients.sizes`). "worst_group" minimises the largest loss of a group of
    rows with the same value in `column`; `groups` are its values in the training data. Both add
    l2 |w|^2, and the prices of the constraints `worst_...` are the weights of the clients or groups
    in the worst mixture. `titles` are the names of the clients, or of the values 0, 1, ... of the
    column, for results.

    `task` says what the scores mean: classes, or a number (`regression`), for which the model has
    one score.

    `features` are the columns of each party, if parties hold columns. The layout of w is that of
    the whole network in both cases.
    """
    params = model.init(seed)
    start, unravel = flattened(params)

    def scores(w: Array, batch: Batch) -> Array:
        _check_features(model, params, batch["x"].shape[-1])
        return model.apply(unravel(w), batch["x"])

    def split(stacked: ScoreTerm, measures: ScoreMeasures) -> Vertical:
        return vertical_form(
            model.divided(params, features or ()), stacked, measures, features or ()
        )

    return assemble(
        scores,
        start,
        unravel,
        constraints,
        objective,
        l2,
        None if features is None else split,
        parts=worst_parts(objective, sizes, groups, column, titles),
        level=task.level(_outputs(model, params)),
        depth=getattr(model, "depth", 0) or depth_of(params),
        task=task,
    )


def _check_features(model: AnyModel, params: Any, features: int) -> None:
    """Raise a UserError unless rows with so many features are what the model takes.

    The parties of a joined model may leave columns out.
    """
    if isinstance(model, JoinedModel):
        needed = 1 + max(place for own in model.parties for place in own)
    else:
        needed = model.width(params)
    if features < needed or (features > needed and not isinstance(model, JoinedModel)):
        raise UserError(f"the rows have {features} features, and the model takes {needed}")


def depth_of(params: Any) -> int:
    """The number of layers with weights from x to the scores: in the head, and in one bottom."""
    head, rest = params
    parts = rest if isinstance(rest, list) else [rest]

    return layers(head) + max(map(layers, parts))


def _outputs(model: AnyModel, params: Any) -> int:
    """L, the number of scores."""
    rows = jax.ShapeDtypeStruct((1, model.width(params)), jnp.float32)
    return int(jax.eval_shape(model.apply, params, rows).shape[1])


def vertical_form(
    parts: DividedModel,
    stacked: Callable[[Array, Batch], Array],
    measures: ScoreMeasures,
    features: Sequence[np.ndarray],
) -> Vertical:
    """The vertical form of the problem, from that of the model."""
    scores = parts.scores
    return Vertical(
        locals=parts.locals,
        head=lambda w, hs, batch: stacked(scores(w, hs), batch),
        blocks=parts.blocks,
        features=tuple(features),
        linear=parts.linear,
        additive=parts.additive,
        scores=scores,
        measure=lambda w, hs, batch: measures(scores(w, hs), batch),
    )
