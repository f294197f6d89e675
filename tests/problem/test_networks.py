"""Ready-made networks: parties compute what the whole network does, and gradients are right."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedssca import UserError, classifier, cnn, linear, mlp, party_mlp
from fedssca.problem.forms import AnyModel
from fedssca.problem.networks import Network

pytestmark = pytest.mark.usefixtures("float64")

SIDE, CLASSES, ROWS = 6, 3, 5
PARTS = [np.arange(18), np.arange(18, 36)]
"""The upper and the lower half of an image of 6 x 6."""
DOUBLE: dict[str, Any] = {"dtype": "float64"}
MODELS: dict[str, Callable[[], AnyModel]] = {
    "paper": lambda: mlp(36, 4, CLASSES, **DOUBLE),
    "linear": lambda: linear(36, CLASSES, **DOUBLE),
    "linear, two classes": lambda: linear(36, 2, **DOUBLE),
    "deep": lambda: mlp(36, [5, 4], CLASSES, **DOUBLE),
    "deep, no biases": lambda: mlp(36, [5, 4, 3], CLASSES, "tanh", biases=False, **DOUBLE),
    "layer norm": lambda: mlp(36, [5, 4], CLASSES, layer_norm=True, scale=0.5, **DOUBLE),
    "bottoms": lambda: party_mlp(PARTS, [5, 4], [6], CLASSES, **DOUBLE),
    "own bottoms": lambda: party_mlp(
        PARTS, [[5, 4], [3]], 6, CLASSES, "sigmoid", join="concatenate", layer_norm=True, **DOUBLE
    ),
    "cnn halves": lambda: cnn((SIDE, SIDE), CLASSES, [2, 3], [4], pool=1, parties=PARTS, **DOUBLE),
    "cnn sums": lambda: cnn(
        (SIDE, SIDE),
        CLASSES,
        [2],
        [],
        pooling="mean",
        parties=PARTS,
        bottom=[4],
        join="sum",
        **DOUBLE,
    ),
}
rng = np.random.default_rng(1)
BATCH = {"x": rng.normal(size=(ROWS, 36)), "y": np.array([0, 1, 1, 0, 1])}


@pytest.mark.parametrize("name", MODELS)
def test_parties_compute_the_whole_network(name: str) -> None:
    """Terms and gradients of the divided network are those of the whole one to 1e-10."""
    problem = classifier(MODELS[name](), l2=0.1, features=PARTS, seed=3)
    split, w = problem.vertical, problem.start + 0.1 * rng.normal(size=problem.dimension)
    assert split is not None

    def apart(w: jax.Array) -> jax.Array:
        hs = [
            h(w[block], BATCH["x"][:, own])
            for h, block, own in zip(split.locals, split.blocks[1:], split.features, strict=True)
        ]
        return split.head(w[split.blocks[0]], hs, BATCH)

    assert sorted(np.concatenate(split.blocks)) == list(range(problem.dimension))
    np.testing.assert_allclose(apart(w), problem.terms(w, BATCH), rtol=0, atol=1e-10)
    slopes = [jax.jacrev(f)(w) for f in (apart, lambda w: problem.terms(w, BATCH))]
    np.testing.assert_allclose(*slopes, rtol=0, atol=1e-10)
    way, step = rng.normal(size=problem.dimension), 1e-6
    ahead, behind = (problem.terms(w + s * way, BATCH) for s in (step, -step))
    np.testing.assert_allclose((ahead - behind) / (2 * step), slopes[0] @ way, atol=1e-6)
    if split.additive:
        hs = [
            rng.normal(
                size=(ROWS, len(split.locals[0](w[split.blocks[1]], BATCH["x"][:, PARTS[0]])[0]))
            )
        ]
        moved = [hs[0] - 1, jnp.ones_like(hs[0])]
        whole = split.head(w[split.blocks[0]], [hs[0], 0 * hs[0]], BATCH)
        np.testing.assert_allclose(split.head(w[split.blocks[0]], moved, BATCH), whole, atol=1e-10)


def test_a_model_survives_pickling() -> None:
    model = MODELS["cnn halves"]()
    again = pickle.loads(pickle.dumps(model))
    params = model.init(0)
    np.testing.assert_array_equal(model.apply(params, BATCH["x"]), again.apply(params, BATCH["x"]))


def test_a_convolution_by_hand() -> None:
    """One kernel over an image of 3 x 3, padded with zeros, then the maximum of a square."""
    model = cnn((3, 3), 2, [1], [], "relu", pool=2, biases=False, **DOUBLE)
    head, (((), (kernel,), (), (), ()),) = model.init(0)
    x = rng.normal(size=(1, 9))
    padded = np.pad(x.reshape(3, 3), 1)
    out = [[np.sum(padded[i : i + 3, j : j + 3] * kernel[0, 0]) for j in (0, 1)] for i in (0, 1)]
    top = np.maximum(np.max(out), 0)
    (weights,) = head[-1]
    found = model.apply((head, [[(), (kernel,), (), (), ()]]), jnp.asarray(x))
    np.testing.assert_allclose(found, top * weights.T, atol=1e-12)


def test_plain_values_make_the_same_network() -> None:
    """Saved networks are built again, and the layers for exports have the same flat vector."""
    values = Network("mlp", 36, CLASSES, [5, 4], "swish", 1.0, "float64", biases=True)
    made, stacks = classifier(values.model(), seed=2), values.stacks()
    head, ((first,),) = stacks.params(made.start)
    want = mlp(36, [5, 4], CLASSES, dtype="float64").init(2)
    np.testing.assert_array_equal(first[0], want[1])
    np.testing.assert_array_equal(head[-1][0], want[0][-1][0])
    assert Network("mlp", 4, 2, 3, "tanh", 1.0, "float32").model().init(0)[0].shape == (2, 3)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: mlp(3, [], 2), "at least one"),
        (lambda: mlp(3, [2, 0], 2), "number of units of each layer"),
        (lambda: mlp(3, [2], 2, "gelu"), "activation = 'gelu' is unknown"),
        (lambda: party_mlp(PARTS, [[4], [4], [4]], 3, 2), "the layers of 3 parties, there are 2"),
        (lambda: party_mlp(PARTS, [[4], [3]], 3, 2), "outputs of the widths 4, 3"),
        (lambda: cnn((6, 6), 2, []), "number of kernels of each convolution"),
        (lambda: cnn((6,), 2), "it must be [height, width]"),
        (lambda: cnn((6, 6), 2, [1, 1, 1]), "too small for channels = [1, 1, 1]"),
        (lambda: cnn((6, 6, 3), 2, parties=[range(36)]), "has 108 numbers, the rows have 36"),
        (lambda: cnn((4, 4), 2, parties=[range(36)]), "has 16 numbers, the rows have 36"),
        (lambda: party_mlp(PARTS, [4], 3, 2, join="add"), "join = 'add' is unknown"),  # type: ignore[arg-type]
        (lambda: cnn((6, 6), 2, parties=[range(10), range(10, 36)]), "no rectangle of an image"),
        (
            lambda: classifier(party_mlp([[0], [1, 2]], [4], 3, 2), features=PARTS),
            "made for 1, 2 columns, the parties hold 18, 18",
        ),
    ],
)
def test_refused(make: Callable[[], Any], said: str) -> None:
    with pytest.raises(UserError) as caught:
        make()
    assert said in str(caught.value)
