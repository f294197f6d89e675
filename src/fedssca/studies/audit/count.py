"""The paper's condition: has "message = what was sent" infinitely many solutions?

Counted: n rows of K = P + L unknowns each (features, and a label as L numbers) against the numbers
in the message. Measured: the rank of the Jacobian of the map rows -> message, at the real rows. If
it equals the number of unknowns, the rows are, nearby, the only solution.

The Jacobian of a big network does not fit into memory, but most of it is known. Write a change of
the rows as dX = C V + D, V an orthonormal basis of the rows' span (r directions), D orthogonal to
it. Seen in the directions orthogonal to V the first layer's gradient changes by Delta' D alone, so

    rank = n (P - r) + rank of the map (C, labels) -> (first-layer gradient V', all else),

if Delta' (m J x n) has rank n. The second map is small; past `DENSE` unknowns of it the rank of a
random part of the matrix is taken, which is a lower bound.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fedssca.problem.problem import Array, Batch
from fedssca.studies.audit.scene import Scene
from fedssca.studies.audit.view import View

__all__ = ["Count", "count", "span"]

DENSE = 1400
"""Unknowns up to which a rank is computed in full."""
SKETCH = 150
"""Random directions that are tried where there are more."""
CHUNK = 64
"""Directions that are pushed through the map together."""
SMALL = 1e-9
"""Singular values below this share of the largest are zero."""


class Count(NamedTuple):
    """Unknowns against equations; `rank` is None where noise leaves no equation to solve."""

    rows: int
    unknowns: int
    """n K, as the paper counts."""
    free: int
    """n (K - 1): a label's L numbers sum to one. This is what the rank is held against."""
    equations: int
    rank: int | None
    exact: bool
    """The rank was computed in full; else it is at least that."""
    how: str

    @property
    def counted(self) -> bool:
        """By count alone there are infinitely many solutions: the paper's condition holds."""
        return self.unknowns > self.equations

    @property
    def unique(self) -> bool | None:
        """The rows are locally the only solution; None: not known."""
        if self.rank is None or self.counted:
            return False
        full = self.rank >= self.free
        return full if full or self.exact else None


def count(scene: Scene, view: View) -> Count:
    """Both for one view."""
    rows, width = view.group.x.shape
    labels = len(np.unique(scene.kinds["y"]))
    unknowns = rows * (width + labels)
    sizes = rows, unknowns, unknowns - rows, view.equations
    if view.noise is not None and view.noise.multiplier:
        how = "noise: no equation holds exactly"
        return Count(*sizes, None, True, how)
    if unknowns > view.equations or view.noise is not None:
        how = "not computed: " + (
            "clipped messages" if view.noise else "more unknowns than equations"
        )
        return Count(*sizes, None, True, how)
    return Count(*sizes, *_rank(scene, view, labels))


def span(matrix: np.ndarray, tolerance: float = 1e-6) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Its singular triples without the zero ones (single precision leaves zeros of 1e-8)."""
    u, s, vt = np.linalg.svd(matrix, full_matrices=False)
    keep = s > tolerance * max(s[0], 1e-300)
    return u[:, keep], s[keep], vt[keep]


def _rank(scene: Scene, view: View, labels: int) -> tuple[int, bool, str]:
    rows, width = view.group.x.shape
    _, _, basis = span(view.group.x, SMALL)
    if rows * (width + labels) <= DENSE:
        found, _ = _small(scene, view, np.eye(width), labels)
        return found, True, "rank of the whole Jacobian"
    if np.linalg.matrix_rank(view.first, 1e-6 * np.linalg.norm(view.first, 2)) < rows:
        found, exact = _small(scene, view, np.eye(width), labels)
        return found, exact, f"rank of a random part with {SKETCH:,} unknowns"
    found, exact = _small(scene, view, basis, labels)
    how = "rank of the Jacobian within the rows' span, the rest by its structure"
    if not exact:
        how += f"; of {rows * (len(basis) + labels - 1):,} unknowns there a random {SKETCH:,}"
    return rows * (width - len(basis)) + found, exact, how


def _small(scene: Scene, view: View, basis: np.ndarray, labels: int) -> tuple[int, bool]:
    """Rank of the map (C, labels) -> (first-layer gradient times basis', all else)."""
    rows, inside = len(view.group.x), len(basis)
    size = rows * (inside + labels - 1)
    batch = {name: jnp.asarray(column) for name, column in view.group.batch.items()}
    known = scene.request, batch, jnp.asarray(basis)
    message = _message(scene, rows, inside, labels)
    certain = np.eye(labels)[np.asarray(view.group.batch["y"])][:, 1:]
    point = jnp.concatenate([(view.group.x @ basis.T).ravel(), certain.ravel()])
    rng = np.random.default_rng(0)
    exact = size <= DENSE
    tangents = np.eye(size) if exact else rng.standard_normal((SKETCH, size)) / np.sqrt(size)
    equations = jax.eval_shape(message, known, point).size
    # Random combinations of the equations, a few more than unknowns, keep the rank.
    keep = min(equations, len(tangents) + 32)
    mixed = np.eye(1) if keep == equations else rng.standard_normal((equations, keep))

    @jax.jit
    def push(known: Any, point: Array, mixed: Array, some: Array) -> Array:
        def one(t: Array) -> Array:
            return jax.jvp(lambda at: message(known, at), (point,), (t,))[1]

        seen = jax.vmap(one)(some)
        return seen if keep == equations else seen @ mixed

    parts = np.array_split(tangents, -(-len(tangents) // CHUNK))
    padded = [np.concatenate([p, np.zeros((len(parts[0]) - len(p), size))]) for p in parts]
    seen = np.concatenate([np.asarray(push(known, point, mixed, p)) for p in padded])
    singular = np.linalg.svd(seen, compute_uv=False)
    return int((singular > SMALL * singular[0]).sum()), exact


def _message(scene: Scene, rows: int, inside: int, labels: int) -> Callable[[Any, Array], Array]:
    """What is sent, as a function of (C, labels as numbers), by the method's own code."""
    terms, scale, shape = scene.problem.terms, scene.dataset.scale, scene.first.shape
    places = scene.whole.vertical
    assert places is not None

    def soft(w: Array, own: Batch) -> Array:
        """Labels as numbers that sum to one: the terms are mixed accordingly."""
        odds = jnp.concatenate([1 - own["odds"].sum(1, keepdims=True), own["odds"]], axis=1)
        hard = {name: column for name, column in own.items() if name != "odds"}
        each = [
            terms(w, hard | {"y": jnp.full_like(hard["y"], label)}) * odds[:, label]
            for label in range(labels)
        ]
        return jnp.sum(jnp.stack(each), axis=0)

    def message(known: Any, point: Array) -> Array:
        request, batch, down = known
        x = point[: rows * inside].reshape(rows, inside) @ down / scale
        odds = point[rows * inside :].reshape(rows, labels - 1)
        sent = scene.algorithm.reply(soft, request, batch | {"x": x, "odds": odds})
        leaf = jnp.atleast_2d(sent.vectors[scene.leaf])
        first = leaf[:, places.blocks[1]].reshape(-1, *shape) @ down.T
        parts = [leaf[:, places.blocks[0]], first, *jax.tree.leaves(sent.scalars)]
        return jnp.concatenate([jnp.ravel(part) for part in parts])

    return message
