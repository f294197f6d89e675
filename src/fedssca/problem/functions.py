"""Functions of users: found by name, "package.module:function", and checked.

Whatever goes wrong inside such a function is one line for the user that names the function.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np

from fedssca.errors import UserError, nearest

__all__ = ["call_own", "check_rows", "error_line", "failed", "own_function", "some_rows"]

NEAR: dict[str, Any] = {"rtol": 1e-3, "atol": 1e-6, "equal_nan": True}
"""How far two results may be apart that are the same but for rounding."""


def call_own(key: str, name: str, *given: Any, **options: Any) -> Any:
    """What the function of this name returns; `key` is where the name stands in the config."""
    function = own_function(key, name)
    try:
        return function(*given, **options)
    except UserError:
        raise
    except Exception as error:
        raise failed(key, name, error) from error


def own_function(key: str, name: str) -> Callable[..., Any]:
    """The function "package.module:function"; a UserError if there is none."""
    module, _, attribute = name.partition(":")
    try:
        home = import_module(module)
    except Exception as error:
        raise UserError(
            f"{key} = {name!r}: {module} cannot be imported ({error_line(error)}); install its "
            "package, or put its folder on PYTHONPATH"
        ) from error
    function = getattr(home, attribute, None)
    if not callable(function):
        public = [each for each, value in vars(home).items() if callable(value) and each[0] != "_"]
        known = nearest(attribute, public)
        raise UserError(f"{key} = {name!r}: {module} has no function {attribute!r}; {known}")
    made: Callable[..., Any] = function
    return made


def failed(key: str, name: str, error: Exception) -> UserError:
    """The line about an error inside a function of the user."""
    return UserError(f"{key} = {name!r} failed: {error_line(error)}")


def error_line(error: Exception) -> str:
    """The kind of an error and what it says, in one line."""
    words = " ".join(str(error).split())[:200]
    return f"{type(error).__name__}: {words}" if words else type(error).__name__


def check_rows(
    what: str, function: Callable[[np.ndarray], np.ndarray], x: np.ndarray, rows: int = 0
) -> None:
    """Raise a UserError unless the result for one row depends on this row only.

    The function is called twice on x, and once more after the second of two rows has changed. The
    axis `rows` of its results runs over the rows. Rows of whole numbers are not changed, because
    they may be the numbers of categories, unless they are bytes, as images are.
    """
    first = function(x)
    if not np.allclose(first, function(x), **NEAR):
        raise UserError(
            f"{what} gives other results if it is called again on the same rows: remove what is "
            "random, such as dropout, or switch it off with module.eval()"
        )
    if x.dtype.kind != "f" and x.dtype != np.uint8:
        return
    changed = np.stack([x[0], 1 - x[1]])
    if not np.allclose(first.take(0, rows), function(changed).take(0, rows), **NEAR):
        raise UserError(
            f"{what} gives another result for a row if another row of the batch changes: compute "
            "every row by itself, without means over the batch"
        )


def some_rows(like: np.ndarray) -> np.ndarray:
    """Random numbers where `like` holds numbers or bytes, and zeros where it holds codes.

    Numbers are between 0 and 1, because functions may take logarithms of them, or round them down
    to the number of a category.
    """
    rng = np.random.default_rng(0)
    if like.dtype == np.uint8:
        return rng.integers(0, 256, like.shape, np.uint8)
    if like.dtype.kind != "f":
        return like
    return rng.uniform(0.1, 0.9, like.shape).astype(like.dtype)
