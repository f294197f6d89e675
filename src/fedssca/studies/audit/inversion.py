"""Gradient inversion: the rows behind a message, reconstructed by an observer that knows w.

**Row by row.** With n < m J rows, the gradient G = sum_n a_n delta_n x_n' of the first layer has
rank n. Its row space V contains every x_n, its column space U contains every delta_n, and
delta_n = delta(x_n, y_n) is a known function. So each row separately solves

    (I - U U') delta(a V, y) = 0        and        a_n x_n' G^+ delta_n = 1,

m J - n + 1 equations for the n numbers a, if the label is guessed. Features known to lie in [0, 1]
add one equation wherever they touch a bound. The Levenberg-Marquardt method solves the equations
from many random starts at once. A solution is subtracted from the message, and the rest, of lower
rank, is attacked again. Nothing is assumed about the data except its range.

**All at once.** If there are too many rows, or noise, L-BFGS minimises the distance between the
observed message and that of guessed rows and labels, within the row space if it is smaller.

An attack that fails does not prove that there is no better one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy.optimize import minimize

from fedssca.problem.problem import Array
from fedssca.studies.audit.audited_run import AuditedRun
from fedssca.studies.audit.count import nonzero_svd
from fedssca.studies.audit.message import ObservedMessage, clip_factors

__all__ = ["Reconstruction", "invert", "square"]

STARTS, STEPS, PASSES = 200, 50, 6
"""The numbers of random starts, of steps per start, and of attacks on what is left."""
SOLVED = 1e-9
"""The sum of squared residuals, of order one at the start, below which a row is solved."""
CROWDED = 0.7
"""The ratio of rows to first-layer gradients above which single rows have too few equations."""
OUTSIDE = 0.1
"""The weight of the residuals of features outside [0, 1]."""

Tick = Callable[[str], None]


class Reconstruction(NamedTuple):
    """The rows that the attack found."""

    x: np.ndarray
    """The scaled features, of shape (n, P)."""
    kind: np.ndarray
    """The index into `AuditedRun.kinds` of each row."""
    solved: int
    """How many of the rows, from the first on, solve the equations exactly."""


def invert(
    run: AuditedRun, message: ObservedMessage, tick: Tick = lambda text: None, seed: int = 0
) -> Reconstruction:
    """Reconstruct as many rows as are behind the message."""
    rng = np.random.default_rng(seed)
    rows = len(message.group.x)
    found: list[_Row] = []
    left = message
    noisy = message.noise is not None and message.noise.multiplier > 0
    few = rows <= CROWDED * len(message.first) and run.algorithm.steps == 1
    if few and not noisy and _rank(message.first) == rows:
        attempt = _solver(run, message, rows)
        for turn in range(PASSES):
            tick(f"solving for single rows, pass {turn + 1}: {len(found)} of {rows} found")
            new = _distinct(attempt(left.first, rows - len(found), rng), rows - len(found), left)
            for row in new:
                found.append(row)
                left = left._replace(
                    top=left.top - row.top, first=left.first - np.outer(row.delta, row.x)
                )
            if not new or len(found) == rows:
                break
    x = np.array([row.x for row in found]).reshape(-1, message.group.x.shape[1])
    kind = np.array([row.kind for row in found], int)
    if len(found) < rows:
        more, kinds = _match(run, left, rows - len(found), noisy, rng, tick)
        x, kind = np.concatenate([x, more]), np.concatenate([kind, kinds])
    return Reconstruction(x, kind, len(found))


class _Row(NamedTuple):
    """A row that solves the equations; its part of the message is (top, outer(delta, x))."""

    x: np.ndarray
    kind: int
    top: np.ndarray
    delta: np.ndarray
    residual: float


def _rank(first: np.ndarray) -> int:
    return len(nonzero_svd(first)[1])


def _solver(
    run: AuditedRun, message: ObservedMessage, size: int
) -> Callable[[np.ndarray, int, np.random.Generator], list[_Row]]:
    """Return a function (rest of G, number of rows in it, rng) -> the rows that solve it.

    Bases are padded with zeros to `size`, so that all passes share one compiled program.
    """
    import optimistix

    weights = message.group.weight
    weight, even = float(weights.mean()), float(np.ptp(weights) < 1e-9 * weights.mean())
    clip = (
        message.noise.clip if message.noise is not None and message.noise.unit == "sample" else 0.0
    )
    kinds, outside = len(run.kinds["y"]), OUTSIDE if run.boxed else 0.0

    def part(known: Any, a: Array, kind: Array) -> tuple[Array, Array, Array]:
        """Return x, and its part of the message without the weight."""
        first, v, _, _ = known
        x = a @ v
        found = run.gradients((first @ x)[None], jnp.eye(kinds)[kind][None])
        factor = clip_factors(run, found, x[None], clip)[0] if clip else 1.0
        return x, factor * found.top[0], factor * found.delta[0].ravel()

    def residual(known: Any, a: Array, kind: Array) -> Array:
        _, _, u, inverse = known
        x, _, delta = part(known, a, kind)
        across = delta - u @ (u.T @ delta)
        share = even * (weight * (a @ (inverse @ delta)) - 1)
        pieces = [across / jnp.linalg.norm(delta), (0.1 * share / jnp.sqrt(1 + share**2))[None]]
        if outside:
            pieces.append(outside * (jnp.minimum(x, 0) + jnp.maximum(x - 1, 0)))
        return jnp.concatenate(pieces)

    def solve(known: Any, a: Array, kind: Array) -> tuple[Array, Array]:
        """Return the end of at most STEPS Levenberg-Marquardt steps, and its squared residual."""
        method: Any = optimistix.LevenbergMarquardt(rtol=1e-8, atol=1e-10)

        def equations(at: Array, _: None) -> Array:
            return residual(known, at, kind)

        end = optimistix.least_squares(equations, method, a, max_steps=STEPS, throw=False).value
        value = jnp.sum(residual(known, end, kind) ** 2)
        return end, jnp.where(jnp.isfinite(value), value, jnp.inf)

    many = jax.jit(jax.vmap(solve, (None, 0, 0)))
    parts = jax.jit(jax.vmap(part, (None, 0, 0)))

    def attempt(left: np.ndarray, rows: int, rng: np.random.Generator) -> list[_Row]:
        u, s, v = (
            each[..., :rows] for each in (lambda t: (t[0], t[1], t[2].T))(nonzero_svd(left, 0.0))
        )
        room = size - rows
        known = (
            jnp.asarray(run.first),
            jnp.asarray(np.pad(v.T, ((0, room), (0, 0)))),
            jnp.asarray(np.pad(u, ((0, 0), (0, room)))),
            jnp.asarray(np.pad((u / s).T, ((0, room), (0, 0)))),
        )
        starts = _starts(run, STARTS, v.T, rng)
        guess = rng.integers(0, kinds, STARTS)
        ends, values = many(known, jnp.asarray(np.pad(starts, ((0, 0), (0, room)))), guess)
        x, top, delta = (np.asarray(each) for each in parts(known, ends, guess))
        inverse = np.asarray(known[3])
        # The weight of the row follows from the second equation.
        scale = 1 / np.einsum("nr,rj,nj->n", np.asarray(ends), inverse, delta)
        return [
            _Row(x[i], int(guess[i]), scale[i] * top[i], scale[i] * delta[i], float(values[i]))
            for i in np.argsort(values)
            if values[i] < SOLVED and np.isfinite(scale[i])
        ]

    return attempt


def _starts(run: AuditedRun, count: int, basis: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Return random rows in the span of a basis, of typical norm; images with positive sum."""
    free, width = basis.shape
    starts = rng.standard_normal((count, free))
    length = np.sqrt(width) / (3 if run.boxed else 1)
    starts *= length / np.linalg.norm(starts, axis=1, keepdims=True)
    if run.boxed:
        starts *= np.sign((starts @ basis).sum(1, keepdims=True) + 1e-30)
    return starts


