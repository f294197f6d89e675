"""One contract for every method, every way to add messages up and every way to share out the data.

The compiled runtime, the one that moves messages, and the same problem on one machine agree.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any, NamedTuple, get_args

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedssca.data.encode.label_sets import sets_of
from fedssca.data.split import Columns, Rows
from fedssca.evaluate.traffic import traffic_in
from fedssca.methods.algorithm import Algorithm, State
from fedssca.methods.curvature import diagonal
from fedssca.methods.local_ssca import local_ssca
from fedssca.methods.multipliers import exact_penalty
from fedssca.methods.rivals import augmented_lagrangian, primal_dual, quadratic_penalty, switching
from fedssca.methods.schedule import power
from fedssca.methods.sgd import sgd
from fedssca.methods.ssca import ssca
from fedssca.methods.steered import steered_ssca
from fedssca.problem.constraints import (
    cross_entropy,
    false_negative_rate_at_most,
    loss_at_most,
)
from fedssca.problem.custom import vertical_problem
from fedssca.problem.models import classifier, mlp
from fedssca.problem.problem import Problem
from fedssca.problem.tasks import multilabel
from fedssca.rounds.aggregate import in_clear
from fedssca.rounds.compressed import compressed
from fedssca.rounds.fused import Fused
from fedssca.rounds.in_process import Local
from fedssca.run.config import parse
from fedssca.run.privacy import simulated_exchange, simulated_sums
from fedssca.run.schema.algorithm import MethodName

pytestmark = pytest.mark.usefixtures("float64")

P, J, L, N = 7, 5, 3, 60
B, ROUNDS, HALF, SEED = 11, 10, 5, 5  # B is no other dimension here: an axis of 11 is a batch
STEPS = {"rho": power(1.0, 0.55), "gamma": power(0.9, 0.9)}

rng = np.random.default_rng(1)
DATA = {"x": rng.normal(size=(N, P)), "y": rng.integers(0, L, N).astype(np.int32)}
WHOLE, TWO = [np.arange(P)], [np.array([0, 2, 3, 6]), np.array([1, 4, 5])]
FIVE = [np.array([6]), np.array([0, 5]), np.array([1, 2]), np.array([4]), np.array([3])]
SPLITS: dict[str, Rows | Columns] = {
    "rows": Rows(DATA, (12, 31, 17)),
    "one party": Columns(DATA, tuple(WHOLE)),
    "two parties": Columns(DATA, tuple(TWO)),
    "five parties": Columns(DATA, tuple(FIVE)),
    "label holder": Columns(DATA, tuple(TWO), label_holder=1),
    "open": Columns(DATA, tuple(TWO), collection="open"),
}


def network(features: list[np.ndarray], *constraints: Any, **settings: Any) -> Problem:
    return classifier(mlp(P, J, L, dtype="float64"), *constraints, features=features, **settings)


def three_limits(features: list[np.ndarray]) -> Problem:
    """Loss under a gap from both sides and a third limit; first layers of different widths."""
    draw = np.random.default_rng(2).normal
    widths = [2 + i % 2 for i in range(len(features))]
    below = [
        {"a": draw(size=(h, len(own))), "b": draw(size=h)}
        for h, own in zip(widths, features, strict=True)
    ]

    def local(w, x):
        return jnp.tanh(x @ w["a"].T + w["b"])

    def head(w, hs, batch):
        scores = jnp.concatenate(hs, axis=1) @ w.T
        return jnp.stack(
            [cross_entropy(scores, batch), jnp.tanh(scores[:, 0]), jnp.square(scores[:, 1])]
        )

    params = jax.tree.map(jnp.asarray, [draw(size=(L, sum(widths))), *below])
    combine = np.array([[1, 0, 0], [0, 1, 0], [0, -1, 0], [0, 0, 1.0]])
    limits = [0.05, 0.05, 0.3]
    return vertical_problem(
        [local] * len(features), head, params, features, combine=combine, limits=limits
    )


def one_limit(features: list[np.ndarray]) -> Problem:
    return network(features, loss_at_most(0.8), objective="norm")


def no_limit(features: list[np.ndarray]) -> Problem:
    return network(features, l2=0.01)


def worst_class(features: list[np.ndarray]) -> Problem:
    """The largest loss of a class: an epigraph variable is the last entry of w_0."""
    return network(features, objective="worst_group", groups=DATA["y"], column="y", l2=0.01)


def several_labels(features: list[np.ndarray]) -> Problem:
    """y as label sets, of which bit k is label k, and a limit on the rate of one label."""
    limits = false_negative_rate_at_most(0.3, sets_of(DATA["y"], L), positive=1)
    return network(features, limits, l2=0.01, task=multilabel(["a", "b", "c"]))


def rounded(p: Problem, algorithm: Algorithm, bits: int) -> Algorithm:
    clients = SPLITS["rows"]
    assert isinstance(clients, Rows)
    return compressed(algorithm, p, clients, bits=bits, seed=SEED)


STEERED: dict[str, Any] = {"rounds": ROUNDS + 1, "tau": 0.2, "opening": [30.0]}
RIVAL: dict[str, Any] = {"rate": power(0.5, 0.2), "momentum": 0.5}
METHODS: dict[str, tuple[Callable[[list[np.ndarray]], Problem], Callable[[Problem], Algorithm]]] = {
    "default": (one_limit, lambda p: steered_ssca(p, batch=B, **STEERED, **STEPS)),
    "ssca": (no_limit, lambda p: ssca(p, batch=B, tau=0.2, **STEPS)),
    "exact multipliers": (
        one_limit,
        lambda p: ssca(p, batch=B, tau=0.2, dual=exact_penalty(p, [10.0, 100.0], 3), **STEPS),
    ),
    "three limits": (three_limits, lambda p: ssca(p, batch=B, tau=0.5, penalty=20.0, **STEPS)),
    "worst class": (worst_class, lambda p: ssca(p, batch=B, tau=0.5, penalty=20.0, **STEPS)),
    "diagonal": (
        one_limit,
        lambda p: ssca(p, batch=B, surrogate=diagonal(p, 0.2, chunk=4), penalty=10.0, **STEPS),
    ),
    "local steps": (
        one_limit,
        lambda p: local_ssca(p, batch=B, steps=3, **STEERED, **STEPS),
    ),
    "several labels": (several_labels, lambda p: steered_ssca(p, batch=B, **STEERED, **STEPS)),
    "8 bits": (one_limit, lambda p: rounded(p, steered_ssca(p, batch=B, **STEERED, **STEPS), 8)),
    "local steps, 8 bits": (
        one_limit,
        lambda p: rounded(p, local_ssca(p, batch=B, steps=3, **STEERED, **STEPS), 8),
    ),
    "three limits, 16 bits": (
        three_limits,
        lambda p: rounded(p, ssca(p, batch=B, tau=0.5, penalty=20.0, **STEPS), 16),
    ),
    "sgd": (no_limit, lambda p: sgd(p, batch=B, rate=power(0.5, 0.2))),
    "fedprox": (no_limit, lambda p: sgd(p, batch=B, rate=power(0.2), steps=3, mu=0.5)),
    "momentum": (no_limit, lambda p: sgd(p, batch=B, rate=power(0.2), steps=3, momentum=0.8)),
    "penalty": (one_limit, lambda p: quadratic_penalty(p, batch=B, penalty=5.0, **RIVAL)),
    "primal-dual": (one_limit, lambda p: primal_dual(p, batch=B, dual_rate=power(1.0), **RIVAL)),
    "augmented": (
        one_limit,
        lambda p: augmented_lagrangian(p, batch=B, dual_rate=power(1.0), penalty=2.0, **RIVAL),
    ),
    "switching": (one_limit, lambda p: switching(p, batch=B, tolerance=0.1, **RIVAL)),
}
FEW_BITS = ("8 bits", "local steps, 8 bits", "three limits, 16 bits")
ONLY_ROWS = ("fedprox", "momentum", "local steps", *FEW_BITS)  # local steps need whole samples
FORMS = ("default", "ssca", "three limits", "worst class", "diagonal", "sgd")
"""One method for each form of problem and of message; others send messages of the same forms."""
CASES = [
    (method, split)
    for method in METHODS
    for split, clients in SPLITS.items()
    if method not in ONLY_ROWS or isinstance(clients, Rows)
    # Every method with rows and with columns; every split with every form of messages.
    if method in FORMS or split in ("rows", "five parties")
    # Other splits have as many parties, or more: these two with three forms of messages.
    if split not in ("one party", "two parties") or method in ("default", "three limits", "sgd")
]
COLUMNS = [case for case in CASES if isinstance(SPLITS[case[1]], Columns)]
HIDDEN = [(method, "rows", "secure_sum") for method in METHODS]
HIDDEN += [(method, "rows", "homomorphic") for method in FORMS]
HIDDEN += [
    (method, split, "secure_sum")
    for method, split in COLUMNS
    if split in ("five parties", "label holder")  # "open" shows h, and one party has no peers
    if method != "three limits"  # its head needs every h, not their sum
]


def over(cases: list[tuple[str, ...]]) -> pytest.MarkDecorator:
    """One test for each case; `make quick` runs those of the default method."""
    names = ("method", "split", "hidden")[: len(cases[0])]
    marks = [() if case[0] == "default" else pytest.mark.long for case in cases]
    return pytest.mark.parametrize(
        names, [pytest.param(*case, marks=mark) for case, mark in zip(cases, marks, strict=True)]
    )


each = over(CASES)


def test_every_method_of_a_config_is_here() -> None:
    assert set(get_args(MethodName)) - {"fedavg", "fedsgd"} <= METHODS.keys()  # these are sgd


class Run(NamedTuple):
    problem: Problem
    algorithm: Algorithm
    fused: Fused
    end: State


@cache
def setting(method: str, split: str) -> tuple[Problem, Algorithm]:
    make, algorithm = METHODS[method]
    clients = SPLITS[split]
    p = make(list(clients.blocks) if isinstance(clients, Columns) else WHOLE)
    return p, algorithm(p)


@cache
def fused(method: str, split: str, seed: int = SEED) -> Run:
    p, algorithm = setting(method, split)
    runtime = Fused(p, SPLITS[split], algorithm, seed)
    return Run(p, algorithm, runtime, runtime.advance(algorithm.init(p.start), ROUNDS))


@cache
def local(method: str, split: str) -> tuple[State, Local, list[tuple[str, Any]]]:
    """The end, the runtime with its byte counts, and every payload that reached the server."""
    p, algorithm = setting(method, split)
    runtime, payloads = Local(p, SPLITS[split], algorithm, SEED), []
    inner = runtime.call

    def call(phase, request):
        sent = inner(phase, request)
        payloads.extend((phase, payload) for payload in sent)
        return sent

    runtime.call = call
    return runtime.advance(algorithm.init(p.start), ROUNDS), runtime, payloads


def close(left: Any, right: Any, rtol: float) -> None:
    left, right = np.asarray(left), np.asarray(right)
    assert np.linalg.norm(left - right) <= rtol * max(np.linalg.norm(right), 1e-12)


@each
def test_compiled_rounds_and_messages_agree(method: str, split: str) -> None:
    left, right = fused(method, split).end, local(method, split)[0]
    assert int(left.round) == int(right.round) == ROUNDS
    close(left.w, right.w, 1e-9)
    close(left.multipliers, right.multipliers, 1e-6)
    jax.tree.map(lambda a, b: close(a, b, 1e-7), left.memory, right.memory)
    start = fused(method, split).problem.start
    assert np.linalg.norm(left.w - start) > 0.01 * np.linalg.norm(start)


@pytest.mark.filterwarnings("ignore:the sum of two parties")
@over(HIDDEN)
def test_hidden_sums_change_nothing(method: str, split: str, hidden: str) -> None:
    pytest.importorskip("cryptography")
    pytest.importorskip("tenseal")
    p, algorithm = setting(method, split)
    config, clients = parse(f"[privacy]\n{hidden} = true"), SPLITS[split]
    sums, exchange = in_clear, simulated_exchange(config, p, clients)
    if isinstance(clients, Rows):
        sums = simulated_sums(config, clients.count)
    runtime = Local(p, clients, algorithm, SEED, sums=sums, exchange=exchange)
    state = runtime.advance(algorithm.init(p.start), HALF)
    plain = fused(method, split).fused.advance(algorithm.init(p.start), HALF)
    close(state.w, plain.w, 1e-6 if hidden == "homomorphic" else 1e-9)
    assert int(state.round) == HALF


@cache
def one_machine(method: str, split: str) -> State:
    """The joined problem, no vertical form, one client with all rows: it draws the same batches."""
    p, algorithm = setting(method, split)
    alone = replace(p, vertical=None)
    return Fused(alone, Rows(DATA, (N,)), algorithm, SEED).advance(algorithm.init(p.start), ROUNDS)


@over(COLUMNS)
def test_parties_with_columns_do_what_one_machine_does(method: str, split: str) -> None:
    # Ready-made networks keep the layout of w: one answer for any number of parties.
    same = split if method == "three limits" else "rows"
    close(local(method, split)[0].w, one_machine(method, same).w, 1e-10)


@each
def test_bytes_are_those_foretold(method: str, split: str) -> None:
    p, algorithm = setting(method, split)
    runtime, foretold = local(method, split)[1], traffic_in(p, SPLITS[split], algorithm)(ROUNDS)
    assert (runtime.bytes_up, runtime.bytes_down, runtime.bytes_peer) == foretold


@each
def test_stops_on_the_way_change_not_a_bit(method: str, split: str) -> None:
    run = fused(method, split)
    state = run.algorithm.init(run.problem.start)
    for stop in (1, 4, 4, 9, ROUNDS):
        state = run.fused.advance(state, stop)
    jax.tree.map(np.testing.assert_array_equal, state, run.end)


@pytest.mark.parametrize("method", ["ssca", "sgd"])
def test_large_batches_go_through_in_parts(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = fused(method, "rows")
    monkeypatch.setattr("fedssca.rounds.fused.TILE", 7)
    parts = Fused(whole.problem, SPLITS["rows"], whole.algorithm, SEED)
    state = parts.advance(whole.algorithm.init(whole.problem.start), ROUNDS)
    close(state.w, whole.end.w, 1e-9)


@pytest.mark.parametrize(
    ("method", "split"),
    [("ssca", "rows"), ("sgd", "two parties"), ("momentum", "rows")],
)
def test_the_seed_decides_everything(method: str, split: str) -> None:
    run = fused(method, split)
    again = Fused(run.problem, SPLITS[split], run.algorithm, SEED)
    state = again.advance(run.algorithm.init(run.problem.start), ROUNDS)
    assert np.array_equal(state.w, run.end.w)
    assert np.linalg.norm(fused(method, split, SEED + 1).end.w - run.end.w) > 1e-4


@over([case for case in COLUMNS if case[1] != "open"])
def test_only_sums_reach_the_server(method: str, split: str) -> None:
    payloads = local(method, split)[2]
    assert {phase for phase, _ in payloads} == {"reply"}
    assert len(payloads) == ROUNDS * SPLITS[split].count
    axes = {n for _, payload in payloads for leaf in jax.tree.leaves(payload) for n in leaf.shape}
    assert B not in axes


def test_the_server_sees_samples_in_open_collection() -> None:
    """The check above can fail: here it does."""
    axes = {
        n for _, p in local("ssca", "open")[2] for leaf in jax.tree.leaves(p) for n in leaf.shape
    }
    assert B in axes


def test_labels_stay_with_their_holder() -> None:
    clients = SPLITS["label holder"]
    assert "y" not in clients.client(0)
    assert "y" in clients.client(1)
