"""Functions of users by name, "package.module:function", from installed packages.

Whatever goes wrong inside such a function is one line for the user that names the function.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

from fedssca.errors import UserError, nearest

__all__ = ["call_own", "error_line", "failed", "own_function"]


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
