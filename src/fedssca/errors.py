"""Errors that users meet, as types: code asks for the type or the key, never for the words.

Every message is one line that says what is wrong, where, and what would be right.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable

__all__ = ["BatchTooLarge", "ConfigError", "Diverged", "UserError", "nearest"]


class UserError(ValueError):
    """Bad input. The message is one line: what is wrong, where, and what would be right."""

    key: str = ""
    """The configuration key that the error is about, e.g. "algorithm.batch"; empty if unknown."""


class ConfigError(UserError):
    """A key of a configuration has a wrong value, is unknown, or is missing."""

    def __init__(self, key: str, message: str) -> None:
        super().__init__(message)
        self.key = key

    def __reduce__(self) -> tuple[type[ConfigError], tuple[str, str]]:
        return type(self), (self.key, str(self))


class BatchTooLarge(UserError):
    """A client holds fewer rows than one batch."""

    key = "algorithm.batch"


class Diverged(UserError):
    """Training produced a value that is not finite."""


def nearest(name: str, known: Iterable[str]) -> str:
    """The end of an error line about an unknown name: the nearest known one, or all of them."""
    names = sorted(known)
    near = difflib.get_close_matches(name, names, n=1)
    return f"did you mean {near[0]!r}?" if near else f"known are {', '.join(names)}"
