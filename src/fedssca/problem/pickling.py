"""Pickling of functions that cannot be imported by name.

Constraints and models hold functions that are defined inside other functions, which pickle cannot
find. `remembered` lets the functions that a call returns know this call, such as loss_at_most(0.2),
and `portable` replaces them by it: to unpickle is to make the call again. Other functions that
cannot be imported, such as a lambda of the user, are pickled with their code, which the same
version of Python can read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass
from functools import wraps
from operator import attrgetter, itemgetter
from types import FunctionType
from typing import Any, NamedTuple, ParamSpec, TypeVar

__all__ = ["portable", "remembered"]

P = ParamSpec("P")
R = TypeVar("R")
Path = tuple[Callable[[Any], Any], ...]
"""The items and attributes that lead to a part of a value."""
MARK = "_fedssca_made_by"
"""The attribute of a function that holds the call which made it."""


class _Call:
    """A call maker(*args, **options); what it returned takes its place when it is unpickled."""

    def __init__(
        self, maker: Callable[..., Any], args: tuple[Any, ...], options: dict[str, Any]
    ) -> None:
        self.maker, self.args, self.options = maker, args, options

    def __reduce__(self) -> tuple[Any, ...]:
        return _called, (self.maker, portable(self.args), portable(self.options))


class _Part(NamedTuple):
    """A function in what a call returned; it takes its place when it is unpickled."""

    call: _Call
    """All functions of a call share it, so that it is made once for all of them."""
    path: Path

    def __reduce__(self) -> tuple[Any, ...]:
        return _found, (self.call, self.path)


def remembered(maker: Callable[P, R]) -> Callable[P, R]:
    """The same function; the functions in what it returns can be pickled with `portable`."""

    @wraps(maker)
    def made(*args: P.args, **options: P.kwargs) -> R:
        result = maker(*args, **options)
        call = _Call(made, args, options)
        given = [*args, *options.values()]
        for path, function in _functions(result):
            own = not any(function is each for each in given)
            if own and not _importable(function) and not hasattr(function, MARK):
                setattr(function, MARK, _Part(call, path))
        return result

    return made


def portable(value: Any) -> Any:
    """The value, with functions that cannot be imported replaced by what can be pickled."""
    if type(value) in (list, tuple):
        return type(value)(map(portable, value))
    if type(value) is dict:
        return {key: portable(each) for key, each in value.items()}
    if isinstance(value, FunctionType) and not _importable(value):
        import joblib

        known = getattr(value, MARK, None)
        return known or joblib.wrap_non_picklable_objects(value, keep_wrapper=False)
    return value


def _functions(value: Any, path: Path = ()) -> Iterator[tuple[Path, FunctionType]]:
    """All functions in lists, tuples, dictionaries and dataclasses."""
    if isinstance(value, FunctionType):
        yield path, value
    elif isinstance(value, list | tuple):
        for place, each in enumerate(value):
            yield from _functions(each, (*path, itemgetter(place)))
    elif isinstance(value, dict):
        for key, each in value.items():
            yield from _functions(each, (*path, itemgetter(key)))
    elif is_dataclass(value):
        for name in (field.name for field in fields(value)):
            yield from _functions(getattr(value, name), (*path, attrgetter(name)))


def _importable(function: FunctionType) -> bool:
    """Whether another process finds the function by its name."""
    plain = "<" not in function.__qualname__  # neither <locals> nor <lambda>
    return plain and function.__module__ != "__main__"


def _called(maker: Callable[..., Any], args: tuple[Any, ...], options: dict[str, Any]) -> Any:
    return maker(*args, **options)


def _found(made: Any, path: Path) -> Any:
    for step in path:
        made = step(made)
    return made