def _distinct(ends: list[_Row], left: int, message: ObservedMessage) -> list[_Row]:
    """Return different solutions; if equations are scarce, only those of several starts."""
    groups: list[list[_Row]] = []
    for row in ends:
        for group in groups:
            if np.linalg.norm(row.x - group[0].x) < 0.02 * np.linalg.norm(row.x):
                group.append(row)
                break
        else:
            groups.append([row])
    scarce = len(message.first) - left + 1 <= left
    sure = [group[0] for group in groups if len(group) > scarce]
    return sure if len(sure) <= left else []


def _match(
    run: AuditedRun,
    message: ObservedMessage,
    rows: int,
    noisy: bool,
    rng: np.random.Generator,
    tick: Tick,
) -> tuple[np.ndarray, np.ndarray]:
    """Return the rows and kinds whose message is nearest to the observed one."""
    kinds, width = len(run.kinds["y"]), message.first.shape[1]
    _, _, rowspace = nonzero_svd(message.first)
    inside = rows <= len(rowspace) and rows < width and not noisy
    basis = rowspace[:rows] if inside else np.eye(width)
    free = len(basis)
    weight = float(message.group.weight.mean())
    clip = (
        message.noise.clip if message.noise is not None and message.noise.unit == "sample" else 0.0
    )
    side = square(run)
    seen = jnp.asarray(message.first @ basis.T), jnp.asarray(message.top)
    sizes = jnp.sum(seen[0] ** 2), jnp.sum(seen[1] ** 2)
    first, down = jnp.asarray(run.first), jnp.asarray(basis)

    @jax.jit
    def distance(known: Any, point: Array) -> Array:
        (target, target_top), (norm, norm_top), first, down = known
        a = point[: rows * free].reshape(rows, free)
        x = a @ down if inside else a
        belief = jax.nn.softmax(point[rows * free :].reshape(rows, kinds))
        found = run.gradients(x @ first.T, belief)
        share = weight * (clip_factors(run, found, x, clip) if clip else jnp.ones(rows))
        delta = found.delta.reshape(rows, -1) * share[:, None]
        off = jnp.sum((delta.T @ a - target) ** 2) / norm
        off += jnp.sum((jnp.einsum("n,nmd->md", share, found.top) - target_top) ** 2) / norm_top
        if run.boxed:
            off += jnp.mean((jnp.minimum(x, 0) + jnp.maximum(x - 1, 0)) ** 2)
        if side and not inside:
            picture = x.reshape(rows, side, side)
            rough = jnp.diff(picture, axis=1) ** 2, jnp.diff(picture, axis=2) ** 2
            off += 1e-3 * (rough[0].mean() + rough[1].mean())
        return off

    known = seen, sizes, first, down
    slope = jax.jit(jax.value_and_grad(distance, argnums=1))
    if inside or not run.boxed:
        start = _starts(run, rows, basis, rng)
    else:
        start = rng.uniform(0, 0.4, (rows, width))
    point = np.concatenate([start.ravel(), 0.01 * rng.standard_normal(rows * kinds)])
    budget = 600 if point.size < 30_000 else 300 if point.size < 200_000 else 120
    done = 0

    def value(at: np.ndarray) -> tuple[float, np.ndarray]:
        nonlocal done
        done += 1
        if done % 20 == 0:
            tick(f"fitting {rows} rows, step {done}")
        off, direction = slope(known, jnp.asarray(at))
        return float(off), np.asarray(direction)

    options = {"maxiter": budget, "maxfun": budget, "maxcor": 20, "ftol": 1e-12, "gtol": 1e-12}
    best = minimize(value, point, jac=True, method="L-BFGS-B", options=options).x
    x = best[: rows * free].reshape(rows, free) @ (basis if inside else np.eye(width))
    return x, best[rows * free :].reshape(rows, kinds).argmax(1)


def square(run: AuditedRun) -> int:
    """Return the side length of square images, or 0 for other data."""
    side = int(np.sqrt(run.dataset.train["x"].shape[1]))
    return side if run.boxed and side**2 == run.dataset.train["x"].shape[1] else 0
