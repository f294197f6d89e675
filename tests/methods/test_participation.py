"""Partial participation: unbiased, the same in both runtimes, harmless when nobody answers."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedssca.data.split import Columns, Rows
from fedssca.errors import UserError
from fedssca.methods.algorithm import Algorithm, Message, first_state, publish
from fedssca.methods.local_ssca import local_ssca
from fedssca.methods.participation import participation
from fedssca.methods.schedule import power
from fedssca.methods.sgd import sgd
from fedssca.problem.models import classifier, mlp
from fedssca.rounds.fused import Fused
from fedssca.rounds.in_process import Local
from fedssca.run.build import build
from fedssca.run.config import parse
from fedssca.run.execute import train

pytestmark = pytest.mark.usefixtures("float64")

SIZES = (12, 31, 17)
STEPS = {"rho": power(0.9, 0.55), "gamma": power(0.5, 0.6)}


@pytest.fixture(scope="module")
def problem() -> Any:
    return classifier(mlp(7, 5, 3, dtype="float64"), l2=0.01)


def counter(problem: Any) -> Algorithm:
    """Adds up what the round's clients weigh together, and whose rows they were."""

    def reply(terms: Any, request: Any, batch: Any) -> Message:
        return Message(batch["weight"].sum(), {})

    def update(state: Any, total: Message) -> Any:
        return state._replace(round=state.round + 1, memory=state.memory + total.scalars)

    def init(w: Any) -> Any:
        return first_state(problem, w, jnp.zeros(()))

    return Algorithm("counter", 4, 1, init, publish, reply, update)


@pytest.mark.parametrize("dropout", [0.0, 0.4])
def test_the_cohorts_mean_is_that_of_all(problem: Any, columns: Any, dropout: float) -> None:
    rounds = 4000
    method = participation(counter(problem), clients=3, cohort=2, seed=1, dropout=dropout)
    runtime = Fused(problem, Rows(columns, SIZES), method, 1)
    state = runtime.advance(method.init(problem.start), rounds)
    lost = rounds * dropout**2
    assert float(state.memory) / (rounds - lost) == pytest.approx(1.0, abs=0.03)


def test_cohorts_are_drawn_anew_without_replacement_and_evenly(problem: Any) -> None:
    method = participation(counter(problem), clients=40, cohort=7, seed=3, dropout=0.25)
    asked = jax.jit(lambda t: method.request(method.init(problem.start)._replace(round=t)).turnout)
    seen, answered = np.zeros(40), []
    for t in range(600):
        turnout = asked(jnp.int32(t))
        numbers = np.asarray(turnout.asked)
        assert len(set(numbers.tolist())) == 7
        seen[numbers] += 1
        answered.append(np.asarray(turnout.answers).mean())
    assert np.abs(seen / 600 - 7 / 40).max() < 0.06
    assert np.mean(answered) == pytest.approx(0.75, abs=0.03)


@pytest.mark.long
@pytest.mark.parametrize("name", ["sgd", "momentum", "local ssca"])
def test_both_runtimes_agree(problem: Any, columns: Any, name: str) -> None:
    make = {
        "sgd": lambda: sgd(problem, batch=5, rate=power(0.3)),
        "momentum": lambda: sgd(problem, batch=5, rate=power(0.2), steps=2, momentum=0.5),
        "local ssca": lambda: local_ssca(problem, batch=5, steps=2, rounds=9, tau=0.3, **STEPS),
    }[name]
    method = participation(make(), clients=3, cohort=2, seed=5, dropout=0.5)
    ends = [
        runtime(problem, Rows(columns, SIZES), method, 5).advance(method.init(problem.start), 8)
        for runtime in (Fused, Local)
    ]
    np.testing.assert_allclose(ends[0].w, ends[1].w, rtol=1e-9, atol=1e-12)


def test_a_round_without_answers_changes_nothing(problem: Any, columns: Any) -> None:
    method = participation(
        sgd(problem, batch=5, rate=power(0.3)), clients=3, cohort=1, seed=5, dropout=0.999
    )
    for runtime in (Fused, Local):
        state = runtime(problem, Rows(columns, SIZES), method, 5).advance(
            method.init(problem.start), 5
        )
        assert int(state.round) == 5
        assert np.array_equal(state.w, problem.start)


def test_all_in_the_cohort_is_everybody(problem: Any, columns: Any) -> None:
    method = sgd(problem, batch=5, rate=power(0.3))
    every = participation(method, clients=3, cohort=3, seed=5)
    ends = [
        Fused(problem, Rows(columns, SIZES), each, 5).advance(each.init(problem.start), 6).w
        for each in (method, every)
    ]
    np.testing.assert_allclose(*ends, rtol=1e-10)


@pytest.mark.long
def test_many_clients_learn_from_a_few_a_round() -> None:
    text = "[data]\nclients = 100\n[model]\nhidden = 16\n[algorithm]\nbatch = 10\nrounds = 150\n"
    text += "name = 'sgd'\n"
    extra = ["algorithm.cohort=10", "algorithm.dropout=0.2", "run.evaluate_every=75"]
    result = train(build(parse(text, extra)))
    assert result.final["test_accuracy"] > 0.85
    whole = build(parse(text))
    assert result.final["bytes_up"] == pytest.approx(0.1 * train(whole).final["bytes_up"])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (["algorithm.cohort=11"], "cohort = 11: it must lie between 1 and the 10 clients"),
        (["algorithm.dropout=0.5"], "needs algorithm.cohort"),
        (["algorithm.cohort=2", "algorithm.dropout=1.0"], "dropout = 1.0"),
        (["algorithm.cohort=2", "data.split=feature"], "parties that hold columns are needed"),
        (["algorithm.cohort=-1"], "algorithm.cohort = -1"),
    ],
)
def test_bad_cohorts(settings: list[str], message: str) -> None:
    with pytest.raises(UserError, match=message):
        build(parse("[algorithm]\nname = 'sgd'\n", settings))


def test_a_cohort_of_other_clients(problem: Any, columns: Any) -> None:
    method = participation(sgd(problem, batch=5, rate=power(0.3)), clients=4, cohort=2)
    with pytest.raises(UserError, match="drawn from 4 clients, but 3 hold data"):
        Fused(problem, Rows(columns, SIZES), method, 0)
    with pytest.raises(UserError, match="in every round"):
        Fused(problem, Columns(columns, (np.arange(7),)), method, 0)
