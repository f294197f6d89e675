"""Step sizes from the problem itself: six probing messages per client before round 1.

A power iteration estimates the curvature of the sampled terms from differences of gradients, all
taken on one batch (`Request.round` names the batch). One more gradient on another batch gives the
sampling noise. The six messages are counted as traffic of the run.

With privacy noise every probe has a batch of its own, because five messages about one batch would
say as much about its rows as one message with a fifth of the noise variance. The difference of two
gradients then contains the noise of two batches. Its size is known from the last probe, which is at
the point of the first one, and is subtracted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fedssca.errors import UserError
from fedssca.methods.algorithm import Algorithm, Message, Request, State, first_state
from fedssca.methods.multipliers import opening, opposites
from fedssca.methods.schedule import Schedule
from fedssca.methods.surrogate import gradients
from fedssca.problem.problem import Array, Batch, Problem, Terms
from fedssca.problem.programs import once_per_problem
from fedssca.problem.starts import first_array, zeros

__all__ = ["PROBES", "StepSizes", "calibrate", "step_sizes"]

PROBES = 6
RHO, GAMMA, RISE, COOL = 0.15, 0.1, 20, 0.8
"""Defaults of rho and gamma, the rounds over which gamma rises, and the share of the run over
which it falls."""
REACH = 8.0
"""Curvature times the length of an averaged step. Above 25 the iteration is unstable."""
STEADY = 1.0
"""The same where the curvature stays as it is at the start: for linear models with squared errors.
The curvature of a cross-entropy falls as rows are fitted, and its noise with it."""
QUIET = 1 / 6
"""Steps shorten when |gradient|^2 / noise falls below 1 / QUIET."""
CLOSE, APART = 0.01, 0.3
"""The distance from w(1) at which curvature is measured, as a multiple of |w(1)|, without and with
privacy noise."""
MOVED = 0.03
"""Probes from w(1) = 0, which has no length, go so far that gradients change by this share."""
LEAST = 0.3
"""Curvature counts at least this many times what noise alone would produce."""
STRIDE = 0.3
"""The longest averaged step, as a multiple of |w(1)|. The curvature of a narrow network, which
starts at a small w(1), grows several times over during training."""


class StepSizes(NamedTuple):
    """rho, gamma, one tau for each F_m, the first multipliers, and the gradients' ratios."""

    rho: Schedule
    gamma: Schedule
    tau: tuple[float, ...]
    opening: tuple[float, ...] = ()
    balance: tuple[float, ...] = ()
    """|grad F_0| / |grad F_m| at the start: the multipliers at which the gradients are equal."""


class Probe(NamedTuple):
    """What the probing rounds have found."""

    direction: Array
    base: Array
    """Gradients of F_0..F_M's sampled parts at w(1), on the first batch."""
    curvature: Array
    snr: Array
    values: Array
    """F_1..F_M at w(1) on the first batch."""
    width: Array
    """The distance of the next probe from w(1)."""
    chance: Array
    """|difference| of the gradients of F_0..F_M at w(1) on two batches."""


