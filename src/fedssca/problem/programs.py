"""Programs that belong to a problem: made once, and kept as long as the problem itself.

Clients in one process have the same problem. JAX traces and compiles each function that it is
given once, so they share the time for that only if they share the function.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Concatenate, ParamSpec, TypeVar

from fedssca.problem.problem import Problem

__all__ = ["once_per_problem"]

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
