"""Evaluations with noise: sums over all rows to which no row adds more than a bound.

An evaluation is a vector of sums over rows: the K terms, and for every rate that is reported its
numerator and its denominator. What one row adds to each of them is clipped: to V = `value_clip`
where it may be a loss, to 1 where it counts. If a row is in m of the sums, entry j gets noise of
standard deviation

    sigma sqrt(m) b_j,        b_j the bound of entry j,

so that the vector, each entry over its noise, is one Gaussian mechanism with multiplier sigma. A
training row adds nothing to the sums over held-out rows and the other way round. Where the unit is
a client, it is in all sums with all its rows: b_j times N_i. Gradients over all rows and the sums
of groups and of single clients are not computed at all.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fedssca.data.sampling import words
from fedssca.data.split import Columns, Rows
from fedssca.evaluate.evaluator import EvaluatedSums, Evaluator, evaluator_of
from fedssca.evaluate.passes import full_passes, held_out, training
from fedssca.privacy.noise.gaussian import digest
from fedssca.problem.problem import Array, Batch, Problem, Rate, Vertical
from fedssca.rounds.shapes import batch_shape

__all__ = ["EvaluationNoise", "bounded", "noised_evaluator", "numbers_of", "sensible"]

OF_EVALUATIONS = 0xE7A1
"""Tells the random numbers of evaluations from those of messages."""


class EvaluationNoise(NamedTuple):
    """How much noise an evaluation of a run carries."""

    sigma: float
    value_clip: float
    unit: str
    sizes: tuple[int, ...]
    """The numbers of rows of the clients."""
    survivors: int
    """The clients in the smallest sum that the server can see; 0: it sees every client's sums."""
    numbers: int
    """The numbers of an evaluation."""

    @property
    def ratio(self) -> float:
        """The largest standard deviation of the noise over what a unit can change."""
        return self.sigma * math.sqrt(self.numbers)

    def deviations(
        self, problem: Problem, like: Rows | Columns, number: int | None, held: int
    ) -> EvaluatedSums:
        """Standard deviations of the noise of one client; `held` is its number of held-out rows.

        Without a `number`, those of the sum over all clients.
        """
        bounds = entry_bounds(problem, like, self.value_clip)
        rows, one = [bounds.terms, *jax.tree.leaves(bounds.train)], self.unit != "client"
        inside, outside = (sum(int((b > 0).sum()) for b in each) for each in (rows, rows[1:]))
        entries = (inside, outside) if one else (inside + outside,) * 2
        weights = [1.0, 1.0] if one else [float(self._rows(number)), float(held)]
        spread = self.sigma * self._clients(number)
        first, second = (spread * w * math.sqrt(m) for w, m in zip(weights, entries, strict=True))
        return EvaluatedSums(
            first * bounds.terms,
            jax.tree.map(lambda b: first * b, bounds.train),
            jax.tree.map(lambda b: second * b, bounds.train),
        )

    def _rows(self, number: int | None) -> int:
        if self.survivors or number is None:
            return max(self.sizes)
        return self.sizes[number]

    def _clients(self, number: int | None) -> float:
        """The factor of one client's noise, or of the noise of all together."""
        each = 1 / math.sqrt(max(self.survivors, 1))
        return each if number is not None else each * math.sqrt(len(self.sizes))


def numbers_of(problem: Problem, like: Rows | Columns) -> int:
    """The numbers of an evaluation: on training rows, and on held-out rows."""
    bounds = entry_bounds(problem, like, 1.0)
    rates = sum(leaf.size for leaf in jax.tree.leaves(bounds.train))
    return int(bounds.terms.size + 2 * rates)


def entry_bounds(problem: Problem, like: Rows | Columns, value_clip: float) -> EvaluatedSums:
    """What one row can add to every sum; 0 where it adds what is public."""
    found: dict[str, Any] = {}

    def look(w: Array, batch: Batch) -> Array:
        for name, rates in problem.measure(w, batch).items():
            top, bottom = _bounds(problem, name, value_clip)
            found[name] = [np.array([top, bottom]) for _ in rates]
        return w

    jax.eval_shape(look, problem.start, batch_shape(like, 1, problem.start.dtype))
    terms: Any = np.full(problem.combine.shape[1], value_clip)
    return EvaluatedSums(terms, found, None)


