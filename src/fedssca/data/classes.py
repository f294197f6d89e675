"""The names of classes: the values of the label that the classes 0, 1, ... stand for."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeAlias

__all__ = ["Label", "class_names"]

Label: TypeAlias = str | int | bool
"""The name of a class, as it stands in the data: text, a whole number, or true and false."""


def class_names(values: Iterable[Any]) -> tuple[Label, ...]:
    """The names of classes from the distinct values of a label, in the order of the values.

    >>> class_names([0.0, 1.0])
    (0, 1)
    """
    plain = [getattr(value, "item", lambda value=value: value)() for value in values]
    return tuple(value if isinstance(value, str | bool) else int(value) for value in plain)
