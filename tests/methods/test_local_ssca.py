"""Local SSCA: one step is the algorithm it extends, several are written again in numpy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest

from fedssca.data.sampling import batch_indices
from fedssca.data.split import Rows
from fedssca.errors import UserError
from fedssca.methods.local_ssca import local_ssca
from fedssca.methods.schedule import power
from fedssca.methods.ssca import ssca
from fedssca.methods.steered import steered_ssca
from fedssca.methods.surrogate import first_order
from fedssca.problem.constraints import loss_at_most
from fedssca.problem.models import classifier, mlp
from fedssca.rounds.fused import Fused
from fedssca.run.build import build
from fedssca.run.config import parse
from fedssca.run.execute import train

pytestmark = pytest.mark.usefixtures("float64")

P, J, L = 7, 5, 3
SIZES, B, SEED, TAU, L2 = (12, 31, 17), 4, 3, 0.3, 0.02
STEPS = {"rho": power(0.9, 0.55), "gamma": power(0.5, 0.6)}


def network(*constraints: Any, **settings: Any) -> Any:
    return classifier(mlp(P, J, L, dtype="float64"), *constraints, **settings)


def end(problem: Any, columns: dict[str, np.ndarray], algorithm: Any, rounds: int = 8) -> Any:
    runtime = Fused(problem, Rows(columns, SIZES), algorithm, SEED)
    return runtime.advance(algorithm.init(problem.start), rounds)


@pytest.mark.long
@pytest.mark.parametrize("exact", [False, True])
def test_one_local_step_is_algorithm_1(columns: dict[str, np.ndarray], exact: bool) -> None:
    problem = network(l2=L2)
    local = local_ssca(problem, batch=B, steps=1, rounds=9, tau=TAU, exact=exact, **STEPS)
    paper = ssca(problem, batch=B, surrogate=first_order(problem, TAU, exact=exact), **STEPS)
    left, right = (end(problem, columns, algorithm) for algorithm in (local, paper))
    np.testing.assert_allclose(left.w, right.w, rtol=1e-11, atol=1e-12)
    np.testing.assert_allclose(left.memory.average, right.memory.average[0][0], rtol=1e-9)


def test_one_local_step_with_a_limit_is_steered_ssca(columns: dict[str, np.ndarray]) -> None:
    problem = network(loss_at_most(0.8), objective="norm")
    shared = {"batch": B, "rounds": 9, "tau": TAU, "opening": [30.0], **STEPS}
    local, steered = local_ssca(problem, steps=1, **shared), steered_ssca(problem, **shared)
    left, right = (end(problem, columns, algorithm) for algorithm in (local, steered))
    np.testing.assert_allclose(left.w, right.w, rtol=1e-11, atol=1e-12)
    np.testing.assert_allclose(left.multipliers, right.multipliers, rtol=1e-11)


@pytest.mark.long
def test_local_steps_by_hand(
    columns: dict[str, np.ndarray], by_hand: Callable[..., tuple[np.ndarray, np.ndarray]]
) -> None:
    """Three steps a client, and the one gradient that would have led to the mean of the models."""
    steps, rounds, problem = 3, 4, network(l2=L2)
    algorithm = local_ssca(problem, batch=B, steps=steps, rounds=9, tau=TAU, **STEPS)
    total, offsets = sum(SIZES), np.cumsum((0, *SIZES[:-1]))
    w, b = np.asarray(problem.start), np.zeros(problem.start.size)
    for t in range(1, rounds + 1):
        rho, gamma = 0.9 / t**0.55, 0.5 / t**0.6
        index = np.asarray(batch_indices(SEED, t, np.arange(3), np.array(SIZES), B, steps))

        def step(w, b, g, rho=rho, gamma=gamma):
            b = (1 - rho) * b + rho * (g + 2 * L2 * w - 2 * TAU * w)
            return (1 - gamma) * w - gamma * b / (2 * TAU), b

        ends = []
        for i in range(3):
            own = (w, b)
            for rows in (offsets[i] + index[i]).reshape(steps, B):
                _, slopes = by_hand(own[0], columns["x"][rows], columns["y"][rows])
                own = step(*own, slopes.mean(axis=0))
            ends.append(own[0])
        mean = sum(n / total * w_i for n, w_i in zip(SIZES, ends, strict=True))

        # The end of E steps is affine in the gradient: two trial gradients find the right one.
        def way(g, w=w, b=b, step=step):
            for _ in range(steps):
                w, b = step(w, b, g)
            return w, b

        zero, one = way(np.zeros_like(w)), way(np.ones_like(w))
        ghat = (mean - zero[0]) / (one[0] - zero[0])
        w, b = mean, way(ghat)[1]
    state = end(problem, columns, algorithm, rounds)
    np.testing.assert_allclose(state.w, w, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(state.memory.average, b, rtol=1e-9, atol=1e-11)


@pytest.mark.filterwarnings("ignore:convergence is not guaranteed")
def test_clients_with_the_same_gradient_do_in_one_round_what_one_does_in_several() -> None:
    """No noise, no difference: E local steps are E rounds of Algorithm 1 (constant step sizes)."""
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(6, P)), rng.integers(0, L, 6).astype(np.int32)
    columns = {"x": np.tile(x, (2, 1)), "y": np.tile(y, 2)}
    problem, steps = network(l2=L2), {"rho": power(0.6), "gamma": power(0.3)}
    local = local_ssca(problem, batch=6, steps=4, rounds=9, tau=TAU, **steps)
    paper = ssca(problem, batch=6, tau=TAU, **steps)
    runs = [Fused(problem, Rows(columns, (6, 6)), each, SEED) for each in (local, paper)]
    first = runs[0].advance(local.init(problem.start), 1)
    many = runs[1].advance(paper.init(problem.start), 4)
    np.testing.assert_allclose(first.w, many.w, rtol=1e-10)


@pytest.mark.long
@pytest.mark.parametrize("limit", [None, 0.25])
def test_local_steps_need_fewer_rounds_and_keep_the_limit(limit: float | None) -> None:
    text = '[data]\nname = "digits"\n[model]\nhidden = 32\n[algorithm]\nbatch = 10\n'
    settings = ["algorithm.rounds=150", "run.evaluate_every=10", 'run.precision="float64"']
    if limit:
        text += (
            f'[problem]\nobjective = "norm"\nconstraint = [{{kind = "loss", limit = {limit}}}]\n'
        )
    one, several = (
        train(build(parse(text, [*settings, f"algorithm.local_steps={steps}"]))) for steps in (1, 5)
    )
    if limit:
        assert several.feasible
        assert several.final["norm_sq"] < 1.05 * one.final["norm_sq"] or not one.feasible
    else:
        assert several.final["train_cost"] < 0.7 * one.final["train_cost"]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (["algorithm.surrogate=diagonal"], 'use local_steps = 1, or surrogate = "first-order"'),
        (
            ["algorithm.multipliers=exact", "problem.constraint=[{kind='loss',limit=0.5}]"],
            'with constraints local steps need multipliers = "steered"',
        ),
    ],
)
def test_what_local_steps_cannot_do(settings: list[str], message: str) -> None:
    config = parse("[algorithm]\nlocal_steps = 2\nrho = 0.5\ngamma = 0.5\ntau = 1.0\n", settings)
    with pytest.raises(UserError, match=message):
        build(config)


def test_bad_arguments() -> None:
    problem = network(l2=L2)
    with pytest.raises(UserError, match="local_steps = 0"):
        local_ssca(problem, batch=1, steps=0, rounds=5, tau=1.0, **STEPS)
    with pytest.raises(UserError, match="opening"):
        local_ssca(problem, batch=1, steps=2, rounds=5, tau=1.0, opening=[1.0], **STEPS)


def test_one_vector_goes_up(columns: dict[str, np.ndarray]) -> None:
    problem = network(l2=L2)
    algorithm = local_ssca(problem, batch=B, steps=2, rounds=5, tau=TAU, **STEPS)
    asked = algorithm.request(algorithm.init(problem.start))
    batch = {k: v[: 2 * B] for k, v in columns.items()} | {"weight": np.full(2 * B, 1 / 60)}
    message = algorithm.reply(problem.terms, asked, batch)
    assert [leaf.shape for leaf in jax.tree.leaves(message.vectors)] == [problem.start.shape]
