"""Which parameters of a model are additive biases of its scores."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedssca.data.split import Rows
from fedssca.evaluate.biases import biases
from fedssca.problem.constraints import custom
from fedssca.problem.custom import custom_problem
from fedssca.problem.models import classifier, linear, mlp
from fedssca.problem.problem import Array
from fedssca.problem.scores import from_scores
from fedssca.problem.worst import minimise_worst

pytestmark = pytest.mark.usefixtures("float64")


def rows(x: np.ndarray) -> Rows:
    return Rows({"x": x, "y": np.zeros(len(x), np.int32)}, (len(x),))


def deep(params: dict[str, Array], x: Array) -> Array:
    hidden = jnp.tanh(x @ params["in"] + params["hidden"])
    return hidden @ params["out"] + params["b"] + 2.0 * params["double"]


def test_biases_are_what_adds_to_the_scores_of_every_row() -> None:
    """ravel_pytree sorts the names: b (3), double (3), hidden (4), in (2 x 4), out (4 x 3)."""
    shapes = {"b": 3, "double": 3, "hidden": 4, "in": (2, 4), "out": (4, 3)}
    rng = np.random.default_rng(0)
    params = {name: rng.normal(size=shape) for name, shape in shapes.items()}
    found = biases(from_scores(deep, params), rows(np.zeros((2, 2))))
    assert found is not None
    assert found.tolist() == [0, 1, 2]


def test_biases_of_the_ready_made_models() -> None:
    like = rows(np.zeros((5, 3)))
    assert biases(classifier(linear(3, 2)), like) == [0]
    assert np.array_equal(biases(classifier(linear(3, 4)), like), [0, 1, 2, 3])
    assert biases(classifier(mlp(3, 4, 2)), like) is None
    parts = [*custom("a", lambda s, _: s[:, 0], 0.0), *custom("b", lambda s, _: -s[:, 0], 0.0)]
    assert biases(minimise_worst(classifier(linear(3, 2), parts), ["a", "b"]), like) == [0]
    assert biases(custom_problem(lambda w, batch: batch["x"] @ w, jnp.zeros(3)), like) is None


def test_biases_with_whole_numbers_as_x() -> None:
    table = {"table": np.zeros((2, 3)), "b": np.zeros(3)}
    words = from_scores(lambda p, x: p["table"][x].sum(axis=1) + p["b"], table)
    like = rows(np.full((3, 5), 7, np.int32))
    assert np.array_equal(biases(words, like), [0, 1, 2])


def test_biases_in_single_precision_among_many_parameters() -> None:
    with jax.enable_x64(False):
        params = {"b": np.zeros(50, np.float32), "w": np.zeros((2000, 50), np.float32)}
        made = from_scores(lambda p, x: x @ p["w"] + p["b"], params)
        like = rows(np.zeros((2, 2000), np.float32))
        assert np.array_equal(biases(made, like), np.arange(50))


def test_biases_of_a_torch_module() -> None:
    torch = pytest.importorskip("torch")
    from fedssca.problem.torch import from_module

    class Picky(torch.nn.Linear):
        def forward(self, x: Any) -> Any:
            if (x != 0).any():
                raise ValueError("only zeros are taken")
            return super().forward(x)

    like = rows(np.zeros((2, 4), np.float32))
    # The weights come first: 4 x 5 + 5 + 5 x 2 = 35.
    layers = torch.nn.Sequential(torch.nn.Linear(4, 5), torch.nn.ReLU(), torch.nn.Linear(5, 2))
    assert np.array_equal(biases(from_module(layers), like), [35, 36])
    assert biases(from_module(Picky(4, 2)), like) is None
