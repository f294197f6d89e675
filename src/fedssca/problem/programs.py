"""Compiled programs, and who shares them.

Clients in one process have the same problem. JAX traces and compiles each function that it is
given once, so they share the time for that only if they share the function: `once_per_problem`.

Runs differ in numbers: limits, step sizes, penalties. `shared` makes arguments of them, so that
runs which differ in nothing else use one program. JAX keeps an array that a function holds apart
from the steps of its traced program, and writes a Python number into them; a `number` is an array.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, lru_cache, wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr

from fedssca.problem.problem import Array, Batch, Problem
from fedssca.problem.tracing import as_key, bytes_of, form

__all__ = ["number", "once_per_problem", "row_bytes", "shared"]

KEPT = 64
"""The number of shared programs that are kept for functions to come."""
SMALL = 10_000
"""Arrays with more entries are always arguments: compiled in, they would be copied many times."""

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


def shared(function: Callable[..., R]) -> Callable[..., R]:
    """`function` compiled, with one program for all functions that differ in arrays they hold."""
    traced = jax.jit(function)

    @cache
    def prepared(program: ClosedJaxpr) -> tuple[Callable[..., Any], list[Any]]:
        held = [each for each in program.consts if not _structural(each)]
        with jax.ensure_compile_time_eval():  # the first call may come from another program
            return _compiled(
                _Program(program, getattr(function, "__name__", "run"))
            ), jax.device_put(held)

    @wraps(function)
    def call(*args: Any) -> R:
        found = traced.trace(*args)
        run, held = prepared(found.jaxpr)
        made = run(held, jax.tree.leaves(args))
        whole: R = jax.tree.unflatten(jax.tree.structure(found.out_info), made)
        return whole

    return call


def _structural(held: Any) -> bool:
    """Whether an array says which numbers meet: the compiler leaves out products with 0 and 1."""
    if held.size > SMALL:
        return False
    if not jnp.issubdtype(held.dtype, jnp.floating):
        return True
    return bool(np.isin(np.asarray(held, float), (-1, 0, 1)).all())


class _Program:
    """A traced program, equal to those with the same steps and the same structure."""

    def __init__(self, traced: ClosedJaxpr, name: str) -> None:
        self.steps, self.name = traced.jaxpr, name
        self.structure = [held if _structural(held) else None for held in traced.consts]
        self._form = form(traced.jaxpr), as_key(self.structure)
        self._hash = hash(self._form)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Program) and self._form == other._form


@lru_cache(KEPT)
def _compiled(program: _Program) -> Callable[[list[Array], list[Any]], list[Array]]:
    def run(held: list[Array], given: list[Any]) -> list[Array]:
        numbers = iter(held)
        consts = [next(numbers) if fixed is None else fixed for fixed in program.structure]
        return jax.core.eval_jaxpr(program.steps, consts, *given)

    run.__name__ = program.name  # profiles and the files of the persistent cache show it
    return jax.jit(run)


def number(value: float, dtype: Any = float) -> Array:
    """A number of a method in a traced program, which takes it as an argument: see `shared`."""
    return jnp.asarray(np.array([value], float), dtype)[0]


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
