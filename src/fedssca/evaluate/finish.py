"""The last steps of a run: quasi-Newton steps on the gradients over all training rows.

Mini-batches bring w near the solution. Their noise keeps it away from it in steep directions, and
in flat directions plain gradient steps are slow. From the last point, sequential quadratic
programming goes on with the gradients over all rows,

    d = argmin  grad F_0'd + d'H d / 2    s.t.    F_m + margin_m + grad F_m'd <= 0,

where H is the limited-memory BFGS matrix of the Lagrangian. Its multipliers are at most
cap_m = 5 |grad F_0| / |grad F_m|: where noise has left w off a steep direction, the linear model
would ask for a long step along it, which the curvature of F_m makes useless. A cap that is reached
doubles as long as its limit stays broken. Rates have no cap: their gradients come from the few rows
near the threshold, and say little about how long a step may be. A step is accepted if it lowers the
merit F_0 + sum_m sigma_m max(0, F_m + margin_m). If the full step breaks limits, it is corrected
once by the shortest step in H that mends them (a second-order correction), unless that is longer
than the step itself, and is then halved until it is accepted. The margin is by how much the last
linear model missed a limit, so that accepted points lie inside. `BestPoints` sees every point that
is tried, so the best feasible one is kept.

A rate counts rows, so that its value does not move on most steps, and no step would be accepted.
Instead of it the steps see what its smooth stand-in promises: the value at the start plus the
integral of the stand-in's gradient along the path (trapezoidal rule). After every step this promise
is corrected by a share of its distance from the true rate. So the limit of the smooth problem moves
until the true rate is kept and would not be beyond, and points on both sides of it are tried.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
import scipy

from fedssca.evaluate.certificate import BestPoints
from fedssca.evaluate.evaluator import Evaluator
from fedssca.evaluate.kkt import Finished
from fedssca.problem.problem import Array

__all__ = ["finish"]

Row = dict[str, Any]
PAIRS, FEW = 30, 5
"""The number of curvature pairs in H, and that of a large model."""
LARGE = 1_000_000
"""Models with more parameters are large: memory counts, and vectors have the precision of w."""
TRIALS = 8
"""Points that are tried before a step is given up."""
FIRST, LONGEST = 0.02, 0.1
"""The length of the first step and of the longest one, relative to |w|."""
CAP, RAISED, FALLEN = 5.0, 2.0, 0.7
"""The caps of the multipliers in units of |grad F_0| / |grad F_m|, and by what one is multiplied
after a step that leaves more than this share of a broken limit."""
FOLLOW = 0.3
"""By which share of its distance the promised value of a rate follows the true one at a step."""
DONE, PATIENCE = 1e-5, 3
"""Training is finished when so many steps in a row improve the merit by less than this share."""


class InverseHessian:
    """The product of the inverse of H with vectors, from pairs (step, change of the gradient)."""

    def __init__(self, scale: float, pairs: int) -> None:
        self._scale, self._most = scale, pairs
        self._pairs: list[tuple[np.ndarray, np.ndarray]] = []

    def see(self, s: np.ndarray, y: np.ndarray) -> None:
        """Take a pair; one along which the curvature is not positive is left out."""
        if s @ y > 1e-8 * np.linalg.norm(s) * np.linalg.norm(y):
            self._pairs = [*self._pairs[1 - self._most :], (s, y)]
            self._scale = float(s @ y / (y @ y))

    def __call__(self, x: np.ndarray) -> np.ndarray:
        """Multiply with x, by the two-loop recursion."""
        x, kept = x.copy(), []
        for s, y in reversed(self._pairs):
            a = s @ x / (s @ y)
            x -= a * y
            kept.append(a)
        x *= self._scale
        for (s, y), a in zip(self._pairs, reversed(kept), strict=True):
            x += (a - y @ x / (s @ y)) * s
        return x


class Place(NamedTuple):
    """A point with its values."""

    w: np.ndarray
    objective: float
    f: np.ndarray
    """F_1..F_M; of rates what their smooth stand-ins promise."""
    true: np.ndarray
    """F_1..F_M as they are."""

    def merit(self, sigma: np.ndarray, margin: np.ndarray) -> float:
        """F_0 + sum_m sigma_m max(0, F_m + margin_m)."""
        return self.objective + float(sigma @ np.maximum(self.f + margin, 0))


def finish(
    evaluator: Evaluator,
    points: BestPoints,
    last: Array,
    row: Row,
    steps: int,
    rates: Sequence[int] = (),
) -> Finished:
    """Take at most `steps` steps from `last`, whose row is `row`; `points` sees what they reach.

    While a limit is still broken, there are up to twice as many. `rates` are the indices of the
    constraints that are rates.
    """
    passes, large = 0, last.size > LARGE
    kind = last.dtype if large else np.dtype(float)

    def visit(w: np.ndarray, promised: np.ndarray) -> Place | None:
        nonlocal passes
        passes += 1
        there = evaluator.row(jnp.asarray(np.asarray(w, last.dtype))) | {"round": row["round"]}
        if not np.isfinite([there["objective"], *there["constraints"]]).all():
            return None
        points.see(jnp.asarray(np.asarray(w, last.dtype)), there)
        values = np.array(there["constraints"], float)
        return Place(w, float(there["objective"]), np.where(counts, promised, values), values)

    def slopes(w: np.ndarray) -> np.ndarray:
        nonlocal passes
        passes += 1
        return np.asarray(evaluator.gradients(jnp.asarray(np.asarray(w, last.dtype))), kind)

    values = np.array(row["constraints"], float)
    counts = np.zeros(len(values), bool)
    counts[list(rates)] = True
    now = Place(np.asarray(last, kind), float(row["objective"]), values, values)
    g, length = slopes(now.w), float(np.linalg.norm(now.w)) or 1.0
    if not np.isfinite(g).all() or not g.any():
        return Finished(passes)
    sizes = np.linalg.norm(g, axis=1)
    first = FIRST * length / float(sizes[0] + sizes[1:].max(initial=0.0))
    inverse = InverseHessian(first, FEW if large else PAIRS)
    cap = CAP * (sizes[0] or sizes.max()) / np.maximum(sizes[1:], 1e-30)
    cap[counts] = np.inf
    sigma, margin = np.zeros(len(now.f)), np.zeros(len(now.f))
    found, idle, settled, reached = None, 0, False, [now.objective]
    reference = max(abs(now.objective), 1e-12)
    for done in range(2 * steps):
        if done >= steps and (now.true <= 0).all():
            break
        solved = np.stack([inverse(each) for each in g])
        target = now.f + margin - solved[0] @ g[1:].T
        v = quadratic_multipliers(target, g[1:] @ solved[1:].T, cap)
        d = -(solved[0] + v.astype(kind) @ solved[1:])
        if not np.isfinite(d).all():
            break
        sigma = np.maximum(1.5 * v, 0.5 * sigma)
        before = now.merit(sigma, margin)
        missing = np.maximum(now.f + margin, 0)
        mended = missing - np.maximum(now.f + margin + g[1:] @ d, 0)
        gain = min(float(g[0] @ d) - float(sigma @ mended), 0.0)
        share = min(1.0, LONGEST * length / max(float(np.linalg.norm(d)), 1e-300))
        step, new = share * d, None
        for trial in range(TRIALS):
            there = visit(now.w + step, now.f + g[1:] @ step)
            if there and there.merit(sigma, margin) <= before + 1e-4 * share * gain:
                new = there
                break
            correction = np.zeros_like(d)
            if trial == 0 and there and (there.f + margin > 0).any():
                correction = shortest(there.f + margin, g, solved)
            if 0 < np.linalg.norm(correction) <= np.linalg.norm(step):
                step = step - correction
            else:
                share /= 2
                step = share * d
        if new is None:
            break
        found, ahead = [float(price) for price in v], slopes(new.w)
        if not np.isfinite(ahead).all():
            break
        bent = v.astype(kind) @ (ahead[1:] - g[1:])
        inverse.see(new.w - now.w, ahead[0] - g[0] + bent)
        reference = max(min(reference, abs(new.objective)), 1e-12)
        idle = idle + 1 if before - new.merit(sigma, margin) < DONE * reference else 0
        if counts.any():
            integral = now.f + (g[1:] + ahead[1:]) @ (new.w - now.w) / 2
            follow = integral + FOLLOW * (new.true - integral)
            new = new._replace(f=np.where(counts, follow, new.f))
        stays = np.maximum(new.f, 0) > FALLEN * np.maximum(now.f, 0)
        cap = np.where(stays & (v >= cap), RAISED * cap, cap)
        now, g = new, ahead
        length = max(length, float(np.linalg.norm(now.w)))
        best = points.best[1]["objective"] if counts.any() and points.best else now.objective
        reached.append(float(best))
        missed = np.maximum(now.f + margin, 0) if share == 1 else 0
        margin = np.where(v > 0, np.maximum(missed, 0.5 * margin), 0)
        settled = idle >= PATIENCE and bool((now.true <= 0).all())
        if settled:
            break
    if found is not None and (now.true > 0).any():
        solved = np.stack([inverse(each) for each in g])
        for k in range(4):
            more = now.true + 0.5 * 2**k * now.true.max()
            there = visit(now.w - shortest(more, g, solved), now.f)
            if there is None or (there.true <= 0).all():
                break
    if settled:
        return Finished(passes, found, 0.0)
    late = reached[len(reached) // 2 :]
    lowered = (max(late) - late[-1]) / reference if len(late) > 2 else None
    return Finished(passes, found, lowered)


def shortest(f: np.ndarray, g: np.ndarray, solved: np.ndarray) -> np.ndarray:
    """The step d, shortest in H, with F_m - grad F_m'd <= 0."""
    v = quadratic_multipliers(f, g[1:] @ solved[1:].T)
    return np.asarray(v.astype(g.dtype) @ solved[1:])


def quadratic_multipliers(
    target: np.ndarray, gram: np.ndarray, cap: np.ndarray | None = None
) -> np.ndarray:
    """v that maximises v'target - v'G v / 2, 0 <= v <= cap. Without a cap v has no bound."""
    if not len(target):
        return np.zeros(0)
    gram, target = np.asarray(gram, float), np.asarray(target, float)
    size = np.sqrt(np.maximum(np.diag(gram), 1e-300))
    unit = gram / size[:, None] / size + 1e-8 * np.eye(len(size))
    root = np.linalg.cholesky((unit + unit.T) / 2)
    right = np.linalg.solve(root, target / size)
    found = np.asarray(scipy.optimize.nnls(root.T, right)[0])
    if cap is not None and (found > cap * size).any():
        found = np.asarray(scipy.optimize.lsq_linear(root.T, right, (0, cap * size)).x)
    return found / size
