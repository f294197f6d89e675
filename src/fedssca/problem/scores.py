"""Problems from any model that turns parameters and x into scores.

`assemble` combines scores, an objective and constraints. The ready-made networks (`models`), your
own functions (`from_scores`) and PyTorch modules (`torch`) all use it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any, TypeAlias, get_args

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from fedssca.errors import UserError, nearest
from fedssca.problem.constraint_kinds import ObjectiveName
from fedssca.problem.constraints import Constraint, ScoreTerm, worst_parts
from fedssca.problem.constraints.base import Once
from fedssca.problem.convolution import as_products
from fedssca.problem.functions import check_rows, error_line, some_rows
from fedssca.problem.limits import Bound
from fedssca.problem.losses import LOSS, WEIGHTED_LOSS
from fedssca.problem.problem import Array, Batch, Params, Problem, Rate, Vertical
from fedssca.problem.tasks import CLASSIFICATION, ScoreMeasures, Task
from fedssca.problem.worst import minimise_worst

__all__ = [
    "ScoreMeasures",
    "Scores",
    "assemble",
    "from_scores",
    "growth_of",
    "layers",
    "trained_part",
    "weights_by_path",
]

DEEP = 2.0
"""How many times the curvature of a network with two or more hidden layers may grow in training.

A convolutional network on 5,000 rows of MNIST, 10 clients, 150 rounds, accuracies of four seeds:
95.8, 92.6, 93.8, 90.0 % with 4; 95.8, 94.2, 94.9, 92.6 % with 2; with 1 the first seed becomes
unstable and ends at 64 %."""

Scores: TypeAlias = Callable[[Array, Batch], Array]
"""(flat w, batch) -> scores, (B, L)."""


def assemble(
    scores: Scores,
    start: Array,
    unravel: Callable[[Array], Params],
    constraints: Sequence[Constraint] = (),
    objective: str = "loss",
    l2: float = 0.0,
    split: Callable[[ScoreTerm, ScoreMeasures], Vertical] | None = None,
    parts: Sequence[Constraint] = (),
    depth: int = 1,
    level: float = 1.0,
    task: Task = CLASSIFICATION,
) -> Problem:
    """min loss + l2 |w|^2 (or, objective "norm", min |w|^2) subject to `constraints`.

    With `parts` (see `worst_parts`) the largest of their losses, about `level` at the start, takes
    the place of the loss. A sampled mean appears once, however many constraints use it. `split`
    makes the vertical form from the functions (scores, batch) -> terms (K, B) and (scores, batch)
    -> quantities to report. A network has `depth` layers with weights; the curvature of one with
    more than two may grow in training. The loss and the metrics are those of the `task`.
    """
    if objective not in (known_names := get_args(ObjectiveName)):
        raise UserError(f"objective = {objective!r} is unknown: {nearest(objective, known_names)}")
    if l2 < 0:
        raise UserError(f"l2 = {l2}: it must not be negative")
    constraints = [*constraints, *parts]
    for constraint in constraints:
        if not isinstance(constraint, Constraint):
            raise UserError(
                f"constraints holds a {type(constraint).__name__}: give one list of constraints, "
                "such as loss_at_most(0.2) + recall_at_least(0.9, labels)"
            )
    if task.weight is not None and objective != "loss":
        raise UserError(f'objective = {objective!r} takes no weights; only "loss" does')
    loss = LOSS if task.weight is None else WEIGHTED_LOSS
    fns: dict[str, ScoreTerm] = {loss: task.objective} if objective == "loss" else {}
    for constraint in constraints:
        fns.update({name: fn for name, (_, fn) in constraint.terms.items()})
    if not fns:
        raise UserError('objective "norm" without a constraint: w = 0 solves it; add a constraint')
    columns = list(fns)
    combine = np.zeros((len(constraints) + 1, len(columns)))
    if objective == "loss":
        combine[0, columns.index(loss)] = 1.0
    for row, constraint in zip(combine[1:], constraints, strict=True):
        for name, (weight, _) in constraint.terms.items():
            row[columns.index(name)] = weight * task.scale**constraint.units
    known = np.zeros(len(combine))
    known[0] = 1.0 if objective == "norm" else l2

    def stacked(outputs: Array, batch: Batch) -> Array:
        now = Once(outputs, batch, task)
        return jnp.stack([_one_per_row(name, now.of(fn)) for name, fn in fns.items()])

    def measures(outputs: Array, batch: Batch) -> dict[str, Sequence[Rate]]:
        now, rates = Once(outputs, batch, task), dict(task.measures(outputs, batch))
        for constraint in constraints:
            if constraint.rates is not None:
                unit = task.scale**constraint.units
                rates[constraint.name] = [
                    (unit * weight, top, bottom) for weight, top, bottom in now.of(constraint.rates)
                ]
        return rates

    made = Problem(
        terms=lambda w, batch: stacked(scores(w, batch), batch),
        start=start,
        unravel=unravel,
        combine=combine,
        known=known,
        limits=np.array([constraint.limit for constraint in constraints], float),
        names=tuple(constraint.name for constraint in constraints),
        measure=lambda w, batch: measures(scores(w, batch), batch),
        vertical=None if split is None else split(stacked, measures),
        scores=scores,
        of_scores=stacked,
        bounds=tuple(c.bound or Bound(c.name, high=c.limit) for c in constraints),
        stepwise=tuple(m for m, constraint in enumerate(constraints) if constraint.stepwise),
        notes=tuple(constraint.note for constraint in constraints if constraint.note),
        rooted=task.rooted | {c.name for c in constraints if c.units == 2},
        report=task.report,
        counted=task.counted | {c.name for c in constraints if c.stepwise and "loss" not in c.name},
        plain=task.weight is None and not task.own and task.decisions.exclusive,
        over_all=task.names,
        kinds=task.decisions.kinds if task.link is None else None,
        at_least=task.at_least,
        steady=task.link is not None,
        growth=growth_of(depth),
    )
    return minimise_worst(made, [part.name for part in parts], level) if parts else made


def layers(params: Params) -> int:
    """The number of layers with weights in a tree of parameters: arrays with two or more axes."""
    return sum(getattr(leaf, "ndim", 0) > 1 for leaf in jax.tree.leaves(params))


def _one_per_row(name: str, values: Array) -> Array:
    """The values of a term, if it gives one for each row; else a UserError."""
    if jnp.ndim(values) != 1:
        raise UserError(
            f"{name} gives an array of shape {jnp.shape(values)}: one number for each row is needed"
        )
    return values


def growth_of(depth: int) -> float:
    """How many times the curvature of a network with so many layers may grow in training."""
    return DEEP if depth > 2 else 1.0


def from_scores(
    apply: Callable[[Params, Array], Array],
    params: Params,
    constraints: Sequence[Constraint] = (),
    objective: str = "loss",
    l2: float = 0.0,
    *,
    sizes: Sequence[int] | None = None,
    groups: np.ndarray | None = None,
    column: str | None = None,
    task: Task = CLASSIFICATION,
) -> Problem:
    """A problem from a function apply(params, x) -> scores (B, L) and its parameters, any pytree.

    Floating-point arrays in the tree are trained. Everything else (functions, numbers, integer
    arrays) stays as it is, so a module that is itself a pytree can be given. If a mapping has the
    entry "params", as in Flax, only that entry is trained. `Result.params` is a tree of the same
    form. Objectives, `sizes`, `groups`, `column` and `task` are those of `classifier`; scores of a
    regression have the shape (B, 1).

    >>> weights = {"w": np.zeros((4, 3)), "b": np.zeros(3)}
    >>> problem = from_scores(lambda p, x: x @ p["w"] + p["b"], weights)
    >>> problem.dimension
    15
    """
    start, unravel = trained_part(params)
    quick = as_products(lambda w, x: apply(unravel(w), x))

    def scores(w: Array, batch: Batch) -> Array:
        rows = batch["x"].shape[0]
        try:
            outputs = quick(w, batch["x"])
        except UserError:
            raise
        except Exception as error:
            words = (
                f"apply(params, x) failed for x of shape {batch['x'].shape}: {error_line(error)}"
            )
            raise UserError(words) from error
        if not isinstance(outputs, jax.Array | np.ndarray):
            kind = type(outputs).__name__
            raise UserError(f"apply(params, x) returned {kind}: it must return the scores only")
        if jnp.ndim(outputs) != 2 or outputs.shape[0] != rows:
            raise UserError(
                f"apply(params, x) gave shape {jnp.shape(outputs)} for {rows} rows of x: "
                f"it must give scores of shape ({rows}, number of classes), or ({rows}, 1) for a "
                "regression"
            )
        check(batch["x"].shape[1:], batch["x"].dtype)
        return jnp.asarray(outputs)

    @cache
    def check(shape: tuple[int, ...], dtype: Any) -> None:
        """Raise a UserError if the scores of a row depend on other rows."""

        def call(x: np.ndarray) -> np.ndarray:
            return np.asarray(apply(unravel(start), jnp.asarray(x)))

        with jax.ensure_compile_time_eval():
            check_rows("apply(params, x)", call, some_rows(np.zeros((2, *shape), dtype)))

    parts = worst_parts(objective, sizes, groups, column)
    return assemble(
        *(scores, start, unravel, constraints, objective, l2),
        parts=parts,
        depth=layers(params),
        task=task,
    )


def trained_part(params: Params) -> tuple[Array, Callable[[Array], Params]]:
    """The floating-point arrays of a tree as one vector, and the function back to the tree."""
    if isinstance(params, Mapping) and "params" in params:
        start, inner = trained_part(params["params"])
        rest = {name: value for name, value in params.items() if name != "params"}
        return start, lambda w: {**rest, "params": inner(w)}
    leaves, tree = jax.tree.flatten(params)
    places = [i for i, leaf in enumerate(leaves) if _is_weight(leaf)]
    if not places:
        raise UserError(
            "the parameters hold no floating-point array, so there is nothing to train: "
            "give the model's weights as numpy or JAX arrays"
        )
    start, unravel = ravel_pytree([leaves[i] for i in places])

    def whole(w: Array) -> Params:
        filled: list[Any] = list(leaves)
        for i, leaf in zip(places, unravel(w), strict=True):
            filled[i] = leaf
        return jax.tree.unflatten(tree, filled)

    return start, whole


def weights_by_path(params: Params) -> list[tuple[str, Any]]:
    """The arrays that `trained_part` takes, in its order, with their places in the tree."""
    if isinstance(params, Mapping) and "params" in params:
        return weights_by_path(params["params"])
    return [
        (jax.tree_util.keystr(path, simple=True, separator="."), leaf)
        for path, leaf in jax.tree_util.tree_flatten_with_path(params)[0]
        if _is_weight(leaf)
    ]


def _is_weight(leaf: Any) -> bool:
    return isinstance(leaf, jax.Array | np.ndarray | np.generic) and bool(
        jnp.issubdtype(leaf.dtype, jnp.floating)
    )
