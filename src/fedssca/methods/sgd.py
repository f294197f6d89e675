"""Baselines for unconstrained problems, in the same loop: SGD and its relatives.

    FedSGD            one step with the batch of every client
    FedAvg, PR-SGD    E local steps of batch B, then the average of the local models
    FedProx           the same on F_i(w) + mu/2 |w - w(t)|^2, which keeps clients near w(t)
    momentum SGD      FedAvg with v <- beta v + g; the momentum restarts in every round

Sources: McMahan et al. (FedSGD, FedAvg); Li et al. 2020, Algorithm 2 (FedProx).

Parties that hold columns take one step per round on their own block.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import jax
import jax.numpy as jnp

from fedssca.errors import UserError
from fedssca.methods.algorithm import (
    Algorithm,
    LocalChange,
    Message,
    Request,
    State,
    first_state,
    publish,
    shortened,
)
from fedssca.methods.schedule import Schedule
from fedssca.problem.problem import Array, Batch, Problem, Terms
from fedssca.problem.programs import number

__all__ = ["sgd", "sgd_change"]


def sgd(
    problem: Problem,
    *,
    batch: int,
    rate: Schedule,
    steps: int = 1,
    momentum: float = 0.0,
    mu: float = 0.0,
) -> Algorithm:
    """Local SGD: every client takes `steps` steps v <- momentum v + grad F_i, w <- w - rate(t) v.

    With `mu` the gradient is that of F_i + mu/2 |w - w(t)|^2, that is grad F_i + mu (w - w(t)). A
    client sends N_i / N (w_i - w(t)); the server adds the sum to w(t). With one step this is
    FedSGD.
    """
    if problem.constraints or not problem.combine[0].any():
        raise UserError(
            "sgd, fedsgd, fedavg, fedprox and momentum know no constraints and need a sampled "
            "objective: use algorithm 'ssca', or set problem.objective = \"loss\" and remove the "
            "constraints"
        )
    if not 0 <= momentum < 1:
        raise UserError(f"momentum = {momentum}: it must lie in [0, 1)")
    if not (math.isfinite(mu) and mu >= 0):
        raise UserError(f"mu = {mu}: it must not be negative")
    if steps < 1:
        raise UserError(f"local_steps = {steps}: it must be at least 1")
    row = problem.combine[0]

    def reply(terms: Terms, request: Request, data: Batch) -> Message:
        share = data["weight"].sum().astype(request.w.dtype) / steps
        lr = rate(request.round).astype(request.w.dtype)
        known, beta, pull = (number(v, lr.dtype) for v in (problem.known[0], momentum, mu))

        def loss(w: Array, local: Batch) -> Array:
            means = terms(w, local).astype(w.dtype) @ local["weight"].astype(w.dtype)
            return jnp.asarray(row, w.dtype) @ means / share + known * (w @ w)

        def step(carry: tuple[Array, Array], local: Batch) -> tuple[tuple[Array, Array], None]:
            w, v = carry
            slope = jax.grad(loss)(w, local)
            v = beta * v + (slope + pull * (w - request.w) if mu else slope)
            return (w - lr * v, v), None

        begin = (request.w, jnp.zeros_like(request.w))
        if steps == 1:
            (w, _), _ = step(begin, data)
        else:
            local = jax.tree.map(lambda leaf: leaf.reshape(steps, -1, *leaf.shape[1:]), data)
            (w, _), _ = jax.lax.scan(step, begin, local)
        return Message((), {"change": share * (w - request.w)})

    def update(state: State, total: Message) -> State:
        w = shortened(state, state.w + total.vectors["change"])
        return state._replace(round=state.round + 1, w=w)

    return Algorithm(
        "fedprox" if mu else "momentum" if momentum else "sgd",
        batch,
        steps,
        lambda w: first_state(problem, w, ()),
        publish,
        reply,
        update,
        one_gradient=True,
    )


def sgd_change(
    problem: Problem,
    *,
    rate: Schedule,
    steps: int = 1,
    momentum: float = 0.0,
    mu: float = 0.0,
) -> Callable[[Request], LocalChange]:
    """How the change of w that a client of `sgd` sends carries a gradient taken in all steps.

    The centre is not 0 where the objective has a known term, which pulls in every step.
    """

    def change(request: Request) -> LocalChange:
        lr = rate(request.round).astype(request.w.dtype)
        known, beta, pull = (number(v, lr.dtype) for v in (problem.known[0], momentum, mu))
        here, slope = jnp.eye(2, dtype=request.w.dtype)  # mixtures of (w, g)

        def again(_: Array, at: tuple[Array, Array]) -> tuple[Array, Array]:
            w, v = at
            v = beta * v + slope + 2 * known * w + pull * (w - here)
            return w - lr * v, v

        (stays, unit), _ = jax.lax.fori_loop(0, steps, again, (here, jnp.zeros_like(here)))
        return LocalChange((stays - 1) * request.w, unit)

    return change
