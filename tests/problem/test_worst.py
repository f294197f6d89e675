"""The largest loss of a client or group as the objective: by hand, oracles, both forms, errors."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import minimize

import fedssca
from fedssca.data.split import Columns, Rows
from fedssca.errors import UserError
from fedssca.evaluate.evaluator import evaluator_over
from fedssca.problem.constraints import loss_at_most
from fedssca.problem.problem import Problem
from fedssca.problem.worst import balanced
from tests.conftest import J, L, P

pytestmark = pytest.mark.usefixtures("float64")

LOG2 = float(np.log(2))


def three_clients(scale: float = 1.0) -> list[dict[str, np.ndarray]]:
    """Clients of different sizes whose labels contradict each other in part."""
    rng = np.random.default_rng(0)

    def client(rows: int, shift: float, sign: float) -> dict[str, np.ndarray]:
        x = rng.normal(size=(rows, 4)) + shift
        noise = rng.normal(size=rows)
        y = sign * x @ np.array([1.5, -1.0, 0.5, 0.0]) + noise > 0.3
        return {"x": scale * x, "y": y.astype(np.int32)}

    return [client(300, 0.0, 1.0), client(150, 0.5, -0.3), client(80, -0.5, 0.4)]


def log_losses(w: np.ndarray, parts: list[dict[str, np.ndarray]]) -> np.ndarray:
    """The mean logistic loss of each part, w = (bias, weights)."""
    scores = [part["x"] @ w[1:] + w[0] for part in parts]
    pairs = zip(scores, parts, strict=True)
    return np.array([np.mean(np.logaddexp(0, z) - z * part["y"]) for z, part in pairs])


def slsqp(parts: list[dict[str, np.ndarray]], l2: float, **more: Any) -> Any:
    """min s + l2 |w|^2 s.t. the loss of each part <= s, by scipy."""
    limits = [{"type": "ineq", "fun": lambda v: v[-1] - log_losses(v[:-1], parts)}]
    return minimize(
        lambda v: v[-1] + l2 * v[:-1] @ v[:-1],
        np.append(np.zeros(5), 1.0),
        constraints=limits + more.get("limits", []),
        method="SLSQP",
        options={"ftol": 1e-12, "maxiter": 500},
    )


# The problem -------------------------------------------------------------------------------------


def test_terms_and_values_by_hand() -> None:
    """Two clients with 1 and 3 rows; z = w x, loss log(1 + exp(z)) - y z at z = 0, 0, ln 3, 0."""
    model = fedssca.linear(features=1, classes=2, dtype="float64")
    p = fedssca.classifier(model, objective="worst_client", sizes=(1, 3), l2=0.5)
    assert p.names == ("worst_client_0", "worst_client_1")
    assert p.worst == (1, 2)
    assert (p.dimension, p.model(p.start).size) == (3, 2)
    parts = [{"x": np.zeros((1, 1)), "y": np.zeros(1, int)}]
    parts += [{"x": np.array([[0.0], [1.0], [0.0]]), "y": np.array([0, 1, 1])}]
    w = jnp.array([0.0, np.log(3), 0.25])  # bias, weight, u
    own = [LOG2, (2 * LOG2 + np.log(4) - np.log(3)) / 3]
    s = LOG2 * 1.25
    rows = Rows.of(parts)
    batch = {**rows.columns, "client": rows.owners()}
    means = p.terms(w, batch).mean(axis=1)
    square = float(w @ w)
    # What methods measure has the s of w; what is reported has the best s, the largest loss.
    raw = p.combine @ means + p.known * square
    assert raw == pytest.approx([s + 0.5 * np.log(3) ** 2, own[0] - s, own[1] - s])
    assert p.measured(means[p.valued], w) == pytest.approx([own[0] - s, own[1] - s])
    best = [own[0] + 0.5 * np.log(3) ** 2, 0, own[1] - own[0]]
    assert p.values(means, square) == pytest.approx(best)
    row = evaluator_over(p, rows, None).row(w)
    assert [row["objective"], *row["constraints"]] == pytest.approx(best)
    assert max(row["constraints"]) == 0
    assert row["norm_sq"] == pytest.approx(np.log(3) ** 2)
    assert row["train_worst"] == pytest.approx(own[0])
    assert (row["train_worst_client_0"], row["train_worst_client_1"]) == pytest.approx(own)


def test_gradients_leave_u_out_of_the_norm() -> None:
    """grad F_0 is (2 l2 w, level), and the gradient of F_i - s ends with -level: for any u."""
    parts = three_clients()
    rows = Rows.of(parts)
    model = fedssca.linear(4, 2, dtype="float64")
    p = fedssca.classifier(model, objective="worst_client", sizes=rows.sizes, l2=0.3)
    w = np.array([0.1, 0.5, -0.2, 0.3, 0.0, -0.7])
    found = evaluator_over(p, rows, None).gradients(jnp.asarray(w))
    assert found[0] == pytest.approx([*(0.6 * w[:-1]), LOG2])
    assert found[1:, -1] == pytest.approx([-LOG2] * 3)
    for i in range(5):
        step = 1e-6 * np.eye(5)[i]
        up, down = (log_losses(w[:-1] + sign * step, parts) for sign in (1, -1))
        assert found[1:, i] == pytest.approx((up - down) / 2e-6, abs=1e-7)


def test_balanced_gradients_do_not_depend_on_the_level() -> None:
    parts = three_clients()
    rows = Rows.of(parts)
    w = jnp.array([0.1, 0.5, -0.2, 0.3, 0.0])
    sizes = rows.total / np.array(rows.sizes)

    def terms(v: jax.Array, batch: dict[str, Any]) -> jax.Array:
        z = batch["x"] @ v[1:] + v[0]
        loss = jnp.logaddexp(0, z) - z * batch["y"]
        return jnp.stack([factor * (batch["client"] == i) * loss for i, factor in enumerate(sizes)])

    base = fedssca.custom_problem(
        terms, jnp.zeros(5), combine=np.eye(4, 3, k=-1), limits=[0.0] * 3, names=list("abc")
    )
    seen = []
    for level in (0.1, 30.0):
        p = fedssca.minimise_worst(base, list("abc"), level)
        slopes = evaluator_over(p, rows, None).gradients(p.extended(w))
        found = balanced(p, slopes)
        assert np.array_equal(found[:, :-1], slopes[:, :-1])
        seen.append(found)
    assert seen[0] == pytest.approx(seen[1])
    longest = np.linalg.norm(seen[0][1:, :-1], axis=1).max()
    assert seen[0][:, -1] == pytest.approx([longest, -longest, -longest, -longest])
    plain = evaluator_over(base, rows, None).gradients(w)
    assert balanced(base, plain) is plain


def test_groups_are_the_values_of_a_column() -> None:
    sex = np.array([0.0, 2.5, 2.5, 0.0, 2.5])
    rows = Rows({"x": np.arange(5.0)[:, None], "y": np.array([0, 1, 1, 0, 0]), "sex": sex}, (2, 3))
    model = fedssca.linear(1, 2, dtype="float64")
    p = fedssca.classifier(
        model, loss_at_most(0.9), objective="worst_group", groups=sex, column="sex"
    )
    assert p.names == ("loss", "worst_sex_0", "worst_sex_2.5")
    assert p.worst == (2, 3)
    w = np.array([0.3, -0.2, 0.0])
    z = 0.3 - 0.2 * np.arange(5.0)
    losses = np.logaddexp(0, z) - z * rows.columns["y"]
    a, b = losses[sex == 0].mean(), losses[sex == 2.5].mean()
    test = {name: column[:3] for name, column in rows.columns.items()}
    row = evaluator_over(p, rows, test).row(jnp.asarray(w))
    worst = max(a, b)
    assert row["objective"] == pytest.approx(worst)
    assert row["constraints"] == pytest.approx([losses.mean() - 0.9, a - worst, b - worst])
    assert row["test_worst"] == pytest.approx(max(losses[0], losses[1:3].mean()))


def test_any_constraints_of_a_custom_problem() -> None:
    """Rows with known |w|^2 and rows that share means keep their values: F_m at the same model."""
    combine = np.array([[1.0, 0, 0], [0, 1, 1], [0, 1, -1], [0, 0, 2], [0, 1, 0]])
    known, limits = [0.5, 0.0, 0.25, 0.0, 0.125], [0.1, 0.2, 0.3, 0.4]

    def terms(w: jax.Array, batch: dict[str, Any]) -> jax.Array:
        return jnp.stack([w[0] * batch["x"], w[1] * batch["x"] ** 2, jnp.sin(w[1]) + batch["x"]])

    names = list("abcd")
    base = fedssca.custom_problem(
        terms, jnp.array([1.0, 2.0]), combine=combine, known=known, limits=limits, names=names
    )
    p = fedssca.minimise_worst(base, ["a", "b"], level=2.0)
    batch = {"x": np.array([0.5, -1.0, 2.0])}
    model, u = jnp.array([0.7, -0.4]), 0.3
    w = jnp.append(model, u)

    def values(problem: Problem, at: jax.Array) -> np.ndarray:
        means = problem.terms(at, batch).mean(axis=1)
        limits = np.append(0.0, problem.limits)
        return np.asarray(problem.combine @ means + problem.known * float(at @ at) - limits)

    f, s = values(base, model), 2.0 * 1.3
    assert values(p, w) == pytest.approx([f[0] + s, f[1] - s, f[2] - s, f[3], f[4]])
    means = p.terms(w, batch).mean(axis=1)
    worst = max(f[1], f[2])
    reported = [f[0] + worst, f[1] - worst, f[2] - worst, f[3], f[4]]
    assert p.values(means, w @ w) == pytest.approx(reported)
    assert p.combine.shape == (5, 5)  # "c" keeps its mean; the others have one each


def test_parameters_without_s() -> None:
    params = {"w": np.zeros((4, 3)), "b": np.ones(3)}
    p = fedssca.from_scores(
        lambda tree, x: x @ tree["w"] + tree["b"], params, objective="worst_client", sizes=(3, 3)
    )
    point = p.start + jnp.arange(p.dimension)
    model = p.model(point)
    assert model.size == 15
    for given in (point, model):  # both forms have the same tree
        tree = p.unravel(given)
        assert tree["w"].shape == (4, 3)
        assert np.array_equal(np.concatenate([tree["b"], tree["w"].ravel()]), model)
    assert np.array_equal(p.model(p.extended(model)), model)
    assert p.extended(model).size == p.dimension
    plain = fedssca.from_scores(lambda tree, x: x @ tree["w"] + tree["b"], params)
    assert plain.model(plain.start) is not None
    assert np.array_equal(plain.extended(plain.model(plain.start)), plain.start)


def test_vertical_form_is_the_joined_one(columns: dict[str, np.ndarray]) -> None:
    """s is the last entry of w_0; the head of the parties gives the joined terms."""
    features = [np.arange(3), np.arange(3, P)]
    groups = columns["y"] % 2
    network = fedssca.mlp(P, J, L, dtype="float64")
    p = fedssca.classifier(
        network, objective="worst_group", groups=groups, column="odd", l2=0.1, features=features
    )
    split = p.vertical
    assert split is not None
    assert sorted(np.concatenate(split.blocks)) == list(range(p.dimension))
    assert split.blocks[0][-1] == p.dimension - 1
    batch = {**columns, "odd": groups}
    w = p.start + 0.1 * jnp.arange(p.dimension) / p.dimension
    hs = [
        h(w[block], batch["x"][:, own])
        for h, block, own in zip(split.locals, split.blocks[1:], features, strict=True)
    ]
    own = w[split.blocks[0]]
    assert np.allclose(split.head(own, hs, batch), p.terms(w, batch), atol=1e-12)
    assert p.scores is not None
    assert split.scores is not None
    assert np.allclose(split.scores(own, hs), p.scores(w, batch))
    assert split.measure is not None
    assert split.scores(own, hs).shape == (len(groups), L)
    joined = p.measure(w, batch)
    for name, rates in split.measure(own, hs, batch).items():
        for (_, top, _), (_, other, _) in zip(rates, joined[name], strict=True):
            assert np.allclose(top, other)


# Training ----------------------------------------------------------------------------------------


def test_exact_rule_on_full_batches_is_slsqp() -> None:
    """The paper's algorithm, with s as one more parameter, solves the min-max problem."""
    parts = three_clients()
    best = slsqp(parts, l2=1e-3)
    rows = Rows.of(parts)
    p = fedssca.classifier(
        fedssca.linear(4, 2, dtype="float64"), objective="worst_client", sizes=rows.sizes, l2=1e-3
    )
    everything = {**rows.columns, "client": rows.owners(), "weight": np.full(530, 1 / 530)}
    steps = {"rho": fedssca.power(1.0), "gamma": fedssca.power(1.0), "tau": 1.0}
    with pytest.warns(UserWarning, match="convergence is not guaranteed"):
        method = fedssca.ssca(p, batch=1, dual=fedssca.exact_penalty(p, 10.0), **steps)

    @jax.jit
    def advance(state: fedssca.State) -> fedssca.State:
        return method.update(state, method.reply(p.terms, method.request(state), everything))

    state = method.init(p.start)
    for _ in range(1000):
        state = advance(state)
    row = evaluator_over(p, rows, None).row(state.w)
    assert row["objective"] == pytest.approx(best.fun, rel=1e-4)
    assert state.multipliers.sum() == pytest.approx(1, abs=1e-3)


