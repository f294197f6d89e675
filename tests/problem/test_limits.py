"""Limits on both sides of user-written constraints: by hand, end to end, bad input."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest

import fedssca
from fedssca.data.split import Rows
from fedssca.errors import UserError
from fedssca.evaluate.evaluator import evaluator_over
from fedssca.problem.limits import Bound, sides, stated

pytestmark = pytest.mark.usefixtures("float64")


def test_sides_by_hand() -> None:
    assert sides("x", 0.5) == [("x", 1.0, 0.5)]
    assert sides("x", (-1, 2)) == [("x", 1.0, 2.0), ("x_lower", -1.0, 1.0)]
    assert sides("x", (None, 2)) == [("x", 1.0, 2.0)]
    assert sides("x", (0.25, None)) == [("x_lower", -1.0, -0.25)]
    assert sides("x", np.array([0.1, 0.1])) == [("x", 1.0, 0.1), ("x_lower", -1.0, -0.1)]


def test_the_sides_of_a_limit_are_joined() -> None:
    labels, groups = np.array([0, 1, 0, 1]), np.array([0, 0, 1, 1])
    limits = [
        *fedssca.loss_at_most(0.3),
        *fedssca.parity_gap_at_most(0.05, groups, "sex"),
        *fedssca.recall_at_least(0.9, labels),
        *fedssca.custom("share", lambda scores, batch: scores[:, 0], (0.2, None)),
        *fedssca.client_loss_at_most(0.5, [1, 3]),
    ]
    problem = fedssca.classifier(fedssca.linear(2, 2), limits)
    found = [
        (each.quantity, each.low, each.high, each.client, each.constraints)
        for each in stated(problem.bounds)
    ]
    assert found == [
        ("cost", None, 0.3, None, (0,)),
        ("parity_sex", -0.05, 0.05, None, (1, 2)),
        ("recall", 0.9, None, None, (3,)),
        ("share_lower", 0.2, None, None, (4,)),
        ("client_loss_0", None, 0.5, 0, (5,)),
        ("client_loss_1", None, 0.5, 1, (6,)),
    ]


def test_a_second_limit_of_a_quantity_stays_by_itself() -> None:
    twice = stated([Bound("a", high=1.0), Bound("a", high=2.0), Bound("a", low=0.0)])
    assert [(each.low, each.high, each.constraints) for each in twice] == [
        (0.0, 1.0, (0, 2)),
        (None, 2.0, (1,)),
    ]


def test_how_far_a_value_is_outside() -> None:
    (limit,) = stated([Bound("gap", high=0.1), Bound("gap", low=-0.1)])
    assert [limit.excess(value) for value in (0.25, -0.3, 0.04)] == pytest.approx(
        [0.15, 0.2, -0.06]
    )


@pytest.mark.parametrize(
    ("limit", "words"),
    [
        ((2, 1), "lower end is above the upper"),
        ((float("nan"), 1), "finite"),
        ((0, float("inf")), "finite"),
        (float("inf"), "finite"),
        ("much", "finite"),
        ((None, None), "at most one is None"),
        ((1, 2, 3), "at most one is None"),
        (None, "at most one is None"),
    ],
)
def test_a_limit_that_is_none_is_refused(limit: object, words: str) -> None:
    with pytest.raises(UserError, match=words):
        fedssca.custom("x", lambda scores, batch: scores[:, 0], limit)  # type: ignore[arg-type]
    with pytest.raises(UserError, match=rf"constraint 1.*{words}"):
        fedssca.custom_problem(lambda w, batch: w, jnp.zeros(1), limits=[limit])  # type: ignore[list-item]


def test_both_sides_of_a_custom_constraint_share_one_term() -> None:
    def spread(scores: jnp.ndarray, batch: dict) -> jnp.ndarray:
        return (scores[:, 1] - scores[:, 0]) * (batch["client"] == 1)

    model = fedssca.linear(features=1, classes=2)
    limits = fedssca.custom("spread", spread, (-0.5, 0.25))
    problem = fedssca.classifier(model, limits)
    assert problem.names == ("spread", "spread_lower")
    assert problem.combine.tolist() == [[1, 0], [0, 1], [0, -1]]
    assert problem.limits.tolist() == [0.25, 0.5]
    # z = 2 x + 1; client 1 holds the last two of four rows, so the mean is (5 + 7) / 4 = 3.
    parts = [{"x": np.array([[0.0], [1.0]]), "y": np.array([0, 1])}]
    parts += [{"x": np.array([[2.0], [3.0]]), "y": np.array([0, 1])}]
    row = evaluator_over(problem, Rows.of(parts), None).row(jnp.array([1.0, 2.0]))
    assert row["constraints"] == pytest.approx([3 - 0.25, -3 - 0.5])
    assert row["train_spread"] == pytest.approx(3)
    assert "train_spread_lower" not in row


def test_one_side_alone_is_reported_under_its_name() -> None:
    (only,) = fedssca.custom("share", lambda scores, batch: scores[:, 0], (0.2, None))
    assert (only.name, only.limit) == ("share_lower", -0.2)
    assert only.rates is not None


def test_pairs_in_a_custom_problem() -> None:
    def terms(w: jnp.ndarray, batch: dict) -> jnp.ndarray:
        ones = jnp.ones_like(batch["x"])
        return jnp.stack([(w[0] - 3) ** 2 * ones, w[0] * ones, w[0] ** 2 * ones])

    problem = fedssca.custom_problem(
        terms, jnp.ones(1), limits=[(1, 2), 9.0], names=["w", "square"], known=[0.5, 0.0, 0.25]
    )
    assert problem.names == ("w", "w_lower", "square")
    assert problem.combine.tolist() == [[1, 0, 0], [0, 1, 0], [0, -1, 0], [0, 0, 1]]
    assert problem.known.tolist() == [0.5, 0, 0, 0.25]
    assert problem.limits.tolist() == [2, -1, 9]
    with pytest.raises(UserError, match=r"w_lower.*not convex"):
        fedssca.custom_problem(
            terms, jnp.ones(1), limits=[(1, 2), 9.0], known=[0.0, 0.1], names=["w", "s"]
        )


def test_the_side_that_matters_is_active() -> None:
    """min mean (w - x)^2 with w from both sides: the optimum 0.5 lies below (1, 2), at w = 1."""
    rng = np.random.default_rng(0)
    x = rng.normal(0.5, 0.1, 200)

    def terms(w: jnp.ndarray, batch: dict) -> jnp.ndarray:
        return jnp.stack([(w[0] - batch["x"]) ** 2, w[0] * jnp.ones_like(batch["x"])])

    problem = fedssca.custom_problem(terms, jnp.full(1, 1.5), limits=[(1, 2)], names=["w"])
    rows = [{"x": part, "y": part} for part in np.split(x, 4)]
    clients = Rows.of(rows)
    algorithm = fedssca.auto(problem, clients, batch=50, rounds=300)
    result = fedssca.simulate(problem, clients, algorithm, 300)
    assert result.feasible
    assert result.w[0] == pytest.approx(1, abs=0.01)
    upper, lower = result.certificate["constraints"]
    assert (upper["name"], lower["name"]) == ("w", "w_lower")
    assert lower["margin"] < 0.01 < upper["margin"]
