"""Runs with hidden sums end where plain ones end, whatever the method; wrong settings are told."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest

pytest.importorskip("cryptography")
from fedssca.errors import UserError
from fedssca.rounds import aggregate
from fedssca.rounds.in_process import Local
from fedssca.rounds.perturb import unperturbed
from fedssca.run.build import build, engine_of
from fedssca.run.config import parse, render
from fedssca.run.privacy import simulated_sums, traffic_of

pytestmark = pytest.mark.filterwarnings("ignore:convergence is not guaranteed")
BASE = """
[data]
name = "digits"
clients = 3
partition = "contiguous"
sizes = [300, 500, 237]
[model]
name = "linear"
[algorithm]
batch = 10
rounds = 6
rho = {a = 0.9, alpha = 0.1}
gamma = {a = 0.5, alpha = 0.1}
tau = 0.2
[run]
evaluate_every = 100
precision = "float64"
"""
LIMIT = ["problem.constraint=[{kind='loss', limit=1.9}, {kind='client_loss', limit=2.2}]"]
RATE = ["algorithm.rate=0.1"]
METHODS = {  # the contract test has the others
    "steered": LIMIT,
    "sgd": ["algorithm.name=sgd", *RATE],
    "primal-dual": ["algorithm.name=primal-dual", *RATE, *LIMIT],
    "cohorts": ["algorithm.cohort=2"],
    "silence": ["algorithm.cohort=3", "algorithm.dropout=0.1", "run.seed=3"],
}


@jax.enable_x64(True)
def distance(settings: list[str], hidden: str) -> float:
    """How far apart a run with plain sums and one with hidden ones are after five rounds."""
    job = build(parse(BASE, [*settings]))
    start, points = job.algorithm.init(job.problem.start), []
    for config in (job.config, parse(render(job.config), [hidden, "privacy.key_holder=1"])):
        engine = engine_of(config)(
            job.problem, job.clients, job.algorithm, config.run.seed, unperturbed
        )
        points.append(np.asarray(engine.advance(start, 5).w))
    assert np.linalg.norm(points[0] - np.asarray(start.w)) > 1e-3
    return float(np.linalg.norm(points[0] - points[1]) / np.linalg.norm(points[0]))


@jax.enable_x64(True)
def started(settings: list[str]) -> tuple[Any, Any]:
    """A runtime and the state before its first round."""
    config = parse(BASE, settings)
    job = build(config)
    engine = engine_of(config)(
        job.problem, job.clients, job.algorithm, config.run.seed, unperturbed
    )
    return engine, job.algorithm.init(job.problem.start)


@pytest.mark.long
@pytest.mark.parametrize("method", METHODS)
def test_every_method_ends_where_the_plain_sum_ends(method: str) -> None:
    assert distance(METHODS[method], "privacy.secure_sum=true") < 1e-9


@pytest.mark.parametrize("method", ["cohorts"])
def test_encrypted_runs_end_within_the_error_of_their_sums(method: str) -> None:
    pytest.importorskip("tenseal")
    assert distance(METHODS[method], "privacy.homomorphic=true") < 1e-6


@pytest.mark.parametrize("cohort", [0, 2])
def test_bytes_are_what_is_sent(cohort: int) -> None:
    config = parse(BASE, ["privacy.secure_sum=true", f"algorithm.cohort={cohort}", "run.seed=3"])
    with jax.enable_x64(True):
        job = build(config)
        engine = engine_of(config)(job.problem, job.clients, job.algorithm, 3, unperturbed)
        state = engine.advance(job.algorithm.init(job.problem.start), 1)
        before = engine.bytes_up, engine.bytes_down
        engine.advance(state, 2)
        told = traffic_of(config)(job.problem, job.clients, job.algorithm)(1)
    assert told.up == engine.bytes_up - before[0]
    assert told.down == engine.bytes_down - before[1]


@pytest.mark.long
def test_the_runtime_lets_out_what_the_clients_half_returns_and_nothing_else() -> None:
    """The server's half is handed the very objects that the clients' halves returned."""
    config = parse(BASE, ["privacy.secure_sum=true"])
    let_out: list[int] = []
    handed: list[int] = []
    alive: list[Any] = []

    class Watched:
        def __init__(self, half: aggregate.Answerer) -> None:
            self._half = half

        def handle(self, phase: str, asked: Any, answer: Any) -> Any:
            said = self._half.handle(phase, asked, answer)
            alive.append(said)
            let_out.append(id(said))
            for name, array in said.items():
                assert array.dtype == (np.uint64 if name == "masked" else np.uint8)
            return said

    class Watching:
        def __init__(self, adder: aggregate.Adder) -> None:
            self._adder = adder

        def gather(self, ask: Any, asked: Any, like: Any) -> Any:
            def told(phase: str, sent: Any) -> Any:
                found = ask(phase, sent)
                handed.extend(id(said) for said in found.values())
                return found

            return self._adder.gather(told, asked, like)

    job = build(parse(BASE, ["run.precision=float32"]))
    halves = simulated_sums(config, 3)
    sums = aggregate.Sums(
        lambda number: Watched(halves.client(number)), lambda: Watching(halves.server())
    )
    engine = Local(job.problem, job.clients, job.algorithm, 0, sums=sums)
    engine.advance(job.algorithm.init(job.problem.start), 3)
    assert handed == let_out
    assert len(handed) == 3 * (2 + 2 * 3)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (["privacy.secure_sum=true", "privacy.homomorphic=true"], "choose one"),
        (["privacy.secure_sum=true", "privacy.threshold=0.4"], "must lie above 0.5"),
        (["privacy.neighbours=-1"], "privacy.neighbours = -1: it must be at least 0"),
        (["privacy.homomorphic=true", "privacy.key_holder=3"], "numbered from 0 to 2"),
        (["privacy.homomorphic=true", "data.split=feature", "data.sizes=[]"], "hold rows"),
        (["privacy.secure_sum=true", "data.clients=1", "data.sizes=[]"], "at least 2"),
        (["privacy.secure_sum=true", "algorithm.cohort=1"], "at least 2"),
    ],
)
def test_what_makes_no_sense_is_one_clear_line(settings: list[str], said: str) -> None:
    with pytest.raises(UserError, match=said):
        started(settings)


def test_too_many_silent_clients_are_told() -> None:
    settings = ["algorithm.cohort=3", "algorithm.dropout=0.8", "run.precision=float32"]
    engine, state = started(["privacy.secure_sum=true", *settings])
    with pytest.raises(UserError, match="of 3 parties answer and 2 are needed"):
        engine.advance(state, 9)