@pytest.mark.long
def test_the_largest_of_three_losses_is_slsqp() -> None:
    parts = three_clients()
    best = slsqp(parts, l2=1e-3)
    rows = Rows.of(parts)
    p = fedssca.classifier(
        fedssca.linear(4, 2, dtype="float64"), objective="worst_client", sizes=rows.sizes, l2=1e-3
    )
    algorithm = fedssca.auto(p, rows, batch=40, rounds=200)
    result = fedssca.simulate(p, rows, algorithm, 200, evaluate_every=50)
    assert result.feasible
    assert result.final["objective"] == pytest.approx(best.fun, rel=0.005)
    assert result.w.shape == (5,)
    assert log_losses(result.w, parts).max() == pytest.approx(result.final["train_worst"])
    prices = [entry["multiplier"] for entry in result.certificate["constraints"]]
    assert sum(prices) == pytest.approx(1, abs=0.02)
    # The weights of the worst mixture: the gradients of the losses, so weighted, add up to -2 l2 w.
    assert prices == pytest.approx([0.4046, 0.5421, 0.0534], abs=0.05)


@pytest.mark.long
def test_further_limits_hold() -> None:
    """The mean loss may be at most 0.65, which the largest loss alone would not keep."""
    parts = three_clients()
    whole = {name: np.concatenate([part[name] for part in parts]) for name in ("x", "y")}
    free = slsqp(parts, l2=1e-3)
    limit = float(log_losses(free.x[:-1], [whole])[0]) - 0.02
    inside = {"type": "ineq", "fun": lambda v: limit - log_losses(v[:-1], [whole])[0]}
    best = slsqp(parts, l2=1e-3, limits=[inside])
    assert best.fun > free.fun + 1e-3
    rows = Rows.of(parts)
    p = fedssca.classifier(
        fedssca.linear(4, 2, dtype="float64"),
        loss_at_most(limit),
        objective="worst_client",
        sizes=rows.sizes,
        l2=1e-3,
    )
    algorithm = fedssca.auto(p, rows, batch=40, rounds=200)
    result = fedssca.simulate(p, rows, algorithm, 200, evaluate_every=50)
    assert result.feasible
    assert result.final["train_cost"] <= limit + 1e-9
    assert result.final["objective"] == pytest.approx(best.fun, rel=0.01)


