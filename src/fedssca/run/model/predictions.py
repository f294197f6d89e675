"""Predictions for rows as a table: ids, and the class with its probabilities, or the number.

Of several labels every one has a column of zeros and ones, and one with its probability.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np

from fedssca.data.classes import Label
from fedssca.data.encode import as_text
from fedssca.data.encode.labels import label_sources, rows_with_label
from fedssca.data.new_rows import cells_as_written
from fedssca.data.tables import is_table
from fedssca.errors import UserError, nearest
from fedssca.run.model.evaluation import evaluate_rows
from fedssca.run.model.trained import TrainedModel, is_paths

__all__ = ["Predictions", "joint_predictions", "predict_rows", "write_predictions"]

Array = np.ndarray


class Predictions(NamedTuple):
    """The predictions of rows in their order."""

    classes: tuple[Label, ...]
    probabilities: Array
    """(rows, classes); of a regression (rows, 0)."""
    ids: dict[str, list[str]]
    """The columns that identify the rows."""
    notes: tuple[str, ...] = ()
    """What the user should know of the rows."""
    evaluation: dict[str, Any] | None = None
    """Loss, metrics and limits; None if the rows have no labels."""
    numbers: Array | None = None
    """The predicted number of every row; None: a class is predicted."""
    exclusive: bool = True
    """Whether a row is of exactly one class; else it has any number of labels."""

    @property
    def predicted(self) -> list[Label] | list[float] | list[list[int]]:
        """The most likely class of every row, or its number; of several labels zeros and ones."""
        if self.numbers is not None:
            return [float(number) for number in self.numbers]
        if not self.exclusive:
            return [[int(chance > 0.5) for chance in row] for row in self.probabilities]
        return [self.classes[place] for place in self.probabilities.argmax(axis=1)]

    @property
    def counts(self) -> dict[str, int]:
        """For how many rows each class, or each label, was predicted."""
        if not self.exclusive:
            many = (self.probabilities > 0.5).sum(axis=0).tolist()
            return {str(name): count for name, count in zip(self.classes, many, strict=True)}
        predicted: list[Any] = list(self.predicted)
        return {str(name): predicted.count(name) for name in self.classes}


def predict_rows(
    model: TrainedModel, rows: Any, where: str, keep: Sequence[str] = ()
) -> Predictions:
    """Predict rows of files, of a DataFrame or of a mapping; with labels, also evaluate them.

    Columns that identify the rows, and those in `keep`, stand beside the predictions.
    """
    joined = model.joined(rows) if is_paths(rows) else None
    table = model.table(rows) if joined is None else joined.table
    if not table or not len(next(iter(table.values()))):
        raise UserError(f"{where} has no rows; give at least one row to predict")
    for name in keep:
        if name not in table:
            raise UserError(f"{where}: there is no column {name!r} to keep; {nearest(name, table)}")
    x = model.encode(table, where)
    kept = dict.fromkeys([*_identifying(model, table), *keep])
    evaluation, notes = _evaluated(model, table, x, where)
    scores = model.scores(x)
    return Predictions(
        model.classes,
        model.chances(scores),
        {name: _ids(model, rows, table, name) for name in kept},
        (*model.notes, *(joined.notes if joined else ()), *_unseen(model, table), *notes),
        evaluation,
        _numbers(model, scores),
        model.exclusive,
    )


def joint_predictions(model: TrainedModel, answer: Mapping[str, Any]) -> Predictions:
    """The predictions for new rows that parties hold together, from the scores that they told.

    Their ids stand beside them if a party tells them, and else the numbers of the rows.
    """
    scores = np.asarray(answer["scores"], model.network.dtype)
    told = answer.get("ids")
    ids = {"row": [str(number) for number in range(1, len(scores) + 1)]}
    if told is not None:
        ids = {str(told["column"]): [str(name) for name in told["cells"]]}
    note = (
        "no party tells the ids of its new rows: rows are numbered as in new.csv of a party's "
        "folder `order`; share_ids = true in the site.toml of one party shows them"
    )
    notes = () if told else (note,)
    chances, numbers = model.chances(scores), _numbers(model, scores)
    return Predictions(model.classes, chances, ids, notes, None, numbers, model.exclusive)


def _numbers(model: TrainedModel, scores: Array) -> Array | None:
    return None if model.target is None else model.numbers(scores)


def write_predictions(found: Predictions, stream: IO[str]) -> None:
    """Write one line per row: ids, the prediction, and the probability of every class.

    Of several labels each has a column of its own in the place of the prediction.
    """
    writer = csv.writer(stream, lineterminator="\n")
    heads = ["prediction"] if found.exclusive else list(found.classes)
    writer.writerow([*found.ids, *heads, *(f"p[{name}]" for name in found.classes)])
    for *ids, label, chances in zip(
        *found.ids.values(), found.predicted, found.probabilities, strict=True
    ):
        told = label if isinstance(label, list) else [label]
        writer.writerow([*ids, *told, *(str(chance) for chance in chances)])


def _identifying(model: TrainedModel, table: Mapping[str, Array]) -> list[str]:
    """The columns that are no inputs of the model and have another value in every row."""
    used = {*model.inputs, *(label_sources(model.label, table) or ())}
    rest = {name: cells for name, cells in table.items() if name not in used}
    return [n for n, v in rest.items() if n == model.id or len(np.unique(v)) == len(v)]


def _ids(model: TrainedModel, rows: Any, table: Mapping[str, Array], name: str) -> list[str]:
    """A column as it stands in the files: no digit and no leading zero is lost."""
    stacked = is_paths(rows) and model.config.data.split == "sample"
    paths = rows if stacked else [rows] if isinstance(rows, str | Path) else []
    if paths and all(is_table(Path(path)) for path in paths):
        with suppress(UserError):  # a column that is not in the files as it is
            files = [Path(path).expanduser() for path in paths]
            how = (name, model.reading, model.label)
            return [cell for file in files for cell in cells_as_written(file, *how)]
    return [str(cell) for cell in as_text(table[name]).tolist()]


def _evaluated(
    model: TrainedModel, table: Mapping[str, Array], x: Array, where: str
) -> tuple[dict[str, Any] | None, list[str]]:
    """The evaluation on the rows that have a label, and how many have none."""
    unknown = model.encoder is None and model.target is None
    if unknown or label_sources(model.label, table) is None:
        return None, []
    there = rows_with_label(table, model.label, where)
    if not there.any():
        return None, []
    own = {name: values[there] for name, values in table.items()}
    y = model.encode_labels(own, where)
    lacking = int((~there).sum())
    notes = [f"{lacking:,} rows have no label and do not count in the evaluation"]
    return evaluate_rows(model, own, x[there], y), notes if lacking else []


def _unseen(model: TrainedModel, table: Mapping[str, Array]) -> list[str]:
    """How many cells hold a category that no training row had."""
    found = model.encoder.unseen(table) if model.encoder else {}
    return [
        f"column {name!r}: {count:,} cells hold a value that no training row had"
        for name, count in found.items()
    ]