def step_sizes(
    curvature: np.ndarray,
    snr: float,
    horizon: int,
    rho: float = RHO,
    gamma: float = GAMMA,
    span: float = float("inf"),
    lengths: np.ndarray | None = None,
    steady: bool = False,
) -> StepSizes:
    """tau_m such that an averaged step has length REACH / curvature_m, or less in heavy noise.

    `span` is curvature |w(1)| / |gradient|: no averaged step is longer than STRIDE |w(1)|. It is
    infinite where w(1) = 0, and then steps are at most STEADY / curvature_m if that is `steady`.

    A term that is flat at the start (a rate, where all scores are equal) does not stay flat, so
    every curvature counts at least half of the largest, relative to the `lengths` of the gradients.

    One gradient g moves w by gamma rho / (2 tau) g in its own round, and by beta times as much in
    every later one, beta = (1 - rho)(1 - gamma): by gamma rho / (2 tau (1 - beta)) g in all.
    """
    most = STEADY if steady and np.isinf(span) else REACH
    reach = min(most, STRIDE * span) * min(1.0, QUIET * snr)
    share = gamma * rho / (1 - (1 - rho) * (1 - gamma))
    unit = np.ones_like(curvature) if lengths is None else np.asarray(lengths, float)
    steep = float((curvature[unit > 0] / unit[unit > 0]).max(initial=0.0))
    least = 1e-6 * curvature.max(initial=1.0 if lengths is None else 0.0) or 1e-6
    tau = np.maximum(np.maximum(curvature, 0.5 * steep * unit), least) * share / (2 * reach)
    return StepSizes(
        Schedule(rho, warm=True),
        Schedule(gamma, rise=min(RISE, 1 + horizon // 20), cool=COOL, horizon=horizon),
        tuple(float(f"{value:.3g}") for value in tau),
    )


def calibrate(
    problem: Problem,
    batch: int,
    horizon: int,
    runtime: Callable[[Algorithm], Any],
    *,
    rho: float = RHO,
    gamma: float = GAMMA,
    noise: float = 0.0,
) -> StepSizes:
    """Probe the clients through `runtime`; choose tau for these rho and gamma, and multipliers.

    `noise` is the standard deviation of privacy noise on the gradients, 0 without any. Noise looks
    like curvature, so probes are then taken further apart, and the part of their differences that
    noise explains is subtracted.
    """
    algorithm = probe(problem, batch, noised=noise > 0)
    state = runtime(algorithm).advance(algorithm.init(problem.start), PROBES)
    found: Probe = state.memory
    if noise:
        found = found._replace(curvature=_denoised(problem, found, noise))
    curvature, snr = np.asarray(found.curvature, float), float(found.snr)
    if not np.isfinite(curvature).all() or not np.isfinite(snr):
        raise UserError("gradients at the start are not finite: check the data and their scale")
    base, w = np.asarray(found.base), np.asarray(state.w)
    sampled = _lengths(np.asarray(row, float) for row in base)
    lengths = _lengths(row + 2 * known * w for row, known in zip(base, problem.known, strict=True))
    first = _opening(problem, lengths, found.values)
    span = _span(found, problem.start)
    grown = curvature * problem.growth
    found_steps = step_sizes(grown, snr, horizon, rho, gamma, span, sampled, problem.steady)
    return found_steps._replace(
        opening=tuple(float(f"{nu:.3g}") for nu in first),
        balance=_balance(lengths),
    )


def _opening(problem: Problem, lengths: np.ndarray, values: Array) -> np.ndarray:
    """The first multipliers from |grad F_0|..|grad F_M| and F_1..F_M."""
    if not problem.constraints:
        return np.zeros(0)
    paired, norm_objective = opposites(problem)[1], not problem.combine[0].any()
    return np.asarray(_openings(lengths, values, paired, norm_objective))


_openings = jax.jit(opening, static_argnames="norm_objective")


def _balance(lengths: np.ndarray) -> tuple[float, ...]:
    """|grad F_0| / |grad F_m|, in which a gradient of length 0 counts as the longest."""
    floor = 1e-6 * lengths.max(initial=0.0)
    known = np.where(lengths > floor, lengths, lengths.max(initial=0.0) or 1.0)
    return tuple(float(f"{known[0] / length:.3g}") for length in known[1:])


@once_per_problem
def probe(problem: Problem, batch: int, *, noised: bool = False) -> Algorithm:
    """The probing rounds as an Algorithm, so that they run wherever rounds run.

    `noised` probes lie further apart, and each has a batch of its own: those of rounds 0, -1, ...
    """
    combine, apart = problem.combine, APART if noised else CLOSE

    def init(w: Array) -> State:
        nothing = zeros(len(combine), w.dtype)
        found = Probe(
            zeros(w.shape, w.dtype),
            zeros((len(combine), w.size), w.dtype),
            nothing,
            first_array(1, w.dtype),
            zeros(len(combine) - 1, w.dtype),
            _width(w, apart).astype(w.dtype),
            nothing,
        )
        return first_state(problem, w, found)

    def request(state: State) -> Request:
        inner = (state.round > 0) & (state.round < PROBES - 1)
        away = jnp.where(inner, state.memory.width, 0).astype(state.w.dtype)
        other = jnp.where(state.round == PROBES - 1, -1, 0)
        batch_number = -state.round if noised else other
        return Request(batch_number.astype(jnp.int32), state.w + away * state.memory.direction)

    def reply(terms: Terms, asked: Request, data: Batch) -> Message:
        return gradients(problem, terms, asked.w, data)

    def update(state: State, total: Message) -> State:
        found: Probe = state.memory
        rows = jnp.asarray(combine, state.w.dtype) @ total.vectors["gradient"]
        first, last = state.round == 0, state.round == PROBES - 1
        bends = (rows - found.base) / found.width
        lengths = jnp.linalg.norm(bends, axis=1)
        summed, difference = _blend(rows, rows), _blend(rows - found.base, found.base)
        signal = jnp.sum(jnp.square(_blend(found.base, found.base)))
        snr = signal / jnp.maximum(jnp.sum(jnp.square(difference)) / 2, 1e-30)
        direction = jnp.where(first, summed, _blend(bends, bends))
        direction = direction / jnp.maximum(jnp.linalg.norm(direction), 1e-30)
        probing = ~first & ~last
        grown = jnp.linalg.norm(rows - found.base, axis=1)
        share = jnp.max(grown / jnp.maximum(jnp.linalg.norm(found.base, axis=1), 1e-30))
        fit = found.width * jnp.clip(MOVED / jnp.maximum(share, 1e-30), 1e-6, 1e6)
        adapt = probing & (not noised) & ~jnp.any(state.w)
        return state._replace(
            round=state.round + 1,
            memory=Probe(
                jnp.where(last, found.direction, direction),
                jnp.where(first, rows, found.base),
                jnp.where(probing, lengths, found.curvature),
                jnp.where(last, snr, found.snr),
                jnp.where(first, problem.measured(total.scalars, state.w), found.values),
                jnp.where(adapt, fit, found.width),
                jnp.where(last, grown, found.chance),
            ),
        )

    return Algorithm("probe", batch, 1, init, request, reply, update)


@partial(jax.jit, static_argnames="apart", inline=True)
def _width(w: Array, apart: float) -> Array:
    length = jnp.linalg.norm(w)
    return apart * jnp.where(length > 0, length, 1)


def _denoised(problem: Problem, found: Probe, noise: float) -> Array:
    """|a|^2 from |a + n|^2, where n is the difference of two gradients at one point.

    Its length was measured once. It is at least what the privacy noise alone explains.
    """
    width = float(_width(problem.start, APART))
    each = np.linalg.norm(problem.combine, axis=1) * noise
    square = jnp.maximum(2 * problem.dimension * each**2, jnp.square(found.chance)) / width**2
    return jnp.sqrt(jnp.maximum(jnp.square(found.curvature) - square, LEAST**2 * square))


def _span(found: Probe, w: Array) -> float:
    """The largest curvature |w(1)| / |gradient|; infinite for models that start at w(1) = 0."""
    slope, bend = np.asarray(jnp.linalg.norm(found.base, axis=1)), np.asarray(found.curvature)
    known, length = slope > 0, float(jnp.linalg.norm(w))
    return float((bend[known] / slope[known]).max()) * length if length and known.any() else np.inf


def _lengths(rows: Iterable[np.ndarray]) -> np.ndarray:
    """The lengths of vectors, of which only one is in memory at a time: models may be large."""
    return np.array([np.linalg.norm(row) for row in rows])


def _blend(rows: Array, measure: Array) -> Array:
    """The sum of the rows, each divided by its length in `measure`."""
    lengths = jnp.linalg.norm(measure, axis=1)
    return jnp.where(lengths > 0, 1 / jnp.maximum(lengths, 1e-30), 0) @ rows