@pytest.mark.long
def test_parties_with_columns_train_on_groups(columns: dict[str, np.ndarray]) -> None:
    features = (np.arange(3), np.arange(3, P))
    groups = (columns["x"][:, 0] > 0.5).astype(np.int32)
    held = {**columns, "old": groups}
    parties = Columns(held, features)
    network = fedssca.mlp(P, J, L, dtype="float64")
    ends = []
    for clients, blocks in ((parties, features), (Rows(held, (len(groups),)), None)):
        p = fedssca.classifier(
            network, objective="worst_group", groups=groups, column="old", features=blocks
        )
        algorithm = fedssca.auto(p, clients, batch=len(groups), rounds=40)
        result = fedssca.simulate(p, clients, algorithm, 40, evaluate_every=20)
        ends.append(result.final["train_worst"])
    assert ends[0] == pytest.approx(ends[1], rel=1e-6)  # the same rows in every batch
    assert ends[0] < 0.9 * np.log(L)


# Bad input ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"objective": "worst_client"}, "sizes=clients.sizes"),
        ({"objective": "worst_client", "sizes": (3, 0)}, "each needs a row"),
        ({"objective": "worst_group", "column": "sex"}, "needs column=<name> and groups="),
        ({"objective": "worst_group", "column": "a", "groups": np.zeros(5)}, "has 1 values"),
        ({"objective": "worst_group", "column": "a", "groups": np.arange(99)}, "has 99 values"),
        ({"objective": "worst"}, "objective = 'worst' is unknown"),
    ],
)
def test_what_an_objective_needs(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(UserError, match=words):
        fedssca.classifier(fedssca.linear(2, 2), **settings)
    with pytest.raises(UserError, match=words):
        fedssca.from_scores(lambda w, x: x @ w, np.zeros((2, 2)), **settings)


def test_what_minimise_worst_refuses() -> None:
    base = fedssca.custom_problem(
        lambda w, batch: w[:, None] * batch["x"], jnp.ones(2), limits=[0.0], names=["loss"]
    )
    for names, level, words in (
        (["los"], 1.0, "no constraint is named 'los'.*loss"),
        ([], 1.0, "at least one"),
        (["loss"], 0.0, "level = 0.0"),
    ):
        with pytest.raises(UserError, match=words):
            fedssca.minimise_worst(base, names, level)
    with pytest.raises(UserError, match="in one call"):
        fedssca.minimise_worst(fedssca.minimise_worst(base, ["loss"]), ["loss"])
