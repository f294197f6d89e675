"""The best known objective subject to limits on true counts, by a search on the full data.

1. Counts are replaced by sums of sigmoid(s z), and the smooth problem is solved with its limit
   tightened or relaxed until the true count just keeps the limit, for several s and starts.
2. A bias, if the model has one, is set exactly: the best one among all that keep the limit.
3. For linear models the predictions that the limit needs are held (z_n >= 0 or z_n <= 0 for these
   rows), which leaves a convex problem; predictions that are no longer needed are released.
"""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from full_data import FullData, remembered, rows_of
from problems import Case
from scipy.optimize import minimize, nnls
from solvers import augmented, slsqp

SAFE = 1e-4
"""How far held margins stay away from 0, so that rounding does not flip a prediction."""


class Search:
    """One problem: objective, true limits, and the best feasible point so far."""

    def __init__(self, case: Case) -> None:
        self.counts = case.counts
        rows = rows_of(case.clients)
        self.x, y = rows["x"], jnp.asarray(rows["y"], jnp.float64)
        self.weights, self.bounds = self.counts.weights, self.counts.bounds
        l2, weights = self.counts.l2, jnp.asarray(self.weights)

        def objective(w: Any) -> Any:
            z = self.counts.margin(w, self.x)
            return jnp.mean(jnp.logaddexp(0.0, z) - y * z) + l2 * (w @ w)

        def smooth(w: Any, sharpness: Any) -> Any:
            chosen = jax.nn.sigmoid(sharpness * self.counts.margin(w, self.x))
            return jnp.concatenate([objective(w)[None], weights @ chosen])

        self.objective = jax.jit(jax.value_and_grad(objective))
        self.margin = jax.jit(lambda w: self.counts.margin(w, self.x))
        self.smooth = jax.jit(lambda w, s: (smooth(w, s), jax.jacrev(smooth)(w, s)))
        self.best: tuple[float, np.ndarray] | None = None

    def limits(self, z: np.ndarray) -> np.ndarray:
        return self.weights @ (z > 0) - self.bounds

    def value(self, w: np.ndarray) -> float:
        """The objective; infinite if a limit is broken. The best point is kept."""
        z = np.asarray(self.margin(w))
        if self.limits(z).max() > 1e-12 or np.abs(z).min() < SAFE / 1000:
            return np.inf
        value = float(self.objective(w)[0])
        if self.best is None or value < self.best[0]:
            self.best = value, w
        return value

    def at(self, sharpness: float, change: float) -> Smooth:
        """The smooth problem with its bounds changed."""
        return Smooth(self, sharpness, change)

    def with_bias(self, w: np.ndarray) -> np.ndarray | None:
        """The best bias between two margins near the boundary that keeps the limits."""
        margins = np.asarray(self.margin(w))
        z = np.sort(margins)
        middle = np.searchsorted(z, 0.0)
        near = z[max(0, middle - 400) : middle + 400]
        found = None
        for shift in -(near[1:] + near[:-1])[np.diff(near) > SAFE / 50] / 2:
            if self.limits(margins + shift).max() <= 1e-12:
                other = w.copy()
                other[self.counts.bias] += shift
                value = self.value(other)
                found = (value, other) if found is None or value < found[0] else found
        return None if found is None else found[1]


