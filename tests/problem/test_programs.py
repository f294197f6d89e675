"""The programs of a problem are made once, however many clients use them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fedssca
from fedssca.evaluate.passes import full_passes
from fedssca.methods.corrected import corrected_ssca
from fedssca.methods.steered import steered_ssca
from fedssca.problem.programs import number, shared
from fedssca.rounds.fused import Fused
from fedssca.rounds.in_process import Local


def test_clients_of_different_sizes_share_one_program() -> None:
    traced = []

    def terms(w, batch):
        traced.append(batch["x"].shape)
        return jnp.square(batch["x"] @ w - batch["y"])[None]

    rng = np.random.default_rng(0)
    data = {"x": rng.normal(size=(90, 3)), "y": rng.normal(size=90)}
    problem = fedssca.custom_problem(terms, jnp.zeros(3))
    algorithm = fedssca.sgd(problem, rate=fedssca.power(0.1, 0.1), batch=5)
    counts = []
    for sizes in ((90,), (20, 30, 40)):
        traced.clear()
        clients = fedssca.by_sample(data, len(sizes), sizes=list(sizes))
        local = Local(problem, clients, algorithm, seed=1)
        shapes_too = len(traced)
        local.advance(algorithm.init(problem.start), 2)
        counts.append(len(traced) - shapes_too)
    assert counts == [1, 0]


def test_another_problem_has_programs_of_its_own() -> None:
    problem = fedssca.custom_problem(lambda w, batch: batch["x"] @ w[None].T, jnp.zeros(3))
    assert full_passes(problem) is full_passes(problem)
    assert full_passes(replace(problem, notes=("another",))) is not full_passes(problem)


@pytest.fixture
def compiled() -> Iterator[list[str]]:
    """One entry for each program that is compiled while a test runs."""
    found: list[str] = []

    def hear(event: str, seconds: float, **about: object) -> None:
        if event.endswith("backend_compile_duration"):
            found.append(event)

    jax.monitoring.register_event_duration_secs_listener(hear)
    yield found
    jax.monitoring.unregister_event_duration_listener(hear)


def made(limit: float, step: float, name: str) -> tuple[Fused, fedssca.State]:
    """The rounds of a small network under one limit, with numbers of its own."""
    rng = np.random.default_rng(0)
    data = {"x": rng.normal(size=(60, 4)), "y": rng.integers(0, 3, 60).astype(np.int32)}
    clients = fedssca.by_sample(data, 3)
    free = name in ("sgd", "local")
    limits = () if free else fedssca.loss_at_most(limit)
    aim = {"objective": "loss", "l2": limit / 100} if free else {"objective": "norm"}
    problem = fedssca.classifier(fedssca.mlp(4, 5, 3), limits, **aim)
    rho, gamma = fedssca.power(step, step / 2), fedssca.power(step / 2, step)
    steps = {"batch": 5, "rho": rho, "gamma": gamma, "tau": step}
    more = {"batch": 5, "rate": gamma, "momentum": step / 2}
    method = {
        "exact": lambda: fedssca.ssca(problem, **steps, penalty=1e3 / step),
        "corrected": lambda: corrected_ssca(problem, **steps, rounds=20, balance=[1 / step]),
        "steered": lambda: steered_ssca(problem, **steps, rounds=20, opening=[step]),
        "local": lambda: fedssca.local_ssca(problem, **steps, rounds=20, steps=2),
        "sgd": lambda: fedssca.sgd(problem, **more, mu=step, steps=2),
        "augmented": lambda: fedssca.augmented_lagrangian(
            problem, **more, dual_rate=rho, penalty=step / 3, initial=step
        ),
        "switching": lambda: fedssca.switching(problem, **more, tolerance=-step / 9),
    }[name]()
    return Fused(problem, clients, method, seed=1), method.init(problem.start)


@pytest.mark.parametrize(
    "name", ["exact", "corrected", "steered", "local", "sgd", "augmented", "switching"]
)
def test_runs_that_differ_in_numbers_share_the_program_of_their_rounds(name, compiled) -> None:
    first, start = made(0.3, 0.7, name)
    before = first.advance(start, 9)
    other, start = made(0.4, 0.6, name)
    compiled.clear()
    after = other.advance(start, 9)
    assert not compiled
    assert not np.allclose(before.w, after.w, rtol=1e-3)


def test_a_shared_program_computes_with_the_numbers_of_each_function(compiled) -> None:
    def scaled(values, offset):
        return shared(lambda x: {"y": x * jnp.asarray(values) + number(offset)})

    one, other = scaled(np.array([2.0, 3.0]), 0.25), scaled(np.array([5.0, 7.0]), 0.75)
    x = jnp.array([1.0, 10.0])
    np.testing.assert_allclose(one(x)["y"], [2.25, 30.25])
    compiled.clear()
    np.testing.assert_allclose(other(x)["y"], [5.75, 70.75])
    assert not compiled


def test_functions_that_compute_something_else_share_nothing() -> None:
    def selected(places):
        return shared(lambda x: x[np.array(places)])

    def called(function):
        return shared(lambda x: jax.pure_callback(function, jax.typeof(x), x))

    x = jnp.array([1.0, 2.0, 3.0])
    np.testing.assert_array_equal(selected([0, 1])(x), [1, 2])
    np.testing.assert_array_equal(selected([2, 1])(x), [3, 2])
    np.testing.assert_array_equal(called(lambda x: np.asarray(x) + 1)(x), [2, 3, 4])
    np.testing.assert_array_equal(called(lambda x: np.asarray(x) + 2)(x), [3, 4, 5])
    np.testing.assert_array_equal(shared(lambda x: x + 1)(x), [2, 3, 4])
    np.testing.assert_array_equal(shared(lambda x: x + 3)(x), [4, 5, 6])


def test_keys_and_arrays_of_any_kind_may_be_held() -> None:
    key, half = jax.random.key(3), jnp.full(3, 0.5, jnp.bfloat16)

    def disturbed(x):
        return x + half + jnp.arange(3) * jax.random.normal(key, (3,))

    x = jnp.ones(3)
    np.testing.assert_allclose(shared(disturbed)(x), disturbed(x), rtol=1e-6)


def test_a_shared_program_may_be_part_of_others() -> None:
    x, tripled = jnp.array([1.0, 2.0]), shared(lambda x: x * number(3.5) + jnp.array([0.25, 0.5]))
    expected = [3.75, 7.5]
    assert jax.eval_shape(tripled, x).shape == (2,)
    np.testing.assert_allclose(jax.jit(tripled)(x), expected)
    np.testing.assert_allclose(tripled(x), expected)
    np.testing.assert_allclose(jax.vmap(tripled)(x[None])[0], expected)
    with jax.enable_x64(True):
        assert tripled(np.array([1.0, 2.0])).dtype == np.float64
    assert tripled(x).dtype == np.float32
