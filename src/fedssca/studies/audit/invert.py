"""The rows behind a message, from the message: what an observer who knows w and the method can do.

**Row by row.** With n < m J rows, the first layer's gradient G = sum_n a_n delta_n x_n' has rank n:
its row space V holds every x_n, its column space U every delta_n, and delta_n = delta(x_n, y_n) is
a known function. So each row solves, alone,

    (I - U U') delta(a V, y) = 0        and        a_n x_n' G^+ delta_n = 1,

m J - n + 1 equations for the n numbers a, if the label is guessed; features known to lie in [0, 1]
add one wherever they touch a bound. Levenberg and Marquardt's method solves them from many random
starts at once; a solution that is found is taken off the message, and the rest, of lower rank, is
attacked again. Nothing about the data is assumed but its range.

**All at once.** What is left (too many rows, or noise) is fitted: L-BFGS over rows and labels on
the distance between their message and the one seen, in the row space while that is smaller than x.

No attack proves that there is no better one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy.optimize import minimize

from fedssca.problem.problem import Array
from fedssca.studies.audit.count import span
from fedssca.studies.audit.scene import Scene
from fedssca.studies.audit.view import View, shrink

__all__ = ["Guess", "invert", "square"]

STARTS, STEPS, PASSES = 200, 50, 6
SOLVED = 1e-9
"""The sum of squared residuals (of order one at the start) below which a row is solved."""
CROWDED = 0.7
"""Rows over gradients of the first layer above which equations for single rows are too few."""
OUTSIDE = 0.1
"""How much features outside [0, 1] count against the equations."""

Tick = Callable[[str], None]


class Guess(NamedTuple):
    """What the observer rebuilt: n rows, scaled; the first `solved` solve the equations exactly."""

    x: np.ndarray
    kind: np.ndarray
    solved: int


def invert(scene: Scene, view: View, tick: Tick = lambda text: None, seed: int = 0) -> Guess:
    """As many rows as are behind the view."""
    rng = np.random.default_rng(seed)
    rows = len(view.group.x)
    found: list[_Row] = []
    left = view
    noisy = view.noise is not None and view.noise.multiplier > 0
    few = rows <= CROWDED * len(view.first) and scene.algorithm.steps == 1
    if few and not noisy and _rank(view.first) == rows:
        attempt = _solver(scene, view, rows)
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
    x = np.array([row.x for row in found]).reshape(-1, view.group.x.shape[1])
    kind = np.array([row.kind for row in found], int)
    if len(found) < rows:
        more, kinds = _match(scene, left, rows - len(found), noisy, rng, tick)
        x, kind = np.concatenate([x, more]), np.concatenate([kind, kinds])
    return Guess(x, kind, len(found))


class _Row(NamedTuple):
    """A solution: its part of the message is (top, outer(delta, x))."""

    x: np.ndarray
    kind: int
    top: np.ndarray
    delta: np.ndarray
    residual: float


def _rank(first: np.ndarray) -> int:
    return len(span(first)[1])


def _solver(
    scene: Scene, view: View, size: int
) -> Callable[[np.ndarray, int, np.random.Generator], list[_Row]]:
    """(what is left of G, rows left in it, rng) -> where the starts ended.

    Bases are padded with zeros to `size`, so that one program does for all passes.
    """
    weights = view.group.weight
    weight, even = float(weights.mean()), float(np.ptp(weights) < 1e-9 * weights.mean())
    clip = view.noise.clip if view.noise is not None and view.noise.unit == "sample" else 0.0
    kinds, outside = len(scene.kinds["y"]), OUTSIDE if scene.boxed else 0.0

    def part(known: Any, a: Array, kind: Array) -> tuple[Array, Array, Array]:
        """x, and its part of the message but for the weight."""
        first, v, _, _ = known
        x = a @ v
        found = scene.gradients((first @ x)[None], jnp.eye(kinds)[kind][None])
        factor = shrink(scene, found, x[None], clip)[0] if clip else 1.0
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

    def descend(known: Any, a: Array, kind: Array) -> tuple[Array, Array]:
        """Levenberg and Marquardt's method."""

        def step(carry: tuple[Array, Array, Array], _: None) -> tuple[Any, None]:
            a, damping, best = carry
            slope = jax.jacfwd(lambda at: residual(known, at, kind))(a)
            square = slope.T @ slope
            damp = jnp.diag(damping * jnp.diag(square) + 1e-14)
            moved = a - jnp.linalg.solve(square + damp, slope.T @ residual(known, a, kind))
            value = jnp.sum(residual(known, moved, kind) ** 2)
            better = value < best
            after = jnp.where(better, moved, a), jnp.where(better, 0.3 * damping, 4 * damping)
            return (*after, jnp.where(better, value, best)), None

        begin = a, jnp.asarray(0.1), jnp.sum(residual(known, a, kind) ** 2)
        (a, _, best), _ = jax.lax.scan(step, begin, None, length=STEPS)
        return a, best

    many = jax.jit(jax.vmap(descend, (None, 0, 0)))
    parts = jax.jit(jax.vmap(part, (None, 0, 0)))

    def attempt(left: np.ndarray, rows: int, rng: np.random.Generator) -> list[_Row]:
        u, s, v = (each[..., :rows] for each in (lambda t: (t[0], t[1], t[2].T))(span(left, 0.0)))
        room = size - rows
        known = (
            jnp.asarray(scene.first),
            jnp.asarray(np.pad(v.T, ((0, room), (0, 0)))),
            jnp.asarray(np.pad(u, ((0, 0), (0, room)))),
            jnp.asarray(np.pad((u / s).T, ((0, room), (0, 0)))),
        )
        starts = _starts(scene, STARTS, v.T, rng)
        guess = rng.integers(0, kinds, STARTS)
        ends, values = many(known, jnp.asarray(np.pad(starts, ((0, 0), (0, room)))), guess)
        x, top, delta = (np.asarray(each) for each in parts(known, ends, guess))
        inverse = np.asarray(known[3])
        # What the row weighs follows from the second equation, whoever sent it.
        scale = 1 / np.einsum("nr,rj,nj->n", np.asarray(ends), inverse, delta)
        return [
            _Row(x[i], int(guess[i]), scale[i] * top[i], scale[i] * delta[i], float(values[i]))
            for i in np.argsort(values)
            if values[i] < SOLVED and np.isfinite(scale[i])
        ]

    return attempt


