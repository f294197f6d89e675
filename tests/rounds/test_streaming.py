"""Clients that stream: the trajectory of fixed rows, each row once, and a clear word at the end."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from queue import Queue
from typing import Any

import jax
import numpy as np
import pytest

from fedssca import client_loss_at_most, loss_at_most, participation, power, sgd, simulate, ssca
from fedssca.data import Rows, Streams, from_queue
from fedssca.data.sampling import batch_indices
from fedssca.errors import UserError
from fedssca.methods.algorithm import Algorithm, Request
from fedssca.problem.models import classifier, mlp
from fedssca.problem.problem import Problem
from fedssca.rounds import streaming
from fedssca.rounds.fused import Fused
from fedssca.rounds.in_process import Local
from fedssca.rounds.streaming import Ended, Streaming
from fedssca.run.build.calibrate import auto

pytestmark = pytest.mark.usefixtures("float64")

SIZES, SEED, ROUNDS = (12, 31, 17), 5, 14
STEPS = {"rho": power(0.9, 0.55), "gamma": power(0.5, 0.6)}


@pytest.fixture(scope="module")
def problem() -> Problem:
    return classifier(mlp(7, 5, 3, dtype="float64"), l2=0.01)


@pytest.fixture(scope="module")
def limited() -> Problem:
    return classifier(mlp(7, 5, 3, dtype="float64"), loss_at_most(0.9), objective="norm")


@pytest.fixture
def tight(monkeypatch: pytest.MonkeyPatch) -> None:
    """Room for a few rounds only, so that a run needs many buffers."""
    monkeypatch.setattr(streaming, "BUFFER", 5_000)


def answering(request: Request, clients: int) -> dict[int, bool]:
    """Each client that is asked, and whether it answers."""
    if not request.turnout:
        return dict.fromkeys(range(clients), True)
    parts = (request.turnout.asked, request.turnout.answers)
    return dict(zip(*(np.asarray(part).tolist() for part in parts), strict=True))


def replay(rows: Rows, algorithm: Algorithm, problem: Problem, rounds: int) -> list[list[Any]]:
    """For each client the batches that `Fused` would draw, in the rounds in which it answers."""
    sources: list[list[Any]] = [[] for _ in SIZES]
    start = algorithm.init(problem.start)
    for done in range(rounds):
        request = algorithm.request(start._replace(round=np.int32(done)))
        for client, answers in answering(request, rows.count).items():
            if answers:
                number, size = np.array([client]), np.array([SIZES[client]])
                batch, steps = algorithm.batch, algorithm.steps
                (index,) = batch_indices(SEED, request.round, number, size, batch, steps)
                own = rows.client(client)
                sources[client].append({n: v[np.asarray(index)] for n, v in own.items()})
    return sources


def in_single_rows(blocks: list[Any]) -> Iterator[Any]:
    for block in blocks:
        for i in range(len(block["y"])):
            yield {name: column[i : i + 1] for name, column in block.items()}


METHODS = {
    "ssca": lambda p, c: ssca(p, batch=5, tau=0.3, **STEPS),
    "ssca with a limit": lambda p, c: ssca(c, batch=5, tau=0.3, **STEPS),
    "sgd": lambda p, c: sgd(p, batch=5, rate=power(0.3)),
    "local momentum": lambda p, c: sgd(p, batch=5, rate=power(0.2), steps=3, momentum=0.5),
}


@pytest.mark.long
@pytest.mark.parametrize("cohort", [None, 0.0, 0.4], ids=["all", "cohort", "silent members"])
@pytest.mark.parametrize("name", METHODS)
@pytest.mark.usefixtures("tight")
def test_replayed_batches_give_the_trajectory_of_fixed_rows(
    problem: Problem, limited: Problem, columns: Any, name: str, cohort: float | None
) -> None:
    method, own = METHODS[name](problem, limited), limited if "limit" in name else problem
    if cohort is not None:
        method = participation(method, clients=3, cohort=2, seed=1, dropout=cohort)
    rows = Rows(columns, SIZES)
    sources = replay(rows, method, own, ROUNDS)
    sources[1] = in_single_rows(sources[1])  # type: ignore[call-overload]
    fixed = Fused(own, rows, method, SEED)
    stream = Streaming(own, Streams(sources, check=columns, weights=SIZES), method)
    a = b = method.init(own.start)
    for stop in (0, 1, 9, ROUNDS):
        a, b = fixed.advance(a, stop), stream.advance(b, stop)
        assert int(b.round) == stop
        for one, other in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-12)
    assert stream.ended is None
    assert stream.advance(b, ROUNDS + 50).round < ROUNDS + 50
    assert stream.ended is not None, "all rows were used, none twice"


def numbered(rows: int, block: int, first: int = 0) -> Iterator[Any]:
    """Rows that differ, in blocks; three classes."""
    rng = np.random.default_rng(first)
    for start in range(0, rows, block):
        x = rng.normal(size=(min(block, rows - start), 7))
        yield {"x": x, "y": x[:, :3].argmax(1).astype(np.int32)}


def three(*rows: int, block: int = 9, **options: Any) -> Streams:
    held = next(numbered(200, 200, 99))
    sources = [numbered(n, block, i) for i, n in enumerate(rows)]
    return Streams(sources, **({"check": held} | options))


def test_an_end_is_a_result_with_a_note(problem: Problem) -> None:
    method = sgd(problem, batch=5, rate=power(0.3))
    seen: list[Any] = []
    result = simulate(
        problem, three(1000, 183, 1000), method, 100, checkpoint_every=50, on_checkpoint=seen.append
    )
    assert [row["round"] for row in result.rows] == [0, 10, 20, 30, 36]
    assert int(result.state.round) == 36
    assert (
        "client 1's rows ended after 183 rows, in round 37 of 99: the model was trained for "
        "36 rounds; give it more rows or ask for fewer rounds"
    ) in result.notes
    assert [int(each.state.round) for each in seen] == [0, 36]
    whole = simulate(problem, three(1000, 180, 1000), method, 37)
    assert np.array_equal(whole.last, result.last)
    assert not any("ended" in note for note in whole.notes)
    assert whole.final["bytes_up"] == result.final["bytes_up"] == 36 * 3 * problem.dimension * 8


def test_an_end_right_after_an_evaluation_or_before_round_1(problem: Problem) -> None:
    method = sgd(problem, batch=5, rate=power(0.3))
    result = simulate(problem, three(1000, 1000, 100), method, 100)
    assert [row["round"] for row in result.rows] == [0, 10, 20]
    assert "client 2's rows ended after 100 rows, in round 21" in " ".join(result.notes)
    nothing = simulate(problem, three(1000, 0, 1000), method, 100)
    assert [row["round"] for row in nothing.rows] == [0]
    assert np.array_equal(nothing.w, problem.start)
    assert "client 1's rows ended after 0 rows, in round 1 of 99" in " ".join(nothing.notes)


def test_the_shortest_source_ends_it_in_a_cohort_too(problem: Problem) -> None:
    base = sgd(problem, batch=5, rate=power(0.3))
    method = participation(base, clients=3, cohort=2, seed=1, dropout=0.3)
    engine = Streaming(problem, three(500, 500, 23), method)
    state = engine.advance(method.init(problem.start), 60)
    assert engine.ended == Ended(2, 23)
    start = method.init(problem.start)
    turns = [
        answering(method.request(start._replace(round=np.int32(done))), 3).get(2)
        for done in range(60)
    ]
    fifth = [done for done, answers in enumerate(turns) if answers][4]
    assert int(state.round) == fifth


@pytest.mark.usefixtures("tight")
def test_no_more_rows_are_held_than_the_buffers_and_a_block(problem: Problem) -> None:
    given = [0, 0, 0]

    def counted(client: int) -> Iterator[Any]:
        for block in numbered(10**6, 8, client):
            given[client] += len(block["y"])
            yield block

    method = sgd(problem, batch=5, rate=power(0.1))
    held = next(numbered(50, 50, 9))
    engine = Streaming(problem, Streams([counted(i) for i in range(3)], check=held), method)
    state = method.init(problem.start)
    for stop in (1, 2, 30, 101):
        state = engine.advance(state, stop)
        assert all(5 * stop <= n < 5 * stop + 8 for n in given), "nothing is pulled ahead of a stop"


def test_training_goes_on_with_the_rows_that_come_next(problem: Problem) -> None:
    method = sgd(problem, batch=5, rate=power(0.3))
    whole = simulate(problem, three(500, 500, 500), method, 61)
    streams, seen = three(500, 500, 500), []
    simulate(problem, streams, method, 31, checkpoint_every=30, on_checkpoint=seen.append)
    rest = simulate(problem, streams, method, 61, resume=seen[-1])
    assert np.array_equal(whole.last, rest.last)


def test_a_queue_that_a_thread_feeds(problem: Problem) -> None:
    method = sgd(problem, batch=5, rate=power(0.3))
    waiting: Queue[Any] = Queue(maxsize=2)

    def feed() -> None:
        for block in numbered(500, 9, 1):
            waiting.put(block)
        waiting.put(None)

    thread = threading.Thread(target=feed)
    thread.start()
    held = next(numbered(200, 200, 99))
    sources = [numbered(500, 9, 0), from_queue(waiting), numbered(500, 9, 2)]
    result = simulate(problem, Streams(sources, check=held), method, 200)
    thread.join(timeout=300)
    same = simulate(problem, three(500, 500, 500), method, 200)
    assert np.array_equal(result.last, same.last)
    assert result.notes == same.notes
    assert "ended after 500 rows, in round 101 of 199" in result.notes[0]


@pytest.mark.long
def test_limits_are_kept_on_the_held_out_rows_without_settings(limited: Problem) -> None:
    streams = three(5000, 5000, 5000)
    method = auto(limited, streams, batch=10, rounds=300)
    assert all(reader.taken == 0 for reader in streams.readers)
    result = simulate(limited, streams, method, 300)
    assert result.feasible
    assert result.final["train_cost"] <= 0.9
    assert [reader.taken for reader in streams.readers] == [2990] * 3


@pytest.mark.long
def test_limits_on_single_clients_need_to_know_whose_rows_are_held_out() -> None:
    limits = client_loss_at_most(0.8, [1, 1, 1])
    own = classifier(mlp(7, 5, 3, dtype="float64"), limits, objective="norm")
    parts = [next(numbered(100, 100, 50 + client)) for client in range(3)]
    streams = three(5000, 5000, 5000, check=Rows.of(parts))
    method = ssca(own, batch=10, tau=0.3, **STEPS)
    result = simulate(own, streams, method, 300)
    assert result.feasible
    assert [entry["name"][-1] for entry in result.certificate["constraints"]] == ["0", "1", "2"]
    with pytest.raises(UserError, match="give Rows with one part for each of the 3 clients"):
        simulate(own, three(9, 9, 9), method, 5)


def test_what_does_not_fit(problem: Problem) -> None:
    method = sgd(problem, batch=5, rate=power(0.3))
    with pytest.raises(UserError, match="leave runtime out"):
        simulate(problem, three(9, 9, 9), method, 5, runtime=Local)
    with pytest.raises(UserError, match="drawn from 4 clients, but 3 hold data"):
        Streaming(problem, three(9, 9, 9), participation(method, clients=4, cohort=2))
    with pytest.raises(UserError, match="batch = 0"):
        Streaming(problem, three(9, 9, 9), method._replace(batch=0))


def test_a_fault_of_a_source_is_not_hidden(problem: Problem) -> None:
    def faulty() -> Iterator[Any]:
        yield from numbered(20, 9)
        raise OSError("the wire was cut")

    held = next(numbered(20, 20))
    method = sgd(problem, batch=5, rate=power(0.3))
    with pytest.raises(OSError, match="the wire was cut"):
        simulate(problem, Streams([faulty()], check=held), method, 50)
