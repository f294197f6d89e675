"""The identity of Algorithm 1 without constraints and SGD with a certain momentum.

With lam = 0 and rho(1) = 1 the minimiser of the averaged surrogate gives

    v(t) = (1 - rho(t)) (1 - gamma(t-1)) v(t-1) + rho(t) / (2 tau) g(t),   gamma(0) = 0, v(0) = 0
    w(t+1) = w(t) - gamma(t) v(t)

where g(t) is the mini-batch gradient. Both are run here with the same batches.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from fedssca.errors import UserError
from fedssca.evaluate.evaluator import evaluator_over
from fedssca.methods.algorithm import Algorithm, Message, Request, State, first_state, publish
from fedssca.methods.schedule import Schedule
from fedssca.problem.problem import Array, Batch, Problem, Terms
from fedssca.rounds.perturb import unperturbed
from fedssca.run.build import Job, engine_of
from fedssca.run.schema import StepSettings

__all__ = ["against_momentum", "momentum_recursion"]

Row = dict[str, Any]


def momentum_recursion(
    problem: Problem, *, batch: int, rho: Schedule, gamma: Schedule, tau: float
) -> Algorithm:
    """Return the recursion above as a method; it shares no code with `ssca`."""
    row = problem.combine[0]

    def reply(terms: Terms, request: Request, data: Batch) -> Message:
        def loss(w: Array) -> Array:
            return jnp.asarray(row, w.dtype) @ (terms(w, data) @ data["weight"].astype(w.dtype))

        return Message((), {"gradient": jax.grad(loss)(request.w)})

    def update(state: State, total: Message) -> State:
        w, t, v = state.w, state.round + 1, state.memory
        rho_t, gamma_t = rho(t).astype(w.dtype), gamma(t).astype(w.dtype)
        before = jnp.where(t > 1, gamma(jnp.maximum(t - 1, 1)), 0.0).astype(w.dtype)
        v = (1 - rho_t) * (1 - before) * v + rho_t / (2 * tau) * total.vectors["gradient"]
        return state._replace(round=t, w=w - gamma_t * v, memory=v)

    def init(w: Array) -> State:
        return first_state(problem, w, jnp.zeros_like(w))

    return Algorithm("momentum-recursion", batch, 1, init, publish, reply, update)


def against_momentum(
    job: Job, evaluate_at: Sequence[int], on_row: Callable[[Row], None] = lambda row: None
) -> list[Row]:
    """Return the training cost of both, and |w_ssca - w_momentum| / |w_ssca|, at given rounds."""
    config = job.config
    chosen, last = config.algorithm, config.algorithm.most_rounds - 1
    if chosen.name != "ssca" or config.problem.l2 != 0 or job.problem.constraints:
        raise UserError('the identity needs algorithm "ssca", problem.l2 = 0 and no constraints')
    if chosen.rho is None or chosen.gamma is None or not isinstance(chosen.tau, float):
        raise UserError("the identity needs algorithm.rho, gamma and tau (one number)")
    rho, gamma = (_schedule(step, chosen.most_rounds) for step in (chosen.rho, chosen.gamma))
    if float(rho(jnp.ones(()))) != 1.0:
        raise UserError("the identity needs rho(1) = 1: set algorithm.rho.warm = true")
    other = momentum_recursion(
        job.problem, batch=chosen.batch, rho=rho, gamma=gamma, tau=chosen.tau
    )
    pair = [job.algorithm, other]
    made = engine_of(config)
    seed = config.run.seed
    engines = [made(job.problem, job.clients, method, seed, unperturbed) for method in pair]
    states = [method.init(job.problem.start) for method in pair]
    evaluator = evaluator_over(job.problem, job.clients, None)
    rows: list[Row] = []
    for stop in sorted({*(t for t in evaluate_at if t <= last), last}):
        states = [e.advance(state, stop) for e, state in zip(engines, states, strict=True)]
        ours, theirs = (state.w for state in states)
        row = {
            "round": stop,
            "train_cost": evaluator.row(ours)["train_cost"],
            "momentum_cost": evaluator.row(theirs)["train_cost"],
            "distance": float(jnp.linalg.norm(ours - theirs) / (jnp.linalg.norm(ours) or 1.0)),
        }
        rows.append(row)
        on_row(row)
    return rows


def _schedule(step: StepSettings, rounds: int) -> Schedule:
    return Schedule(step.a, step.alpha, step.warm, step.rise, step.cool, rounds)
