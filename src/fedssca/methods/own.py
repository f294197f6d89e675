"""Algorithms of users by name, "package.module:function"."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any

import jax

from fedssca.errors import UserError
from fedssca.methods.algorithm import Algorithm, Message, State, shortened
from fedssca.methods.schedule import Schedule
from fedssca.problem.functions import call_own, failed
from fedssca.problem.problem import Array, Problem

__all__ = ["own_algorithm"]

KEY = "algorithm.name"


def own_algorithm(
    name: str,
    problem: Problem,
    *,
    batch: int,
    steps: int,
    rate: Schedule,
    options: Mapping[str, Any],
) -> Algorithm:
    """The algorithm that a function makes: make(problem, batch=, steps=, rate=, **options).

    Whatever fails inside its functions is one line that names the function. After training has
    diverged, its way from w(t) to w(t+1) is shortened as that of every other method.
    """
    made = call_own(KEY, name, problem, batch=batch, steps=steps, rate=rate, **options)
    if not isinstance(made, Algorithm):
        raise UserError(
            f"{KEY} = {name!r} returned {type(made).__name__}: it must return a fedssca Algorithm"
        )
    init, reply, update = (_safe(name, made, each) for each in ("init", "reply", "update"))

    def checked_init(w: Array) -> State:
        state = init(w)
        if not isinstance(state, State):
            raise UserError(f"{KEY} = {name!r}: init must return a State, see fedssca.first_state")
        return state

    def checked_reply(*given: Any) -> Message:
        message = reply(*given)
        if not isinstance(message, Message):
            raise UserError(f"{KEY} = {name!r}: reply must return a Message(scalars, vectors)")
        return message

    def checked_update(state: State, total: Message) -> State:
        new = update(state, total)
        if _shapes(new) != _shapes(state):
            raise UserError(
                f"{KEY} = {name!r}: update must return a State with the shapes and number formats "
                f"of the one it gets: {_first_difference(state, new)}"
            )
        after: State = new._replace(w=shortened(state, new.w))
        return after

    return made._replace(
        init=checked_init,
        request=_safe(name, made, "request"),
        reply=checked_reply,
        update=checked_update,
    )


def _safe(name: str, made: Algorithm, part: str) -> Callable[..., Any]:
    """One function of the algorithm, whose errors are one line."""
    function: Callable[..., Any] = getattr(made, part)

    @wraps(function)
    def safe(*given: Any) -> Any:
        try:
            return function(*given)
        except UserError:
            raise
        except Exception as error:
            raise failed(KEY, f"{name}, {part}", error) from error

    return safe


def _shapes(state: Any) -> Any:
    leaves, tree = jax.tree.flatten(state)
    return tree, [(getattr(a, "shape", ()), getattr(a, "dtype", type(a))) for a in leaves]


def _first_difference(state: State, new: Any) -> str:
    """The first field that differs, with both shapes."""
    if not isinstance(new, State):
        return f"it returned {type(new).__name__}"
    for field, old, now in zip(State._fields, state, new, strict=True):
        if _shapes(old) != _shapes(now):
            return f"{field} was {_words(old)} and is {_words(now)}"
    return "the trees differ"


def _words(tree: Any) -> str:
    return str(jax.tree.map(lambda a: f"{getattr(a, 'dtype', '')}{getattr(a, 'shape', '')}", tree))
