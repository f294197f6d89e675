"""The paper's condition: does "message of these rows = the message" have infinitely many solutions?

By number: n rows of K = P + L unknowns each (the features, and a label as L numbers) against the
count of numbers in the message. By rank: the rank of the Jacobian of the map rows -> message at the
true rows. If it equals the number of unknowns, the true rows are locally the only solution.

The Jacobian of a large network does not fit into memory, but most of it is known. Write a change of
the rows as dX = C V + D, where V is an orthonormal basis of the span of the rows (r directions) and
D is orthogonal to it. In the directions orthogonal to V, the gradient of the first layer changes by
Delta' D alone, so

    rank = n (P - r) + rank of the map (C, labels) -> (first-layer gradient V', all else),

if Delta' (m J x n) has rank n. The second map is small. If it has more than `DENSE` unknowns, the
rank of a random part of the matrix is computed, which is a lower bound.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fedssca.problem.problem import Array, Batch
from fedssca.studies.audit.audited_run import AuditedRun
from fedssca.studies.audit.message import ObservedMessage

__all__ = ["Count", "count", "nonzero_svd"]

DENSE = 1400
"""The largest number of unknowns with which a rank is computed in full."""
SKETCH = 150
"""The number of random directions that are used if there are more unknowns."""
CHUNK = 64
"""The number of directions whose derivatives are computed together."""
SMALL = 1e-9
"""Singular values below this fraction of the largest count as zero."""


class Count(NamedTuple):
    """Unknowns against equations."""

    rows: int
    """The number n of rows behind the message."""
    unknowns: int
    """n K, as the paper counts."""
    free: int
    """n (K - 1), since the L numbers of a label sum to one; the rank is compared with this."""
    equations: int
    """The count of numbers in the message."""
    rank: int | None
    """The rank of the Jacobian; None if it was not computed, for example because of noise."""
    exact: bool
    """Whether the rank was computed in full; otherwise it is a lower bound."""
    how: str
    """How the rank was computed."""

    @property
    def counted(self) -> bool:
        """Whether there are more unknowns than equations: the paper's condition."""
        return self.unknowns > self.equations

    @property
    def unique(self) -> bool | None:
        """Whether the rows are locally the only solution; None if that is not known."""
        if self.rank is None or self.counted:
            return False
        full = self.rank >= self.free
        return full if full or self.exact else None


def count(run: AuditedRun, observed: ObservedMessage) -> Count:
    """Count unknowns and equations of one message, and compute the rank."""
    rows, width = observed.group.x.shape
    labels = len(np.unique(run.kinds["y"]))
    unknowns = rows * (width + labels)
    sizes = rows, unknowns, unknowns - rows, observed.equations
    if observed.noise is not None and observed.noise.multiplier:
        how = "noise: no equation holds exactly"
        return Count(*sizes, None, True, how)
    if unknowns > observed.equations or observed.noise is not None:
        how = "not computed: " + (
            "clipped messages" if observed.noise else "more unknowns than equations"
        )
        return Count(*sizes, None, True, how)
    return Count(*sizes, *_rank(run, observed, labels))


def nonzero_svd(
    matrix: np.ndarray, tolerance: float = 1e-6
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the singular triples whose singular value is not zero in single precision."""
    u, s, vt = np.linalg.svd(matrix, full_matrices=False)
    keep = s > tolerance * max(s[0], 1e-300)
    return u[:, keep], s[keep], vt[keep]


def _rank(run: AuditedRun, observed: ObservedMessage, labels: int) -> tuple[int, bool, str]:
    rows, width = observed.group.x.shape
    _, _, basis = nonzero_svd(observed.group.x, SMALL)
    if rows * (width + labels) <= DENSE:
        found, _ = _small(run, observed, np.eye(width), labels)
        return found, True, "rank of the whole Jacobian"
    if np.linalg.matrix_rank(observed.first, 1e-6 * np.linalg.norm(observed.first, 2)) < rows:
        found, exact = _small(run, observed, np.eye(width), labels)
        return found, exact, f"rank of a random part with {SKETCH:,} unknowns"
    found, exact = _small(run, observed, basis, labels)
    how = "rank of the Jacobian within the rows' span, the rest by its structure"
    if not exact:
        how += f"; of {rows * (len(basis) + labels - 1):,} unknowns there a random {SKETCH:,}"
    return rows * (width - len(basis)) + found, exact, how


def _small(
    run: AuditedRun, observed: ObservedMessage, basis: np.ndarray, labels: int
) -> tuple[int, bool]:
    """Return the rank of (C, labels) -> (first-layer gradient V', all else), and if it is exact."""
    rows, inside = len(observed.group.x), len(basis)
    size = rows * (inside + labels - 1)
    batch = {name: jnp.asarray(column) for name, column in observed.group.batch.items()}
    known = run.request, batch, jnp.asarray(basis)
    message = _message(run, rows, inside, labels)
    certain = np.eye(labels)[np.asarray(observed.group.batch["y"])][:, 1:]
    point = jnp.concatenate([(observed.group.x @ basis.T).ravel(), certain.ravel()])
    rng = np.random.default_rng(0)
    exact = size <= DENSE
    tangents = np.eye(size) if exact else rng.standard_normal((SKETCH, size)) / np.sqrt(size)
    equations = jax.eval_shape(message, known, point).size
    # Slightly more random combinations of the equations than unknowns preserve the rank.
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


def _message(run: AuditedRun, rows: int, inside: int, labels: int) -> Callable[[Any, Array], Array]:
    """Return the message as a function of (C, labels as numbers), from the code of the method."""
    terms, scale, shape = run.problem.terms, run.dataset.scale, run.first.shape
    places = run.whole.vertical
    assert places is not None

    def soft(w: Array, own: Batch) -> Array:
        """Mix the terms of all labels with the weights `odds`, which sum to one."""
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
        sent = run.algorithm.reply(soft, request, batch | {"x": x, "odds": odds})
        leaf = jnp.atleast_2d(sent.vectors[run.leaf])
        first = leaf[:, places.blocks[1]].reshape(-1, *shape) @ down.T
        parts = [leaf[:, places.blocks[0]], first, *jax.tree.leaves(sent.scalars)]
        return jnp.concatenate([jnp.ravel(part) for part in parts])

    return message