def _starts(scene: Scene, count: int, basis: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Random rows in the span of a basis, as long as rows are, the bright way round."""
    free, width = basis.shape
    starts = rng.standard_normal((count, free))
    length = np.sqrt(width) / (3 if scene.boxed else 1)
    starts *= length / np.linalg.norm(starts, axis=1, keepdims=True)
    if scene.boxed:
        starts *= np.sign((starts @ basis).sum(1, keepdims=True) + 1e-30)
    return starts


def _distinct(ends: list[_Row], left: int, view: View) -> list[_Row]:
    """Solutions that differ; where equations are scarce, only those that several starts reached."""
    groups: list[list[_Row]] = []
    for row in ends:
        for group in groups:
            if np.linalg.norm(row.x - group[0].x) < 0.02 * np.linalg.norm(row.x):
                group.append(row)
                break
        else:
            groups.append([row])
    scarce = len(view.first) - left + 1 <= left
    sure = [group[0] for group in groups if len(group) > scarce]
    return sure if len(sure) <= left else []


def _match(
    scene: Scene, view: View, rows: int, noisy: bool, rng: np.random.Generator, tick: Tick
) -> tuple[np.ndarray, np.ndarray]:
    """Rows whose message is nearest to the one seen."""
    kinds, width = len(scene.kinds["y"]), view.first.shape[1]
    _, _, rowspace = span(view.first)
    inside = rows <= len(rowspace) and rows < width and not noisy
    basis = rowspace[:rows] if inside else np.eye(width)
    free = len(basis)
    weight = float(view.group.weight.mean())
    clip = view.noise.clip if view.noise is not None and view.noise.unit == "sample" else 0.0
    side = square(scene)
    seen = jnp.asarray(view.first @ basis.T), jnp.asarray(view.top)
    sizes = jnp.sum(seen[0] ** 2), jnp.sum(seen[1] ** 2)
    first, down = jnp.asarray(scene.first), jnp.asarray(basis)

    @jax.jit
    def distance(known: Any, point: Array) -> Array:
        (target, target_top), (norm, norm_top), first, down = known
        a = point[: rows * free].reshape(rows, free)
        x = a @ down if inside else a
        belief = jax.nn.softmax(point[rows * free :].reshape(rows, kinds))
        found = scene.gradients(x @ first.T, belief)
        share = weight * (shrink(scene, found, x, clip) if clip else jnp.ones(rows))
        delta = found.delta.reshape(rows, -1) * share[:, None]
        off = jnp.sum((delta.T @ a - target) ** 2) / norm
        off += jnp.sum((jnp.einsum("n,nmd->md", share, found.top) - target_top) ** 2) / norm_top
        if scene.boxed:
            off += jnp.mean((jnp.minimum(x, 0) + jnp.maximum(x - 1, 0)) ** 2)
        if side and not inside:
            picture = x.reshape(rows, side, side)
            rough = jnp.diff(picture, axis=1) ** 2, jnp.diff(picture, axis=2) ** 2
            off += 1e-3 * (rough[0].mean() + rough[1].mean())
        return off

    known = seen, sizes, first, down
    slope = jax.jit(jax.value_and_grad(distance, argnums=1))
    if inside or not scene.boxed:
        start = _starts(scene, rows, basis, rng)
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


def square(scene: Scene) -> int:
    """The side of square images, 0 for other data."""
    side = int(np.sqrt(scene.dataset.train["x"].shape[1]))
    return side if scene.boxed and side**2 == scene.dataset.train["x"].shape[1] else 0
