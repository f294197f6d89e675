"""What an observer receives: the message of a client or a sum of messages, plain or with noise.

With clipping and noise a message is

    sum_n a_n c_n (t_n, delta_n x_n') + a C sigma xi,        c_n = min(1, C / |.|),

where the norm is over all gradients of sample n as one vector, a is the largest a_n and xi is
standard normal. With unit = "client" the whole message is clipped, to the client's share of C.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from fedssca.methods.algorithm import Algorithm
from fedssca.privacy.noise.clip import per_client, per_sample
from fedssca.problem.problem import Array
from fedssca.studies.audit.audited_run import AuditedRun, BatchRows, Gradients, NoiseSetting

__all__ = ["ObservedMessage", "clip_factors", "median_gradient_norm", "observe"]


class ObservedMessage(NamedTuple):
    """The gradients that an observer received, and the rows behind them."""

    top: np.ndarray
    """The gradients with respect to w_0, of shape (m, d_0), in single precision as sent."""
    first: np.ndarray
    """The gradients with respect to W_1, of shape (m J, P), in single precision as sent."""
    group: BatchRows
    """The rows behind the message."""
    noise: NoiseSetting | None
    """The clipping and noise of the message."""
    scalars: int
    """The count of numbers in the message besides the gradients."""

    @property
    def equations(self) -> int:
        """The count of numbers in the message."""
        return int(self.top.size + self.first.size + self.scalars)


def observe(
    run: AuditedRun, clients: list[int], noise: NoiseSetting | None = None, round_: int = 1
) -> ObservedMessage:
    """Return the sum of the messages of these clients in a round."""
    group = run.batch_rows(clients, round_)
    method = run.algorithm if noise is None else _method(run, noise)
    parts = [run.batch_rows([client], round_).batch for client in clients]
    sent = [run.blocks(run.message(part, method)) for part in parts]
    top, first = (np.sum(blocks, axis=0) for blocks in zip(*sent, strict=True))
    if noise is not None:
        steps = run.algorithm.steps * run.algorithm.batch
        weight = group.weight.max() * (1 if noise.unit == "sample" else steps)
        spread = weight * noise.clip * noise.multiplier * run.unit
        draw = np.random.default_rng([run.config.run.seed, round_]).standard_normal
        top, first = top + spread * draw(top.shape), first + spread * draw(first.shape)
    top, first = (part.astype(np.float32).astype(float) for part in (top, first))
    return ObservedMessage(top, first, group, noise, run.scalars)


def clip_factors(run: AuditedRun, found: Gradients, x: Array, clip: float) -> Array:
    """Return the clipping factors c_n of rows x (n, P) with these gradients."""
    square = (found.top**2).sum((1, 2)) + (found.delta**2).sum((1, 2)) * (x**2).sum(1)
    return jnp.minimum(1, clip * run.unit / jnp.sqrt(jnp.maximum(square, 1e-30)))


def median_gradient_norm(run: AuditedRun) -> float:
    """Return the median norm of a sample's gradient: the default clipping norm of an audit."""
    group = run.nonmembers(200)
    found = _gradients(run, group)
    square = (found.top**2).sum((1, 2)) + (found.delta**2).sum((1, 2)) * (group.x**2).sum(1)
    return float(np.median(np.sqrt(square))) / run.unit


@cache
def _method(run: AuditedRun, noise: NoiseSetting) -> Algorithm:
    """Return the method of the run with its messages clipped."""
    if noise.unit == "client":
        return per_client(run.algorithm, noise.clip, noise.clip)
    split = None if run.horizontal else run.problem.vertical
    blocks = () if split is None else split.blocks
    return per_sample(run.algorithm, noise.clip, noise.clip, blocks)


def _gradients(run: AuditedRun, group: BatchRows) -> Gradients:
    belief = jnp.eye(len(run.kinds["y"]))[group.kind]
    h = jnp.asarray(group.x @ run.first.T)
    return run.gradients(h, belief)
