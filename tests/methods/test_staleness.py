"""Rounds that do not wait for slow clients: who counts when, and with which message."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedssca.data.split import Rows
from fedssca.errors import ConfigError, UserError
from fedssca.methods.algorithm import Algorithm, Message, State, first_state, publish
from fedssca.methods.schedule import power
from fedssca.methods.sgd import sgd
from fedssca.methods.staleness import Delays, clock_of, counted, of_several_rounds, timed
from fedssca.problem.models import classifier, mlp
from fedssca.rounds.fused import Fused
from fedssca.rounds.shapes import round_shapes
from fedssca.run.build import build
from fedssca.run.config import parse
from fedssca.run.execute import train

pytestmark = pytest.mark.usefixtures("float64")

SIZES = (12, 31, 17)
TIMES = (1.0, 1.0, 2.5)
ROUNDS = 12


@pytest.fixture(scope="module")
def problem() -> Any:
    return classifier(mlp(7, 5, 3, dtype="float64"), l2=0.01)


@pytest.fixture(scope="module")
def clients(columns: Any) -> Rows:
    parts = np.split(np.arange(60), np.cumsum(SIZES)[:-1])
    return Rows.of([{name: column[part] for name, column in columns.items()} for part in parts])


def slow(problem: Any, clients: Rows, algorithm: Algorithm, delays: Delays) -> Algorithm:
    made = of_several_rounds(algorithm)
    like = round_shapes(problem, clients, made)[1]
    return timed(made, problem, like, np.asarray(SIZES) / 60, delays)


def run(problem: Any, clients: Rows, algorithm: Algorithm, *stops: int) -> State:
    runtime, state = Fused(problem, clients, algorithm, 3), algorithm.init(problem.start)
    for stop in stops:
        state = runtime.advance(state, stop)
    return state


def witness(problem: Any) -> Algorithm:
    """Adds up N_i / N 10^i s_i of the messages that count."""

    def reply(terms: Any, request: Any, batch: Any) -> Message:
        del terms
        who = 10.0 ** batch["client"][0]
        value = batch["weight"].sum() * request.round * who
        return Message(jnp.reshape(value, (1,)), {})

    def update(state: State, total: Message) -> State:
        seen = state.memory.at[state.round].set(total.scalars[0])
        return state._replace(round=state.round + 1, memory=seen)

    init = lambda w: first_state(problem, w, jnp.zeros(ROUNDS, w.dtype))  # noqa: E731
    return Algorithm("witness", 4, 1, init, publish, reply, update)


def by_hand(enough: int, most: int) -> tuple[list[float], float]:
    """The same schedule, event by event."""
    shares = np.asarray(SIZES) / 60
    now, free_at, works_on, last = 0.0, [0.0] * 3, [0] * 3, [-(10**9)] * 3
    seen = []
    for t in range(1, ROUNDS + 1):
        for i in range(3):
            if free_at[i] <= now:
                free_at[i], works_on[i] = now + TIMES[i], t
        now = sorted(free_at)[enough - 1]
        for i in range(3):
            if free_at[i] <= now:
                last[i] = works_on[i]
        here = [i for i in range(3) if t - last[i] <= most]
        total = sum(shares[i] * 10.0**i * last[i] for i in here)
        seen.append(total / sum(shares[i] for i in here))
    return seen, now


@pytest.mark.parametrize(("enough", "most"), [(2, 5), (2, 1), (3, 5), (1, 9)])
def test_the_last_messages_count(problem: Any, clients: Rows, enough: int, most: int) -> None:
    end = run(
        problem, clients, slow(problem, clients, witness(problem), Delays(TIMES, enough, most)), 12
    )
    seen, now = by_hand(enough, most)
    np.testing.assert_allclose(end.memory.method, seen, rtol=1e-12)
    clock = clock_of(end)
    assert clock is not None
    assert float(clock.now) == now


def test_clients_that_are_alike_do_what_they_do_without(problem: Any, clients: Rows) -> None:
    plain = sgd(problem, batch=4, rate=power(0.5, 0.2))
    same = slow(problem, clients, plain, Delays.of([2.0] * 3, 0.5, 4))
    ours, theirs = (run(problem, clients, one, 6).w for one in (same, plain))
    np.testing.assert_allclose(ours, theirs, rtol=1e-10)


def test_the_clock_is_in_the_state(problem: Any, clients: Rows) -> None:
    """A run that was stopped goes on to the same bits."""
    made = slow(problem, clients, sgd(problem, batch=4, rate=power(0.5)), Delays(TIMES, 2, 5))
    once, twice = run(problem, clients, made, 9), run(problem, clients, made, 4, 9)
    jax.tree.map(np.testing.assert_array_equal, once, twice)


def test_a_round_without_messages_changes_nothing() -> None:
    total, covered = counted({"a": np.ones((2, 3))}, np.array([0.5, 0.5]), np.array([9, 7]), 5)
    assert (float(covered), float(total["a"].sum())) == (0.0, 0.0)


BASE = """
[data]
name = "digits"
clients = 8
[model]
name = "linear"
[problem]
objective = "norm"
[[problem.constraint]]
kind = "loss"
limit = 0.5
[algorithm]
batch = 20
rounds = 101
staleness = 12
delays = [1, 1, 1, 1, 1, 1, 1, 10]
[run]
evaluate_every = 50
"""


def test_nobody_waits_for_a_slow_client_and_the_limit_is_kept() -> None:
    job = build(parse(BASE))
    result = train(job)
    assert result.feasible
    last = result.rows[-1]
    assert last["clock"] == 100.0  # the slow client alone would need 1000
    whole = train(build(parse(BASE, ["algorithm.delays=[1,1,1,1,1,1,1,1]"]))).rows[-1]
    assert 0.87 < last["bytes_up"] / whole["bytes_up"] < 0.92  # 7.1 messages per round, not 8


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("privacy.secure_sum=true", "hidden sums do not show"),
        ("algorithm.cohort=3", "asks other clients"),
        ("privacy.epsilon=2", "accounted for messages that count in one round"),
        ("data.split=feature", "needed in every round"),
        ("algorithm.local_steps=2", "use local_steps = 1"),
        ("algorithm.staleness=0", "needs algorithm.staleness"),
        ("run.runtime=local", "simulates no delays"),
    ],
)
def test_what_does_not_go_with_staleness(setting: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parse(BASE, [setting])


def test_delays_that_make_no_sense(problem: Any) -> None:
    with pytest.raises(ConfigError, match="3 entries for 8 clients"):
        build(parse(BASE, ["algorithm.delays=[1,2,3]"]))
    with pytest.raises(UserError, match="above 0"):
        Delays.of([1.0, 0.0], 0.5, 3)
    with pytest.raises(UserError, match="use local_steps = 1"):
        of_several_rounds(sgd(problem, batch=4, rate=power(0.5), steps=3))
