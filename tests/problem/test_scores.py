"""Models of one's own: functions, Flax style, Equinox style."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

from fedssca import Rows, UserError, classifier, custom, loss_at_most, mlp, power, simulate, ssca
from fedssca.problem.constraints import Constraint
from fedssca.problem.models import vertical_form
from fedssca.problem.scores import assemble, from_scores

P, J, L = 7, 5, 3


def batch_of(columns: dict[str, np.ndarray]) -> dict[str, Any]:
    rows = len(columns["y"])
    return {name: jnp.asarray(v) for name, v in columns.items()} | {"weight": jnp.ones(rows) / rows}


def swish_network(params: Any, x: jax.Array) -> jax.Array:
    return jax.nn.swish(x @ params[1].T) @ params[0].T


def margin(scores: jax.Array, batch: Any) -> jax.Array:
    return jax.nn.relu(1 - scores[:, 0])


LIMITS = [
    *loss_at_most(0.9),
    Constraint("margin", {"margin": (2.0, margin)}, 3.0, lambda s, b: [(1.0, s[:, 0], s[:, 1])]),
]


@pytest.mark.parametrize(("objective", "l2"), [("loss", 0.01), ("norm", 0.0)])
def test_a_function_is_the_ready_made_network(
    columns: dict[str, np.ndarray], objective: str, l2: float
) -> None:
    own = from_scores(swish_network, mlp(P, J, L).init(0), LIMITS, objective, l2)
    made = classifier(mlp(P, J, L), LIMITS, objective=objective, l2=l2)
    for name in ("combine", "known", "limits", "start"):
        np.testing.assert_array_equal(getattr(own, name), getattr(made, name))
    assert own.names == made.names
    batch = batch_of(columns)
    np.testing.assert_allclose(
        own.terms(own.start, batch), made.terms(made.start, batch), rtol=1e-6
    )
    mine, theirs = own.measure(own.start, batch), made.measure(made.start, batch)
    assert list(mine) == list(theirs) == ["cost", "accuracy", "margin"]
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5), mine, theirs)


def test_assemble_can_replace_the_body_of_classifier(columns: dict[str, np.ndarray]) -> None:
    """With its vertical form too: what classifier would be, written with `assemble`."""
    model, features = mlp(P, J, L), [np.arange(3), np.arange(3, P)]
    start, unravel = ravel_pytree(model.init(0))

    def scores(w: jax.Array, batch: Any) -> jax.Array:
        w0, w1 = unravel(w)
        return model.top(w0, model.local(w1, batch["x"]))

    def split(stacked: Any, measures: Any) -> Any:
        return vertical_form(model.divided(unravel(start), features), stacked, measures, features)

    made = classifier(model, LIMITS, l2=0.1, features=features)
    own = assemble(scores, start, unravel, LIMITS, "loss", 0.1, split)
    batch = batch_of(columns)
    np.testing.assert_array_equal(own.terms(start, batch), made.terms(start, batch))
    assert own.vertical is not None
    assert made.vertical is not None
    x = [batch["x"][:, f] for f in features]
    for form in (own.vertical, made.vertical):
        parts = [start[block] for block in form.blocks]
        hs = [h(w, xi) for h, w, xi in zip(form.locals, parts[1:], x, strict=True)]
        np.testing.assert_allclose(
            form.head(parts[0], hs, batch), own.terms(start, batch), rtol=1e-5
        )


class Net(NamedTuple):
    """As in Equinox: a callable module that is itself the tree, with parts that are no arrays."""

    inner: dict[str, Any]
    activation: Any
    width: int
    steps: np.ndarray

    def __call__(self, row: jax.Array) -> jax.Array:
        return self.inner["top"] @ self.activation(self.inner["weight"] @ row) * self.width


@pytest.mark.long
def test_a_module_that_is_a_tree(columns: dict[str, np.ndarray]) -> None:
    w0, w1 = mlp(P, J, L).init(0)
    net = Net({"top": w0, "weight": w1, "name": "net"}, jax.nn.swish, 1, np.arange(3))
    problem = from_scores(lambda model, x: jax.vmap(model)(x), net, loss_at_most(0.9))
    assert problem.dimension == J * (P + L)
    made = classifier(mlp(P, J, L), loss_at_most(0.9))
    batch = batch_of(columns)
    np.testing.assert_allclose(
        problem.terms(problem.start, batch), made.terms(made.start, batch), rtol=1e-5
    )
    algorithm = ssca(problem, batch=8, rho=power(0.9, 0.3), gamma=power(0.5, 0.6), tau=0.2)
    result = simulate(problem, Rows(columns, (20, 40)), algorithm, 5)
    assert isinstance(result.params, Net)
    assert (result.params.activation, result.params.width) == (jax.nn.swish, 1)
    assert result.params.inner["name"] == "net"
    assert not np.array_equal(result.params.inner["top"], w0)
    assert result.params(jnp.ones(P)).shape == (L,)


def test_flax_variables(columns: dict[str, np.ndarray]) -> None:
    """As in Flax: apply({"params": ..., "batch_stats": ...}, x); only "params" is trained."""
    stats = {"mean": jnp.full(P, 0.5)}

    def apply(variables: Any, x: jax.Array) -> jax.Array:
        return (x - variables["batch_stats"]["mean"]) @ variables["params"]["dense"]["kernel"]

    params = {"dense": {"kernel": jnp.ones((P, L))}}
    problem = from_scores(apply, {"params": params, "batch_stats": stats})
    assert problem.dimension == P * L
    back = problem.unravel(problem.start + 1)
    np.testing.assert_array_equal(back["batch_stats"]["mean"], stats["mean"])
    np.testing.assert_array_equal(back["params"]["dense"]["kernel"], 2 * np.ones((P, L)))
    assert problem.terms(problem.start, batch_of(columns)).shape == (1, 60)


def test_what_cannot_be_a_problem(columns: dict[str, np.ndarray]) -> None:
    with pytest.raises(UserError, match="nothing to train"):
        from_scores(lambda p, x: x, {"steps": np.arange(3), "f": jnp.tanh})
    flat = from_scores(lambda p, x: x @ p, np.zeros(P, np.float32))
    with pytest.raises(UserError, match=r"shape \(60,\) for 60 rows"):
        flat.terms(flat.start, batch_of(columns))
    with pytest.raises(UserError, match="objective = 'size'"):
        from_scores(lambda p, x: x @ p, np.zeros((P, L)), objective="size")
    with pytest.raises(UserError, match="add a constraint"):
        from_scores(lambda p, x: x @ p, np.zeros((P, L)), objective="norm")
    with pytest.raises(UserError, match="l2 = -1"):
        from_scores(lambda p, x: x @ p, np.zeros((P, L)), l2=-1)
    model = mlp(P, J, L)
    with pytest.raises(UserError, match=r"holds a list: give one list .* such as loss_at_most"):
        classifier(model, [loss_at_most(0.2)])  # type: ignore[list-item]
    whole = classifier(model, custom("spread", lambda scores, batch: scores, limit=1.0))
    with pytest.raises(UserError, match=r"spread gives an array of shape \(60, 3\)"):
        whole.terms(whole.start, batch_of(columns))
    for features, hidden in ((0, J), (P, 0)):
        with pytest.raises(UserError, match=r"(features|hidden) = 0: it must be at least 1"):
            mlp(features, hidden, L)
    wide = classifier(mlp(P + 1, J, L))
    with pytest.raises(UserError, match="the rows have 7 features, and the model takes 8"):
        wide.terms(wide.start, batch_of(columns))


def test_scores_of_a_row_depend_on_this_row_only(columns: dict[str, np.ndarray]) -> None:
    start, batch = np.full((P, L), 0.1, np.float32), batch_of(columns)
    for centred in (batch, {**batch, "x": np.abs(batch["x"]).astype(np.uint8)}):
        mixed = from_scores(lambda p, x: (x - x.mean(0)) @ p, start)
        with pytest.raises(UserError, match="if another row of the batch changes"):
            mixed.terms(mixed.start, centred)
        with pytest.raises(UserError, match="if another row of the batch changes"):
            jax.jit(mixed.terms)(mixed.start, centred)
    codes = from_scores(lambda p, x: p[x[:, 0]], start)  # rows are numbers of categories
    assert codes.terms(codes.start, {**batch, "x": np.ones((60, 1), int)}).shape == (1, 60)
