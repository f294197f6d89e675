"""SSCA against the paper's recursions, written again in numpy and fed with the same batches."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedssca.data.sampling import batch_indices
from fedssca.data.split import Rows
from fedssca.errors import UserError
from fedssca.methods.multipliers import exact_penalty
from fedssca.methods.schedule import Schedule, power
from fedssca.methods.ssca import ssca
from fedssca.methods.surrogate import first_order
from fedssca.problem.constraints import loss_at_most
from fedssca.problem.custom import custom_problem
from fedssca.problem.models import classifier, mlp
from fedssca.problem.problem import Problem
from fedssca.rounds.fused import Fused
from fedssca.rounds.in_process import Local
from fedssca.rounds.loop import run

pytestmark = pytest.mark.usefixtures("float64")

SEED, B, TAU = 4, 6, 0.5
SIZES = (10, 30, 20)
RHO, GAMMA = power(1.0, 0.55), power(0.9, 0.9)


def network(*constraints, **settings) -> Problem:
    return classifier(mlp(7, 5, 3, dtype="float64"), *constraints, **settings)


class Batches:
    """The weighted mean loss and gradient of round t's batches: sum_i N_i / (B N) sum_n."""

    def __init__(self, columns, by_hand, sizes=SIZES) -> None:
        self._columns, self._by_hand, self._sizes = columns, by_hand, sizes
        numbers = np.arange(len(sizes))
        self._index = jax.jit(lambda t: batch_indices(SEED, t, numbers, np.array(sizes), B))

    def __call__(self, t: int, w: np.ndarray) -> tuple[float, np.ndarray]:
        value, slope, first = 0.0, np.zeros_like(w), 0
        for size, own in zip(self._sizes, np.asarray(self._index(t)), strict=True):
            rows = first + own
            losses, slopes = self._by_hand(w, self._columns["x"][rows], self._columns["y"][rows])
            value += size / sum(self._sizes) * losses.mean()
            slope = slope + size / sum(self._sizes) * slopes.mean(axis=0)
            first += size
        return value, slope


@pytest.fixture
def batches(columns, by_hand) -> Batches:
    return Batches(columns, by_hand)


def close(left, right, rtol: float) -> None:
    assert np.linalg.norm(np.asarray(left) - right) <= rtol * np.linalg.norm(right)


def test_without_constraints_it_is_momentum_sgd(columns, batches) -> None:
    p = network()
    method = ssca(p, batch=B, rho=RHO, gamma=GAMMA, tau=TAU)
    runtime, state = Fused(p, Rows(columns, SIZES), method, SEED), method.init(p.start)
    w, v, last = np.asarray(p.start), np.zeros(50), 0.0
    for t in range(1, 101):
        rho, gamma = t**-0.55, 0.9 * t**-0.9
        v = (1 - rho) * (1 - last) * v + rho / (2 * TAU) * batches(t, w)[1]
        w, last = w - gamma * v, gamma
        state = runtime.advance(state, t)
        close(state.w, w, 1e-10)
    assert np.linalg.norm(w - p.start) > 0.3 * np.linalg.norm(p.start)


@pytest.mark.parametrize("exact", [False, True])
def test_with_a_regulariser_and_rho_below_one(columns, batches, exact: bool) -> None:
    """b and beta recursions of Section V from Q(0) = 0; exact: the minimiser has tau + lam."""
    lam, rho0 = 0.05, 0.7
    p = network(l2=lam)
    method = ssca(
        p, batch=B, rho=power(rho0, 0.55), gamma=GAMMA, surrogate=first_order(p, TAU, exact=exact)
    )
    end = Fused(p, Rows(columns, SIZES), method, SEED).advance(method.init(p.start), 20)
    w, b, beta = np.asarray(p.start), np.zeros(50), np.zeros(50)
    for t in range(1, 21):
        rho, gamma = rho0 * t**-0.55, 0.9 * t**-0.9
        b = (1 - rho) * b + rho * (batches(t, w)[1] - 2 * TAU * w)
        beta = (1 - rho) * beta + rho * w
        best = -b / (2 * (TAU + lam)) if exact else -(b + 2 * lam * beta) / (2 * TAU)
        w = (1 - gamma) * w + gamma * best
    close(end.w, w, 1e-11)


@pytest.mark.long
@pytest.mark.parametrize(("limit", "cases"), [(0.1, {"c"}), (0.9, {"c", "between"})])
def test_the_constrained_example_follows_lemma_1(columns, batches, limit: float, cases) -> None:
    p = network(loss_at_most(limit), objective="norm")
    c, rho0, tau = 50.0, 0.8, 0.1
    method = ssca(p, batch=B, rho=power(rho0, 0.55), gamma=GAMMA, tau=tau, penalty=c)
    runtime, state = Fused(p, Rows(columns, SIZES), method, SEED), method.init(p.start)
    w, b, const = np.asarray(p.start), np.zeros(50), 0.0
    seen = set()
    for t in range(1, 21):
        rho, gamma = rho0 * t**-0.55, 0.9 * t**-0.9
        f, g = batches(t, w)
        b = (1 - rho) * b + rho * (g - 2 * tau * w)
        const = (1 - rho) * const + rho * (f - g @ w + tau * w @ w)
        b2 = b @ b
        d = b2 + 4 * tau * (limit - const)
        nu = np.clip((np.sqrt(b2 / d) - 1) / tau, 0, c) if d > 0 else c
        best = -nu * b / (2 * (1 + nu * tau))
        w = (1 - gamma) * w + gamma * best
        state = runtime.advance(state, t)
        close(state.w, w, 1e-10)
        assert float(state.multipliers[0]) == pytest.approx(nu, rel=1e-8, abs=1e-12)
        slack = max(0.0, const + b @ best + tau * best @ best - limit)
        assert float(state.slack[0]) == pytest.approx(slack, rel=1e-8, abs=1e-10)
        seen.add("c" if nu == c else "between" if nu > 0 else "zero")
    assert seen == cases


