"""Errors that users meet, as types: code asks for the type or the key, never for the words.

Every message is one line that says what is wrong, where, and what would be right.
"""

from __future__ import annotations

import difflib
import json
import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

__all__ = [
    "ERROR_FILE",
    "BatchTooLarge",
    "ConfigError",
    "Diverged",
    "UserError",
    "nearest",
    "read_error",
    "save_error",
]

ERROR_FILE = "FEDSSCA_ERROR_FILE"
"""The environment variable that names the file for the error with which a command ends."""


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


def nearest(name: str, known: Iterable[str], *, also_all: bool = False) -> str:
    """The end of an error line about an unknown name: the nearest known one, or all of them.

    With `also_all` all known names follow the nearest one.
    """
    names = sorted(known)
    near = difflib.get_close_matches(name, names, n=1)
    everything = f"known are {', '.join(names)}"
    if not near:
        return everything
    return f"did you mean {near[0]!r}?" + (f" {everything}" if also_all else "")


def save_error(message: str, key: str = "") -> None:
    """Write an error to ERROR_FILE, if there is one, for the process that started this command."""
    if path := os.environ.get(ERROR_FILE):
        with suppress(OSError):
            Path(path).write_text(json.dumps({"message": message, "key": key}), encoding="utf-8")


def read_error(path: Path) -> UserError | None:
    """The error that a command has written; None if there is none."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        error = UserError(str(found["message"]))
        error.key = str(found["key"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return error
