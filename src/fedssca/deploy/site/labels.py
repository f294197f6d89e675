"""The labels of a site's rows: classes that all sites name, or numbers in a common unit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from fedssca.data.dataset import Array
from fedssca.data.encode import (
    ColumnSummary,
    EncodingRules,
    TargetScale,
    Telling,
    missing_cells,
    summarise,
)
from fedssca.data.encode.targets import target_numbers
from fedssca.deploy.census import TARGET, Census, Question
from fedssca.deploy.site.group_cells import MOST_GROUPS, check_labels
from fedssca.errors import UserError

__all__ = ["SiteLabels"]

WHERE = "its rows"


class SiteLabels(NamedTuple):
    """What a site does with the labels of its rows."""

    asked: Question
    telling: Telling

    @property
    def are_classes(self) -> bool:
        """Whether a label is a class; else it is a number."""
        return bool(self.asked["target"] == "class")

    def check(self, y: Array) -> None:
        """Refuse rows without a label and, in a regression, labels that are no numbers."""
        if missing_cells(y).any():
            row = int(np.flatnonzero(missing_cells(y))[0])
            raise UserError(f"the label is missing in row {row + 1}; leave out such rows")
        if not self.are_classes:
            target_numbers(WHERE, y, self.asked["target"])

    def classes(self, y: Array) -> Array:
        """The class of every row; numbers count as one class, whatever they are."""
        return y if self.are_classes else np.zeros(len(y), int)

    def told(self, parts: Sequence[Array]) -> list[Any]:
        """The classes that enough rows have."""
        if not self.are_classes:
            return [0]
        found = Counter(np.concatenate(parts).tolist())
        if len(found) > MOST_GROUPS:
            raise UserError(
                f"{len(found)} different labels: is that the column? set label in site.toml, or "
                'problem.task = "regression"'
            )
        return sorted(label for label in found if found[label] >= self.telling.least)

    def summary(self, y: Array | None, train: Array | None) -> dict[str, ColumnSummary]:
        """The count, mean and squared distances of a target of numbers over the training rows."""
        if self.are_classes or y is None:
            return {}
        rules = EncodingRules(**self.asked["rules"] | {"impute": "mean"})
        return {TARGET: summarise("the target", y, train, rules, False, telling=self.telling)}

    def encode(self, y: Array, census: Census) -> Array:
        """The classes 0, 1, ... of all sites, or numbers in their common unit."""
        if census.target:
            numbers = target_numbers(WHERE, y, self.asked["target"])
            return TargetScale(*census.target).encode(numbers)
        places = {label: place for place, label in enumerate(census.labels)}
        check_labels(y, places)
        return np.array([places[label] for label in y.tolist()], np.int32)