def test_clients_count_by_their_rows(columns, batches) -> None:
    p = network()
    method = ssca(p, batch=B, rho=RHO, gamma=power(1.0, 0.9), tau=TAU)
    for runtime in (Fused, Local):
        end = runtime(p, Rows(columns, SIZES), method, SEED).advance(method.init(p.start), 1)
        close(end.w, p.start - batches(1, np.asarray(p.start))[1] / (2 * TAU), 1e-12)


def test_a_run_of_t_rounds_has_t_minus_one_updates(columns) -> None:
    p, calls, seen = network(), [], []
    method = ssca(p, batch=B, rho=RHO, gamma=GAMMA)
    runtime = Local(p, Rows(columns, SIZES), method, SEED)
    inner = runtime.call
    runtime.call = lambda phase, request: calls.append(int(request.round)) or inner(phase, request)
    end = run(runtime, method.init(p.start), [2, 4], lambda state: seen.append(int(state.round)))
    assert calls == [1, 2, 3, 4]  # T = 5
    assert int(end.round) == 4
    assert seen == [2, 4]


def test_a_run_ends_when_the_observer_says_so(columns) -> None:
    p = network()
    method = ssca(p, batch=B, rho=RHO, gamma=GAMMA)
    runtime = Fused(p, Rows(columns, SIZES), method, SEED)
    assert int(run(runtime, method.init(p.start), [1, 3, 9], lambda s: s.round >= 3).round) == 3


# Penalties ---------------------------------------------------------------------------------------


def toy(limit: float) -> Problem:
    """min |w|^2 s.t. mean (1 + (w_1 - x)^2) <= limit: out of reach below 1."""

    def terms(w, batch):
        return (1 + jnp.square(w[0] - batch["x"][:, 0]))[None]

    return custom_problem(terms, jnp.full(2, 0.5), limits=[limit], combine=[[0], [1]], known=1.0)


def stages(limit: float, rounds: int, penalty, patience: int) -> tuple[list[int], list[float]]:
    p = toy(limit)
    method = ssca(
        p, batch=5, rho=RHO, gamma=GAMMA, tau=1.0, dual=exact_penalty(p, penalty, patience)
    )
    rows = Rows({"x": np.zeros((5, 1)), "y": np.zeros(5)}, (5,))
    runtime, state = Fused(p, rows, method, 0), method.init(p.start)
    at, nu = [], []
    for t in range(1, rounds + 1):
        state = runtime.advance(state, t)
        at.append(int(state.memory.dual[0]))
        nu.append(float(state.multipliers[0]))
    return at, nu


def test_the_penalty_grows_while_there_is_slack_and_stops_at_the_last() -> None:
    at, nu = stages(0.5, 12, penalty=[1.0, 10.0, 100.0], patience=3)
    assert at == [0, 0, 1, 1, 1, 2, 2, 2, 2, 2, 2, 2]
    # Out of reach: the multiplier is the penalty itself, the next one from the round after.
    assert nu == pytest.approx([1.0] * 3 + [10.0] * 3 + [100.0] * 6)


def test_the_penalty_stays_where_there_is_no_slack() -> None:
    at, nu = stages(3.0, 12, penalty=[1.0, 10.0, 100.0], patience=3)
    assert at == [0] * 12
    assert max(nu) < 1.0


def test_one_number_is_one_stage() -> None:
    at, nu = stages(0.5, 5, penalty=7.0, patience=1)
    assert at == [0] * 5
    assert nu == pytest.approx([7.0] * 5)


@pytest.mark.parametrize("penalty", [0.0, -1.0, float("nan"), [1.0, 1.0], [2.0, 1.0], [-1.0, 2.0]])
def test_a_bad_penalty_is_refused(penalty) -> None:
    with pytest.raises(UserError, match="penalty = "):
        ssca(toy(1.0), batch=5, rho=RHO, gamma=GAMMA, penalty=penalty)


def test_a_negative_tau_is_refused() -> None:
    with pytest.raises(UserError, match=r"tau = -0\.1"):
        ssca(toy(1.0), batch=5, rho=RHO, gamma=GAMMA, tau=-0.1)


def test_schedules_that_break_the_theorems_warn() -> None:
    with pytest.warns(UserWarning, match="sum gamma\\^2"):
        ssca(toy(1.0), batch=5, rho=Schedule(0.9, 0.3), gamma=Schedule(0.9, 0.35))
