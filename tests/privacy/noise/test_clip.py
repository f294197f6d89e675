"""No unit counts for more than its bound: against a loop over samples, and as a property."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedssca.methods.algorithm import Algorithm, LocalChange, Message, Request
from fedssca.methods.calibrate import probe
from fedssca.methods.curvature import diagonal
from fedssca.methods.local_ssca import local_ssca, local_ssca_change
from fedssca.methods.multipliers import exact_penalty
from fedssca.methods.schedule import power
from fedssca.methods.sgd import sgd, sgd_change
from fedssca.methods.ssca import ssca
from fedssca.methods.steered import steered_ssca
from fedssca.privacy.noise import clip as clipping
from fedssca.privacy.noise.clip import ReadChange, per_client, per_sample
from fedssca.problem.constraints import loss_at_most
from fedssca.problem.models import classifier, mlp
from fedssca.problem.problem import Problem

pytestmark = pytest.mark.usefixtures("float64")
P, J, L, N, CLIP, VALUE = 4, 3, 3, 12, 0.4, 0.9
STEPS: dict[str, Any] = {"rho": power(1.0, 0.55), "gamma": power(0.9, 0.9)}
rng = np.random.default_rng(3)
DATA = {
    "x": rng.normal(size=(N, P)) * rng.uniform(0.1, 4, (N, 1)),
    "y": rng.integers(0, L, N).astype(np.int32),
    "client": np.zeros(N, np.int32),
    "weight": rng.uniform(0.5, 2, N) / N,
}


def network(*limits: float) -> Problem:
    limited = [each for limit in limits for each in loss_at_most(limit)]
    return classifier(mlp(P, J, L, dtype="float64"), limited, objective="loss", l2=0.1)


with jax.enable_x64(True):
    FREE, LIMITED = network(), network(0.5)
STEER: dict[str, Any] = {**STEPS, "rounds": 9, "tau": 0.2, "opening": [0.7]}
METHODS: dict[str, Callable[[], tuple[Problem, Algorithm]]] = {
    "ssca": lambda: (LIMITED, ssca(LIMITED, batch=N, **STEPS)),
    "steered": lambda: (LIMITED, steered_ssca(LIMITED, batch=N, **STEER)),
    "probe": lambda: (LIMITED, probe(LIMITED, N)),
    "sgd": lambda: (FREE, sgd(FREE, batch=N, rate=power(0.3, 0.5))),
    "curvature": lambda: (
        LIMITED,
        ssca(
            LIMITED,
            batch=N,
            **STEPS,
            surrogate=diagonal(LIMITED, 0.2),
            dual=exact_penalty(LIMITED, 1.0),
        ),
    ),
}
CHANGES: dict[str, ReadChange] = {"sgd": sgd_change(FREE, rate=power(0.3, 0.5))}


def request(problem: Problem, algorithm: Algorithm) -> Request:
    return algorithm.request(algorithm.init(problem.start * 1.5)._replace(round=jnp.asarray(3)))


def naive(
    problem: Problem, algorithm: Algorithm, asked: Request, change: ReadChange | None
) -> Message:
    """One sample after another, in numpy."""
    still = change(asked) if change else LocalChange(jnp.zeros(()), jnp.ones(()))
    totals: list[np.ndarray] = []
    shape = None
    for n in range(N):
        row = {name: jnp.asarray(column[n : n + 1]) for name, column in DATA.items()}
        message = algorithm.reply(problem.terms, asked, row | {"weight": jnp.ones(1)})
        slopes = [
            (np.asarray(v) - still.centre) / still.unit for v in jax.tree.leaves(message.vectors)
        ]
        length = np.sqrt(sum(np.sum(s**2) for s in slopes))
        clipped = [np.clip(v, -VALUE, VALUE) for v in jax.tree.leaves(message.scalars)]
        clipped += [still.centre + still.unit * s * min(1, CLIP / length) for s in slopes]
        weighed = [DATA["weight"][n] * np.asarray(part) for part in clipped]
        totals = [a + b for a, b in zip(totals, weighed, strict=True)] if totals else weighed
        shape = jax.tree.structure(message)
    assert shape is not None
    result: Message = jax.tree.unflatten(shape, totals)
    return result


@pytest.mark.parametrize("method", METHODS)
def test_clipped_samples_are_those_of_a_loop(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    problem, algorithm = METHODS[method]()
    asked = request(problem, algorithm)
    due = naive(problem, algorithm, asked, CHANGES.get(method))
    monkeypatch.setattr(clipping, "ROOM", 8 * 5 * problem.dimension)  # several uneven parts
    clipped = per_sample(algorithm, CLIP, VALUE, change=CHANGES.get(method))
    got = clipped.reply(problem.terms, asked, DATA)
    for a, b in zip(jax.tree.leaves(due), jax.tree.leaves(got), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("method", ["sgd", "steered"])
def test_samples_that_weigh_nothing_send_nothing(method: str) -> None:
    problem, algorithm = METHODS[method]()
    clipped = per_sample(algorithm, CLIP, VALUE, change=CHANGES.get(method))
    none = DATA | {"weight": np.zeros(N), "share": np.zeros(N)}
    got = clipped.reply(problem.terms, request(problem, algorithm), none)
    assert all(not np.any(leaf) for leaf in jax.tree.leaves(got))


@pytest.mark.parametrize("method", METHODS)
def test_wide_bounds_change_nothing(method: str) -> None:
    problem, algorithm = METHODS[method]()
    asked = request(problem, algorithm)
    plain = algorithm.reply(problem.terms, asked, DATA)
    change = CHANGES.get(method)
    for wide in (
        per_sample(algorithm, 1e9, 1e9, change=change),
        per_client(algorithm, 1e9, 1e9, change=change),
    ):
        got = wide.reply(problem.terms, asked, DATA)
        for a, b in zip(jax.tree.leaves(plain), jax.tree.leaves(got), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("method", ["sgd", "momentum", "ssca"])
def test_a_client_with_local_steps_counts_at_most_its_bound(method: str) -> None:
    rate = power(0.3, 0)
    read = {name: STEER[name] for name in ("rho", "gamma", "tau")}
    made: dict[str, Any] = {
        "sgd": lambda: (
            sgd(FREE, batch=4, rate=rate, steps=3),
            sgd_change(FREE, rate=rate, steps=3),
        ),
        "momentum": lambda: (
            sgd(FREE, batch=4, rate=rate, steps=3, momentum=0.5),
            sgd_change(FREE, rate=rate, steps=3, momentum=0.5),
        ),
        "ssca": lambda: (
            local_ssca(LIMITED, batch=4, steps=3, **STEER),
            local_ssca_change(LIMITED, steps=3, **read),
        ),
    }
    algorithm, change = made[method]()
    problem = LIMITED if method == "ssca" else FREE
    asked = request(problem, algorithm)
    batch = DATA | {"weight": np.full(N, 0.6 / N * 3)}  # N_i / N = 0.6
    bound = 0.05
    clipped = per_client(algorithm, bound, 0.5, change)
    message = clipped.reply(problem.terms, asked, batch)
    still = change(asked)
    slope = (message.vectors["change"] / 0.6 - still.centre) / still.unit
    assert np.linalg.norm(slope) == pytest.approx(bound, rel=1e-6)
    assert all(abs(v) <= 0.3 + 1e-12 for v in np.ravel(jax.tree.leaves(message.scalars) or [0.0]))


def test_the_gradient_that_led_there_is_read_back() -> None:
    """With one sample again and again the frame of SGD gives its own mean gradient."""
    algorithm = sgd(FREE, batch=1, rate=power(1e-7, 0), steps=3, momentum=0.4)
    asked = request(FREE, algorithm)
    batch = {name: np.repeat(column[:1], 3, 0) for name, column in DATA.items()}
    batch["weight"] = np.ones(3)
    change = algorithm.reply(FREE.terms, asked, batch).vectors["change"]
    still = sgd_change(FREE, rate=power(1e-7, 0), steps=3, momentum=0.4)(asked)
    one = {name: jnp.asarray(column[:1]) for name, column in DATA.items()}
    slope = jax.grad(lambda w: FREE.terms(w, one)[0, 0])(asked.w)
    np.testing.assert_allclose((change - still.centre) / still.unit, slope, rtol=1e-5)


with jax.enable_x64(True):
    PROBLEM, STEERED = METHODS["steered"]()
    ASKED = request(PROBLEM, STEERED)
CLIPPED = per_sample(STEERED, CLIP, VALUE)
REPLY = jax.jit(lambda batch: CLIPPED.reply(PROBLEM.terms, ASKED, batch))


@settings(max_examples=40, deadline=None)
@given(st.integers(0, N - 1), st.floats(1e-3, 1e6), st.integers(0, L - 1))
def test_one_sample_more_or_less_moves_the_message_by_its_bound(
    n: int, size: float, y: int
) -> None:
    x, labels = DATA["x"].copy(), DATA["y"].copy()
    x[n], labels[n] = size * x[n], y
    there = DATA | {"x": x, "y": labels}
    gone = there | {"weight": np.where(np.arange(N) == n, 0, DATA["weight"])}
    with jax.enable_x64(True):
        a, b = REPLY(there), REPLY(gone)
        least = 1e-9
        moved = np.linalg.norm(np.asarray(a.vectors["gradient"] - b.vectors["gradient"]))
        assert moved <= DATA["weight"][n] * CLIP + least
        assert np.abs(a.scalars - b.scalars).max() <= DATA["weight"][n] * VALUE + least
