"""SGD and its kin, worked by hand in numpy."""

from __future__ import annotations

import jax
import numpy as np
import pytest

from fedssca.data.sampling import batch_indices
from fedssca.data.split import Rows
from fedssca.errors import UserError
from fedssca.methods.schedule import power
from fedssca.methods.sgd import sgd, sgd_change
from fedssca.problem.constraints import loss_at_most
from fedssca.problem.custom import custom_problem
from fedssca.problem.models import classifier, mlp
from fedssca.problem.problem import Problem
from fedssca.rounds.fused import Fused

pytestmark = pytest.mark.usefixtures("float64")

SEED, SIZES, LAM = 8, (20, 40), 0.03
RATE = power(0.4, 0.5)


def network(**settings) -> Problem:
    return classifier(mlp(7, 5, 3, dtype="float64"), l2=LAM, **settings)


def local_sgd(
    columns, by_hand, w, rounds, batch, steps, momentum, mu=0.0, sizes=SIZES
) -> np.ndarray:
    numbers = np.arange(len(sizes))
    draw = jax.jit(lambda t: batch_indices(SEED, t, numbers, np.array(sizes), batch, steps))
    for t in range(1, rounds + 1):
        rate, models, first = 0.4 / np.sqrt(t), [], 0
        for size, rows in zip(sizes, np.asarray(draw(t)), strict=True):
            own, v = w.copy(), np.zeros_like(w)  # the momentum restarts here
            for now in (first + rows).reshape(steps, batch):
                slope = by_hand(own, columns["x"][now], columns["y"][now])[1].mean(axis=0)
                v = momentum * v + slope + 2 * LAM * own + mu * (own - w)
                own = own - rate * v
            models.append(own)
            first += size
        w = sum(size * own for size, own in zip(sizes, models, strict=True)) / sum(sizes)
    return w


@pytest.mark.long
@pytest.mark.parametrize(
    ("steps", "momentum", "mu", "name"),
    [
        (1, 0.0, 0.0, "sgd"),
        (3, 0.0, 0.0, "sgd"),
        (3, 0.8, 0.0, "momentum"),
        (3, 0.0, 0.7, "fedprox"),
    ],
)
def test_local_steps_by_hand(
    columns, by_hand, steps: int, momentum: float, mu: float, name: str
) -> None:
    p = network()
    method = sgd(p, batch=8, rate=RATE, steps=steps, momentum=momentum, mu=mu)
    end = Fused(p, Rows(columns, SIZES), method, SEED).advance(method.init(p.start), 4)
    expected = local_sgd(columns, by_hand, np.asarray(p.start), 4, 8, steps, momentum, mu)
    assert method.name == name
    assert int(end.round) == 4
    np.testing.assert_allclose(end.w, expected, rtol=0, atol=1e-12)


def test_the_proximal_term_keeps_clients_near_the_server(columns) -> None:
    p, rows = network(), Rows(columns, SIZES)
    lengths = []
    for mu in (0.0, 1.0, 2.0):
        method = sgd(p, batch=8, rate=power(0.4), steps=10, mu=mu)
        end = Fused(p, rows, method, SEED).advance(method.init(p.start), 1).w
        lengths.append(float(np.linalg.norm(end - p.start)))
    assert lengths == sorted(lengths, reverse=True)
    assert lengths[2] < 0.7 * lengths[0]


def test_with_one_step_a_round_momentum_does_nothing(columns) -> None:
    p = network()
    ends = []
    for momentum in (0.0, 0.9):
        method = sgd(p, batch=8, rate=RATE, momentum=momentum)
        ends.append(Fused(p, Rows(columns, SIZES), method, SEED).advance(method.init(p.start), 5).w)
    assert np.array_equal(*ends)


def test_full_batches_are_gradient_descent(columns, by_hand) -> None:
    p = network()
    method = sgd(p, batch=20, rate=RATE)
    end = Fused(p, Rows(columns, (20, 20, 20)), method, SEED).advance(method.init(p.start), 10)
    w = np.asarray(p.start)
    for t in range(1, 11):
        slope = by_hand(w, columns["x"], columns["y"])[1].mean(axis=0) + 2 * LAM * w
        w = w - 0.4 / np.sqrt(t) * slope
    np.testing.assert_allclose(end.w, w, rtol=0, atol=1e-12)


@pytest.mark.parametrize(("momentum", "mu"), [(0.0, 0.0), (0.5, 0.0), (0.0, 0.7), (0.5, 0.7)])
def test_the_change_of_local_steps_carries_a_constant_gradient(momentum: float, mu: float) -> None:
    p = custom_problem(lambda w, batch: (batch["x"] @ w)[None], np.array([1.0, -2.0]), known=LAM)
    settings = {"rate": RATE, "steps": 3, "momentum": momentum, "mu": mu}
    method, slope = sgd(p, batch=2, **settings), np.array([0.3, 0.5])
    asked = method.request(method.init(p.start))
    batch = {"x": np.tile(slope, (6, 1)), "weight": np.full(6, 1 / 6)}
    found = method.reply(p.terms, asked, jax.tree.map(jax.numpy.asarray, batch))
    change = sgd_change(p, **settings)(asked)
    np.testing.assert_allclose(
        found.vectors["change"], (change.centre + change.unit * slope) / 3, atol=1e-14
    )


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"momentum": 1.0}, r"momentum = 1\.0"),
        ({"momentum": -0.1}, r"momentum = -0\.1"),
        ({"steps": 0}, "local_steps = 0"),
        ({"mu": -1.0}, r"mu = -1\.0"),
    ],
)
def test_bad_settings_are_refused(settings, text: str) -> None:
    with pytest.raises(UserError, match=text):
        sgd(network(), batch=8, rate=RATE, **settings)


@pytest.mark.parametrize("objective", ["loss", "norm"])
def test_constraints_are_refused(objective: str) -> None:
    p = classifier(mlp(7, 5, 3), loss_at_most(0.5), objective=objective)
    with pytest.raises(UserError, match="ssca"):
        sgd(p, batch=8, rate=RATE)
