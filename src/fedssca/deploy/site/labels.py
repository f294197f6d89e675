"""The labels of a site's rows: classes that all sites name, label sets, or numbers in a unit."""

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
from fedssca.data.encode.label_sets import has_label
from fedssca.data.encode.targets import NAMED, strata_of, target_numbers
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
        """Whether a label is a class; else it is a label set or a number."""
        return bool(self.asked["target"] == "class")

    @property
    def are_sets(self) -> bool:
        """Whether rows have several labels at once."""
        return bool(self.asked["target"] == "labels")

    def check(self, y: Array) -> None:
        """Refuse rows without a label and, in a regression, labels that are no numbers."""
        if missing_cells(y).any():
            row = int(np.flatnonzero(missing_cells(y))[0])
            raise UserError(f"the label is missing in row {row + 1}; leave out such rows")
        if self.asked["target"] not in NAMED:
            target_numbers(WHERE, y, self.asked["target"])

    def strata(self, y: Array) -> Array:
        """What test rows have in the same shares as training rows."""
        return strata_of(y, self.asked["target"])

    def counted(self, y: Array) -> Array:
        """The label by which every row is counted (`deploy.census.counted_labels`)."""
        if self.are_sets:
            return y & self.asked["limited"]
        return y if self.are_classes else np.zeros(len(y), int)

    def told(self, parts: Sequence[Array]) -> list[Any]:
        """The classes that enough rows have.

        Of several labels: 2 k + 1 if enough rows have label k, and 2 k if enough have it not.
        """
        if self.are_sets:
            own = [has_label(np.concatenate(parts), k) for k in range(len(self.asked["label"]))]
            rows = [int(count) for has in own for count in ((~has).sum(), has.sum())]
            return [word for word, count in enumerate(rows) if count >= self.telling.least]
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
        if self.asked["target"] in NAMED or y is None:
            return {}
        rules = EncodingRules(**self.asked["rules"] | {"impute": "mean"})
        return {TARGET: summarise("the target", y, train, rules, False, telling=self.telling)}

    def encode(self, y: Array, census: Census) -> Array:
        """The classes 0, 1, ... of all sites, label sets, or numbers in their common unit."""
        if self.are_sets:
            return y
        if census.target:
            numbers = target_numbers(WHERE, y, self.asked["target"])
            return TargetScale(*census.target).encode(numbers)
        places = {label: place for place, label in enumerate(census.labels)}
        check_labels(y, places)
        return np.array([places[label] for label in y.tolist()], np.int32)
