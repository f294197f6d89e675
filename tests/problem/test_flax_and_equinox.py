"""Modules of Flax NNX and Equinox: values, gradients and runs of their twins in this library."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedssca import (
    Problem,
    UserError,
    by_sample,
    classifier,
    from_scores,
    mlp,
    power,
    sgd,
    simulate,
)
from fedssca.problem.scores import weights_by_path

P, J, L = 7, 5, 3
RNG = np.random.default_rng(0)
X = RNG.normal(size=(60, P)).astype(np.float32)
ROWS = {"x": X, "y": RNG.integers(0, L, 60).astype(np.int32)}


def nnx_twin(params: Any) -> Problem:
    nnx = pytest.importorskip("flax.nnx", reason="Flax is not installed")

    class Net(nnx.Module):  # type: ignore[name-defined,misc]
        def __init__(self, rngs: Any) -> None:
            self.first = nnx.Linear(P, J, rngs=rngs)
            self.second = nnx.Linear(J, L, rngs=rngs)

        def __call__(self, x: Any) -> Any:
            return self.second(nnx.swish(self.first(x)))

    net = Net(nnx.Rngs(0))
    for layer, weights in ((net.first, params[1]), (net.second, params[0][1][0])):
        layer.kernel[...] = jnp.asarray(weights).T
    graph, state = nnx.split(net)
    names = [name.removesuffix(".value") for name, _ in weights_by_path(state)]
    assert names == ["first.bias", "first.kernel", "second.bias", "second.kernel"]
    return from_scores(lambda state, x: nnx.merge(graph, state)(x), state, l2=0.01)


def equinox_twin(params: Any) -> Problem:
    equinox = pytest.importorskip("equinox", reason="Equinox is not installed")
    net = equinox.nn.MLP(P, L, J, 1, jax.nn.swish, key=jax.random.key(0))
    first, second = (jnp.asarray(params[1]), jnp.asarray(params[0][1][0]))
    zeros = jnp.zeros(J), jnp.zeros(L)

    def parts(m: Any) -> list[Any]:
        return [value for layer in m.layers for value in (layer.weight, layer.bias)]

    net = equinox.tree_at(parts, net, [first, zeros[0], second, zeros[1]])
    return from_scores(lambda model, x: jax.vmap(model)(x), net, l2=0.01)


@pytest.mark.parametrize("twin", [nnx_twin, equinox_twin])
def test_values_gradients_and_runs_are_the_twins(twin: Any) -> None:
    model = mlp(P, [J], L)
    head, first = model.init(0)
    params = ([head[0], (head[-1][0],)], first)  # biases, and the weights of both layers
    ours, theirs = classifier(model, l2=0.01), twin(params)
    assert ours.dimension == theirs.dimension
    values = [p.terms(p.start, ROWS) for p in (ours, theirs)]
    np.testing.assert_allclose(*values, rtol=1e-5)
    lengths = [
        np.sort(np.abs(jax.grad(lambda w, p=p: p.terms(w, ROWS).mean())(p.start)))
        for p in (ours, theirs)
    ]
    np.testing.assert_allclose(*lengths, rtol=1e-3, atol=1e-7)
    ends = []
    for problem in (ours, theirs):
        steps = sgd(problem, batch=10, rate=power(0.5), steps=2)
        ends.append(simulate(problem, by_sample(ROWS, 2), steps, rounds=10).final)
    assert ends[0]["train_cost"] == pytest.approx(ends[1]["train_cost"], rel=1e-4)
    assert ends[0]["norm_sq"] == pytest.approx(ends[1]["norm_sq"], rel=1e-4)


def test_batch_norm_over_the_rows_is_refused() -> None:
    equinox = pytest.importorskip("equinox", reason="Equinox is not installed")
    norm, state = equinox.nn.make_with_state(equinox.nn.BatchNorm)(P, "rows", mode="batch")
    linear = equinox.nn.Linear(P, L, key=jax.random.key(0))

    def apply(model: Any, x: Any) -> Any:
        norm, linear = model
        over_rows = jax.vmap(norm, axis_name="rows", in_axes=(0, None), out_axes=(0, None))
        return jax.vmap(linear)(over_rows(x, state)[0])

    problem = from_scores(apply, (norm, linear))
    with pytest.raises(UserError, match="if another row of the batch changes"):
        simulate(problem, by_sample(ROWS, 2), sgd(problem, batch=10, rate=power(0.5)), rounds=3)