def _bounds(problem: Problem, name: str, value_clip: float) -> tuple[float, float]:
    """The bounds of what a row adds to numerator and denominator of a measure."""
    public = name in problem.over_all  # its denominator is the number of rows
    return 1.0 if name in problem.counted else value_clip, 0.0 if public else 1.0


def bounded(problem: Problem, value_clip: float) -> Problem:
    """The problem with the terms and measures of every row clipped, for evaluations only."""

    def clipped(rates: Mapping[str, Sequence[Rate]]) -> dict[str, Sequence[Rate]]:
        out: dict[str, Sequence[Rate]] = {}
        for name, parts in rates.items():
            most, least = _bounds(problem, name, value_clip)
            out[name] = [
                (a, jnp.clip(top, -most, most), jnp.clip(bottom, 0, least or 1))
                for a, top, bottom in parts
            ]
        return out

    def cut(values: Array) -> Array:
        return jnp.clip(values, -value_clip, value_clip)

    return dataclasses.replace(
        problem,
        terms=lambda w, batch: cut(problem.terms(w, batch)),
        of_scores=None,
        measure=lambda w, batch: clipped(problem.measure(w, batch)),
        vertical=problem.vertical and _bounded_head(problem.vertical, cut, clipped),
    )


def _bounded_head(
    split: Vertical, cut: Callable[[Array], Array], clipped: Callable[..., Any]
) -> Vertical:
    measure = split.measure
    return dataclasses.replace(
        split,
        head=lambda w0, hs, batch: cut(split.head(w0, hs, batch)),
        measure=None if measure is None else lambda w0, hs, batch: clipped(measure(w0, hs, batch)),
    )


def sensible(problem: Problem, sums: EvaluatedSums, value_clip: float) -> EvaluatedSums:
    """Noised sums with counts between 0 and all, which costs no privacy.

    If the number of held-out rows is 0, what is there of them is noise.
    """
    test = sums.test
    if test and "cost" in problem.over_all and float(test["cost"][0][1]) <= 0:
        test = None

    def rates(pairs: Any) -> Any:
        out = {}
        for name, parts in pairs.items():
            most = _bounds(problem, name, value_clip)[0]
            each = [np.asarray(part, float) for part in parts]
            out[name] = [
                np.array([np.clip(top, -most * max(n, 0), most * max(n, 0)), n]) for top, n in each
            ]
            if name in problem.counted:
                out[name] = [np.maximum(part, 0.0) for part in out[name]]
        return out

    return EvaluatedSums(sums.terms, rates(sums.train), test and rates(test))


def noised_evaluator(
    problem: Problem,
    clients: Rows | Columns,
    test: Mapping[str, np.ndarray] | None,
    noise: EvaluationNoise,
    seed: int,
) -> Evaluator:
    """The evaluator of a simulated run: noise of the right size, a function of (seed, w)."""
    cut = bounded(problem, noise.value_clip)
    passes, own, held = full_passes(cut), training(clients), held_out(test)
    rows = 0 if held is None else -(-len(held["weight"]) // len(noise.sizes))
    spread = noise.deviations(problem, clients, None, rows)

    @jax.jit
    def noised(w: Array, sums: Any, spread: Any) -> Any:
        key = jax.random.wrap_key_data(jnp.asarray(words(seed)), impl="threefry2x32")
        key = jax.random.fold_in(jax.random.fold_in(key, OF_EVALUATIONS), digest(w))
        leaves, tree = jax.tree.flatten(sums)
        sizes = jax.tree.leaves(spread)
        return jax.tree.unflatten(
            tree,
            [
                leaf + size * jax.random.normal(jax.random.fold_in(key, i), leaf.shape, leaf.dtype)
                for i, (leaf, size) in enumerate(zip(leaves, sizes, strict=True))
            ],
        )

    def sums(w: Array) -> EvaluatedSums:
        terms, rates = passes.sums(w, own)
        exact = EvaluatedSums(terms, rates, None if held is None else passes.sums(w, held)[1])
        size = spread if held is not None else spread._replace(test=None)
        return sensible(problem, noised(w, exact, size), noise.value_clip)

    return evaluator_of(cut, clients, lambda: clients.total, sums, None, None)
