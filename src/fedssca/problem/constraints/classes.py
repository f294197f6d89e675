"""The class that a rate is about: named by the user, or clear from the labels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from fedssca.data.classes import Label, class_names
from fedssca.errors import UserError
from fedssca.problem.constraint_kinds import POSITIVE

__all__ = ["TargetClass", "coded", "listed", "own_positive", "quoted", "target_class"]

SHOWN = 10
"""The largest number of classes that a message lists."""


class TargetClass(NamedTuple):
    """The class that a rate is about."""

    place: int
    """Its number among the classes 0, 1, ..."""
    words: str
    """How results speak of it: "'sick'", or "class 1" if its name is a number."""
    assumed: bool = False
    """It was not named, and the names of the classes were not known."""


def target_class(
    what: str,
    positive: Label | None,
    classes: Sequence[Label] | None,
    default: int | None = None,
) -> TargetClass:
    """The class `positive`: a name among `classes`, or a number where names are text or unknown.

    Without `positive` it is the `default` of the data set, or 1 (true) where the classes are 0 and
    1 (false and true). In all other cases it would be a guess, and is an error.

    >>> target_class("constraint 'fnr'", "sick", ["sick", "well"])
    TargetClass(place=0, words="'sick'", assumed=False)
    """
    if positive is None:
        place = default if default is not None else own_positive(classes)
        if place is None:
            raise UserError(
                f"{what} needs positive = <class>: the labels do not say which class it is about; "
                f"name the one that counts as positive: {listed(classes or [POSITIVE])}"
            )
        words = quoted(classes[place]) if classes else f"class {place}"
        return TargetClass(place, words, classes is None)
    if classes is None:
        if type(positive) is not int or positive < 0:
            raise UserError(
                f"{what}: positive = {positive!r}: give classes=<names of the classes in order>, "
                "or the number of the class, from 0 on"
            )
        return TargetClass(positive, f"class {positive}")
    place = _place(positive, classes)
    if place is None:
        numbers = all(name == i for i, name in enumerate(classes))
        more = f": it must be a whole number from 0 to {len(classes) - 1}" if numbers else ""
        raise UserError(
            f"{what}: positive = {positive!r} is not a class{more}; "
            f"the classes are: {listed(classes)}"
        )
    return TargetClass(place, quoted(classes[place]))


def own_positive(classes: Sequence[Label] | None) -> int | None:
    """The place of 1 or true among the classes 0 and 1, or false and true; else None."""
    if classes is None:
        return POSITIVE
    plain = [name.casefold() if isinstance(name, str) else name for name in classes]
    return POSITIVE if plain in ([0, 1], ["false", "true"]) else None


def coded(labels: np.ndarray, classes: Sequence[Label] | None) -> tuple[Any, Sequence[Label]]:
    """Labels as numbers 0, 1, ..., and the names of the classes.

    Labels of text are numbered in their sorted order, as data sets and estimators do. A table of
    several labels stays as it is.
    """
    if labels.ndim == 2:
        return labels, classes or [str(place) for place in range(labels.shape[1])]
    if labels.dtype.kind not in "iuf":
        found = np.unique(labels)
        names = class_names(found) if classes is None else tuple(classes)
        if len(found) and not set(class_names(found)) <= set(names):
            raise UserError(f"the labels {listed(class_names(found))} are not all in classes")
        places = {name: place for place, name in enumerate(names)}
        return np.array([places[name] for name in class_names(labels)], np.int32), names
    if classes is None:
        classes = range(max(2, int(np.max(labels, initial=0)) + 1))
    return labels, classes


def quoted(name: Label) -> str:
    """A class in words: text in quotation marks, numbers after the word class."""
    return f"'{name}'" if isinstance(name, str) else f"class {name}"


def listed(classes: Sequence[Label]) -> str:
    """The classes as a list in words."""
    names = ", ".join(_toml(name) for name in classes[:SHOWN])
    return names + (f" and {len(classes) - SHOWN} more" if len(classes) > SHOWN else "")


def _place(positive: Label, classes: Sequence[Label]) -> int | None:
    """The number of the class with this name; text may stand for a number ("1" for 1)."""
    for place, name in enumerate(classes):
        if name == positive and isinstance(name, bool) == isinstance(positive, bool):
            return place
    texts = [str(name).casefold() for name in classes]
    if not isinstance(positive, int) or isinstance(positive, bool):
        wanted = str(positive).casefold()
        return texts.index(wanted) if texts.count(wanted) == 1 else None
    if all(isinstance(name, str | bool) for name in classes) and 0 <= positive < len(classes):
        return int(positive)
    return None


def _toml(name: Label) -> str:
    """The name of a class as it is written in TOML."""
    if isinstance(name, bool):
        return str(name).lower()
    return f'"{name}"' if isinstance(name, str) else str(name)
