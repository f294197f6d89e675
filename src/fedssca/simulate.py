"""simulate(): a problem, clients and an algorithm in, a trained model and its record out."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from fedssca.algorithm import Algorithm, State
from fedssca.data.split import Columns, Rows
from fedssca.errors import UserError
from fedssca.loop import Runtime, run
from fedssca.metrics import Evaluator, evaluator, kkt_residual, state_row, traffic
from fedssca.problem import Params, Problem
from fedssca.runtime.fused import Fused

__all__ = ["Result", "simulate"]

Row = dict[str, Any]


@dataclass(frozen=True)
class Result:
    """The trained model and what was seen on the way."""

    w: np.ndarray
    """The flat parameter vector; `params` is the same as the model's own tree."""
    params: Params
    rows: list[Row]
    """One dictionary an evaluated round, as in metrics.jsonl."""
    feasible: bool
    """All constraints hold on the full training data."""
    kkt_residual: float
    state: State

    @property
    def final(self) -> Row:
        """The last evaluated round."""
        return self.rows[-1]


def simulate(
    problem: Problem,
    clients: Rows | Columns | Sequence[Mapping[str, np.ndarray]],
    algorithm: Algorithm,
    rounds: int,
    seed: int = 0,
    *,
    test: Mapping[str, np.ndarray] | None = None,
    evaluate_every: int = 10,
    runtime: Callable[[Problem, Rows | Columns, Algorithm, int], Runtime] = Fused,
    resume: tuple[State, float] | None = None,
    on_row: Callable[[Row], None] | None = None,
    checkpoint_every: int = 0,
    on_checkpoint: Callable[[State, float], None] | None = None,
) -> Result:
    """Train for `rounds` rounds: T - 1 updates, as the paper counts them.

    `clients` are rows (or columns) of data; a list of {"x": ..., "y": ...} means one client each.
    The same seed gives the same batches, and the same bits, on every run. `resume` is a state and
    the seconds already spent; `on_row` and `on_checkpoint` see rows and states as they come.
    """
    if rounds < 1:
        raise UserError(f"rounds = {rounds}: at least 1 is needed")
    if not 0 <= seed < 2**63:
        raise UserError(f"seed = {seed}: it must be a whole number from 0 to 2^63 - 1")
    if evaluate_every < 1 or checkpoint_every < 0:
        raise UserError(f"evaluate_every = {evaluate_every}: it must be at least 1")
    parties = clients if isinstance(clients, Rows | Columns) else Rows.of(clients)
    engine = runtime(problem, parties, algorithm, seed)
    judge = evaluator(problem, parties, test)
    wire = traffic(problem, parties, algorithm)
    state, spent = resume or (algorithm.init(problem.start), 0.0)
    begun, last = time.perf_counter() - spent, rounds - 1
    rows: list[Row] = []

    def observe(state: State) -> None:
        done = int(state.round)
        if done % evaluate_every == 0 or done == last:
            row = state_row(state) | judge.row(state.w) | _sent(wire, done)
            rows.append(row | {"seconds": time.perf_counter() - begun})
            if not np.isfinite(row["objective"]):
                raise UserError(
                    f"training diverged: the objective is {row['objective']} at round {done}; "
                    "use a larger tau or smaller step sizes"
                )
            if on_row:
                on_row(rows[-1])
        if on_checkpoint and checkpoint_every and (done % checkpoint_every == 0 or done == last):
            on_checkpoint(state, time.perf_counter() - begun)

    first = int(state.round)
    stops = {n for step in (evaluate_every, checkpoint_every) if step for n in range(0, last, step)}
    state = run(engine, state, sorted(n for n in stops | {last} if n > first or n == 0), observe)
    return conclude(problem, judge, state, rows)


def conclude(problem: Problem, judge: Evaluator, state: State, rows: list[Row]) -> Result:
    """Judge the last point: feasibility and KKT residual on the full training data."""
    values = np.array(judge.row(state.w)["constraints"]) if problem.constraints else np.zeros(0)
    residual, _ = kkt_residual(judge.gradients(state.w), values)
    return Result(
        w=np.asarray(state.w),
        params=problem.unravel(state.w),
        rows=rows,
        feasible=bool((values <= 0).all()),
        kkt_residual=residual,
        state=jax.device_get(state),
    )


def _sent(wire: Any, rounds: int) -> Row:
    return {
        "bytes_up": wire.up * rounds,
        "bytes_down": wire.down * rounds,
        "bytes_peer": wire.peer * rounds,
    }