class Smooth:
    """The values and gradients of a smooth problem, as `FullData` has them."""

    def __init__(self, search: Search, sharpness: float, change: float) -> None:
        def both(w: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            f, g = (np.array(a) for a in search.smooth(w, sharpness))
            f[1:] -= search.bounds + change
            return f, g

        self._both = remembered(both)

    def __call__(self, w: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return self._both(w)

    def lagrangian(self, w: np.ndarray, nu: np.ndarray, c: np.ndarray) -> tuple[float, np.ndarray]:
        f, g = self._both(w)
        push = np.maximum(0, nu + c * f[1:])
        return float(f[0] + np.sum((push**2 - nu**2) / (2 * c))), g[0] + push @ g[1:]


def relaxations(search: Search, w: np.ndarray, sharpness: float, steps: int = 6) -> Any:
    """Bisect the change of the bounds such that the true limits are just kept.

    Yields the feasible points that are passed.
    """
    problem = SimpleNamespace(constraints=len(search.bounds), limits=search.bounds)
    size = 0.05 * (np.abs(search.weights).sum(axis=1).max() + 1e-9)
    low, high, change = -size, size, 0.0
    for _ in range(steps):
        w = augmented(search.at(sharpness, change), w, problem, outer=8, inner=100)
        feasible = np.isfinite(search.value(w))
        point = w if search.counts.bias is None else search.with_bias(w)
        if point is not None and (feasible or search.counts.bias is not None):
            yield point
        low, high = (change, high) if feasible else (low, change)
        change = (low + high) / 2


class Held:
    """The convex problem in which the predictions of some rows of a linear model are held."""

    def __init__(self, search: Search) -> None:
        self.search = search
        self.x = np.c_[np.ones(len(search.x)), np.asarray(search.x, float)]

    def needed(self, w: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The side of every row that the tightest limit needs (0: either), and free wrong rows."""
        z = self.x @ w
        need = self.search.weights[int(np.argmax(self.search.limits(z)))]
        side = np.where((need > 0) & (z <= 0), -1.0, np.where((need < 0) & (z > 0), 1.0, 0.0))
        wrong = np.flatnonzero((need != 0) & (side == 0))
        return side, wrong[np.argsort(np.abs(z[wrong]))]

    def solve(self, w: np.ndarray, side: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The optimum with z_n side_n >= SAFE, and the rows at this bound by multiplier."""
        z, x = self.x @ w, self.x
        near = np.sort(np.abs(z))[min(len(z) - 1, 60)]
        working = np.flatnonzero((side != 0) & (side * z < near))
        for _ in range(6):
            rows = side[working, None] * x[working]
            limits = {"type": "ineq", "fun": lambda v, r=rows: r @ v - SAFE}
            limits["jac"] = lambda v, r=rows: r
            w = minimize(
                lambda v: tuple(np.asarray(a) for a in self.search.objective(v)),
                w,
                jac=True,
                method="SLSQP",
                constraints=limits,
                options={"maxiter": 100, "ftol": 1e-10},
            ).x
            wrong = np.flatnonzero((side != 0) & (side * (x @ w) < SAFE / 2))
            if not len(wrong):
                break
            working = np.union1d(working, wrong)
        tight = working[side[working] * (x[working] @ w) < 2 * SAFE]
        slope = np.asarray(self.search.objective(w)[1])
        price = nnls((side[tight, None] * x[tight]).T, slope)[0] if len(tight) else np.zeros(0)
        return w, tight[np.argsort(-price)]


def hold(search: Search, w: np.ndarray, seconds: float) -> None:
    """Improve a feasible point: hold what is needed, release it where possible, swap two rows."""
    held, ends = Held(search), time.monotonic() + seconds
    value = search.value(w)

    def better(side: np.ndarray) -> bool:
        nonlocal w, value, tight
        other, rows = held.solve(w, side)
        if search.value(other) < value * (1 - 1e-6):
            w, value, tight = other, search.value(other), rows
            return True
        return False

    tight = np.zeros(0, int)
    moved = better(held.needed(w)[0])
    while moved and time.monotonic() < ends:
        moved = better(held.needed(w)[0])
        side, free = held.needed(w)
        swaps = [(j, i) for j in tight[:6] for i in (-1, *free[:4])]
        for j, i in swaps:
            if moved or time.monotonic() > ends:
                break
            other = side.copy()
            other[j] = 0.0
            if i >= 0:
                other[i] = -np.sign(held.x[i] @ w) or 1.0
            moved = better(other)


def search(cases: list[Case]) -> dict[str, Any]:
    """The best feasible point; `cases` differ in the start of the network."""
    with jax.enable_x64(True):
        own = Search(cases[0])
        linear = own.counts.bias is not None
        free = SimpleNamespace(constraints=0, limits=np.zeros(0))
        tried = []
        for case in cases[:1] if linear else cases:
            w = slsqp(own.at(1.0, 0.0), np.asarray(case.problem.start, np.float64), free)
            if np.isfinite(own.value(w)):  # the limits are idle
                continue
            for sharpness in (2.0, 8.0, 32.0, 128.0) if linear else (4.0, 16.0):
                for point in relaxations(own, w, sharpness):
                    if linear:
                        hold(own, point, 5.0)
                    w = point
                tried.append(own.best[0] if own.best else None)
        if own.best is None:
            raise RuntimeError("no feasible point was found")
        if linear and tried:
            hold(own, own.best[1], 60.0)
        value, w = own.best
        f, _ = FullData(cases[0].problem, cases[0].clients)(w)
        if abs(f[0] - value) > 1e-9 or f[1:].max() > 1e-9:
            raise RuntimeError("the search and the problem do not agree")
        return {
            "objective": value,
            "prices": None,
            "worst": float(f[1:].max()),
            "exact": linear and not tried,
            "starts": [*tried, value],
        }
