"""Programs that belong to a problem: made once, and kept as long as the problem itself.

Clients in one process have the same problem. JAX traces and compiles each function that it is
given once, so they share the time for that only if they share the function.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Concatenate, ParamSpec, TypeVar

import jax

from fedssca.problem.problem import Batch, Problem
from fedssca.problem.tracing import bytes_of

__all__ = ["once_per_problem", "row_bytes"]

P = ParamSpec("P")
R = TypeVar("R")


def once_per_problem(
    make: Callable[Concatenate[Problem, P], R],
) -> Callable[Concatenate[Problem, P], R]:
    """Let `make(problem, ...)` return the same object for the same problem and arguments."""

    @wraps(make)
    def made(problem: Problem, /, *args: P.args, **options: P.kwargs) -> R:
        kept = problem.programs
        key = (make, args, tuple(sorted(options.items())))
        if key not in kept:
            kept[key] = make(problem, *args, **options)
        found: R = kept[key]
        return found

    return made


def row_bytes(problem: Problem, batch: Batch) -> int:
    """The bytes of all that a problem's terms compute of one row; only shapes are looked at."""
    shapes = {name: (column.shape[1:], str(column.dtype)) for name, column in batch.items()}
    return _row_bytes(problem, tuple(sorted(shapes.items())))


@once_per_problem
def _row_bytes(
    problem: Problem, shapes: tuple[tuple[str, tuple[tuple[int, ...], str]], ...]
) -> int:
    def needed(rows: int) -> int:
        given = {name: jax.ShapeDtypeStruct((rows, *rest), kind) for name, (rest, kind) in shapes}
        return bytes_of(jax.make_jaxpr(problem.terms)(problem.start, given))

    return needed(2) - needed(1)
