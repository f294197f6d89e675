"""What clients are sent: all of a request, or what they cannot derive from the last one."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest

from fedssca.data.split import Rows
from fedssca.evaluate.traffic import traffic_in
from fedssca.methods.algorithm import Algorithm, Request
from fedssca.methods.local_ssca import local_ssca
from fedssca.methods.participation import participation
from fedssca.methods.schedule import power
from fedssca.problem.models import classifier, mlp
from fedssca.rounds.broadcast import Publisher, RequestMemory, brief
from fedssca.rounds.codec import InvalidMessage
from fedssca.rounds.fused import Fused
from fedssca.rounds.in_process import Local

pytestmark = pytest.mark.usefixtures("float64")
STEPS: dict[str, Any] = {"rho": power(0.9, 0.55), "gamma": power(0.5, 0.6), "tau": 0.3}
SIZES, SEED, ROUNDS = (12, 31, 17), 3, 9


def problem() -> Any:
    return classifier(mlp(7, 5, 3, dtype="float64"), l2=0.02)


def method(p: Any) -> Algorithm:
    return local_ssca(p, batch=4, steps=3, rounds=ROUNDS + 1, **STEPS)


def requests(p: Any, algorithm: Algorithm, rows: Rows) -> list[Request]:
    """The requests of the first rounds, as the server means them."""
    runtime, state, found = Fused(p, rows, algorithm, SEED), algorithm.init(p.start), []
    for t in range(5):
        state = runtime.advance(state, t)
        found.append(algorithm.request(state))
    return found


def test_a_client_derives_the_average_from_two_points(columns: dict[str, np.ndarray]) -> None:
    p = problem()
    algorithm = method(p)
    found = requests(p, algorithm, Rows(columns, SIZES))
    client = RequestMemory(p, algorithm)
    client.complete(found[0])
    for asked in found[1:]:
        short = brief(asked, algorithm)
        assert short is not None
        assert jax.tree.leaves(short.average) == []
        derived = client.complete(short)
        np.testing.assert_allclose(derived.average, asked.average, rtol=1e-9, atol=1e-12)
        again = client.complete(short)  # a sum that failed is asked for again
        np.testing.assert_array_equal(again.average, derived.average)


def test_a_client_that_was_away_refuses_to_guess(columns: dict[str, np.ndarray]) -> None:
    p = problem()
    algorithm = method(p)
    found = requests(p, algorithm, Rows(columns, SIZES))
    client = RequestMemory(p, algorithm)
    with pytest.raises(InvalidMessage, match="was not in the round before"):
        client.complete(brief(found[1], algorithm))
    begun = client.complete(brief(found[0], algorithm))  # nothing has happened before round 1
    np.testing.assert_array_equal(begun.average, found[0].average)
    with pytest.raises(InvalidMessage, match=r"round 3: .* needs all of the request"):
        client.complete(brief(found[2], algorithm))


def test_who_answered_the_last_round_is_sent_less(columns: dict[str, np.ndarray]) -> None:
    p = problem()
    algorithm = method(p)
    found = requests(p, algorithm, Rows(columns, SIZES))
    server = Publisher(p, algorithm)

    def full(request: Request, who: list[int]) -> set[int]:
        return {n for n, sent in server.address(request, who).items() if len(sent.average)}

    assert full(found[0], [0, 1, 2]) == set()
    server.answered([0, 2])
    assert full(found[1], [0, 1, 2]) == {1}
    server.answered([0, 1, 2])
    back = found[2]._replace(average=found[0].average, w=found[0].w)  # after training went back
    assert full(back, [0, 1, 2]) == {0, 1, 2}
    assert full(found[3], [0, 1, 2]) == {0, 1, 2}  # nobody answered the round before


def test_cohorts_that_change_get_what_they_need(columns: dict[str, np.ndarray]) -> None:
    p, rows = problem(), Rows(columns, SIZES)
    algorithm = participation(method(p), clients=3, cohort=2, seed=SEED, dropout=0.3)
    local, start = Local(p, rows, algorithm, SEED), algorithm.init(p.start)
    fused = Fused(p, rows, algorithm, SEED).advance(start, ROUNDS)
    sent = local.advance(start, ROUNDS)
    np.testing.assert_allclose(sent.w, fused.w, rtol=1e-9, atol=1e-12)
    foretold = traffic_in(p, rows, algorithm)
    assert local.bytes_down == foretold(ROUNDS).down
    least = foretold(1).down * ROUNDS
    assert least < local.bytes_down < least + 2 * p.start.nbytes * ROUNDS
