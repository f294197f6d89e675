"""A trained model with its encoder and what its scores mean: from raw rows to predictions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import scipy
from jax.flatten_util import ravel_pytree

from fedssca.data.classes import Label
from fedssca.data.encode import Encoder, TargetScale, is_text
from fedssca.data.encode.labels import LabelName, as_label, label_cells
from fedssca.data.encode.targets import target_numbers
from fedssca.data.files import JoinedFiles
from fedssca.data.lines import Reading
from fedssca.data.new_rows import as_table, join_new_columns, read_new_rows, stack_new_rows
from fedssca.data.tables import Table
from fedssca.errors import UserError, nearest
from fedssca.evaluate.passes import CHUNK
from fedssca.problem.networks import Network
from fedssca.problem.programs import shared
from fedssca.problem.tasks import Task
from fedssca.run.build import Job, network_of, task_of
from fedssca.run.config import Config, parse, render
from fedssca.run.model.counted import CountedRows

__all__ = ["TrainedModel", "is_paths", "model_from"]

Array = np.ndarray


@dataclass(frozen=True)
class TrainedModel:
    """A trained model; `predict` and `predict_proba` take raw rows, as the training file has them.

    Rows are a DataFrame, a mapping from names to columns, the path of a file, or a list of paths.
    """

    network: Network
    w: Array = field(repr=False)
    """The parameters as one vector, as in model.npz."""
    classes: tuple[Label, ...]
    """The names of the classes or labels, in the order of the columns of `predict_proba`."""
    features: tuple[str, ...] = field(repr=False)
    """The names of the inputs of the network."""
    encoder: Encoder | None = field(repr=False)
    """How raw rows become the inputs; None if these are numbers that are used as they are."""
    settings: str = field(repr=False)
    """The configuration of the run, as TOML text."""
    counted: CountedRows = field(repr=False)
    """What the limits of the run need to know of its training rows."""
    kinds: dict[str, tuple[str, ...]] = field(default_factory=dict, repr=False)
    """The values of columns of text that limits use."""
    positive: int | None = field(default=None, repr=False)
    """The class that rates are about, if the data set itself defines one."""
    blocks: tuple[tuple[int, ...], ...] = field(default=(), repr=False)
    """The places of the features of each party; empty if the clients held rows."""
    apart: bool = field(default=False, repr=False)
    """The parties keep the encoders of their columns to themselves, so only they can predict."""
    versions: dict[str, str] = field(default_factory=dict, repr=False)
    """The versions of the packages that trained it."""
    digest: str = field(default="", repr=False)
    """The sha256 of the files that it was loaded from; empty if it was not saved yet."""
    target: TargetScale | None = field(default=None, repr=False)
    """The unit of the predicted number; None: a class is predicted."""
    whose: str = ""
    """Where the personal parts of the network come from, in words; empty if there are none."""

    def predict(self, rows: Any) -> Array:
        """The most likely class of every row, by name; of a regression the predicted number.

        Of several labels it is a table of zeros and ones, (rows, labels).
        """
        if self.target is not None:
            return self.numbers(self.scores(self.encode(self.table(rows))))
        chances = self.predict_proba(rows)
        if not self.exclusive:
            return np.asarray(chances > 0.5, int)
        return np.array(self.classes)[chances.argmax(axis=1)]

    def predict_proba(self, rows: Any) -> Array:
        """The probability of every class, or of every label, for every row, (rows, classes)."""
        if self.target is not None:
            raise UserError("a regression has no probabilities of classes: use predict")
        return self.chances(self.scores(self.encode(self.table(rows))))

    @property
    def exclusive(self) -> bool:
        """Whether a row is of exactly one class; else it has any number of labels."""
        return self.task.decisions.exclusive

    def chances(self, scores: Array) -> Array:
        """The probabilities of the classes or labels from scores; of a regression (rows, 0)."""
        if self.target is not None:
            return np.zeros((len(scores), 0))
        return probabilities(scores) if self.exclusive else scipy.special.expit(scores)

    @property
    def notes(self) -> tuple[str, ...]:
        """What users of the model should know of it."""
        return (f"the personal part of the model is {self.whose}",) if self.whose else ()

    @property
    def task(self) -> Task:
        """What its scores mean."""
        return task_of(self.config, self.target)

    def numbers(self, scores: Array) -> Array:
        """The predictions of a regression from its scores, in the target's own unit."""
        with self.own_precision():
            return self.task.predict(scores)

    def encode_labels(self, table: Mapping[str, Array], where: str) -> Array:
        """The labels y of raw rows: classes, label sets, or numbers in the unit of the target."""
        if self.target is not None:
            cells = label_cells(table, self.label, where)
            return self.target.encode(target_numbers(where, cells, self.config.problem.target))
        assert self.encoder is not None
        return self.encoder.encode_labels(table, where)

    def table(self, rows: Any) -> Table:
        """The raw columns of rows in any of the forms that predictions take."""
        if isinstance(rows, str | Path):
            return read_new_rows(Path(rows).expanduser(), self.reading, self.label)
        if is_paths(rows):
            return self.joined(rows).table
        return as_table(rows, self.reading)

    def joined(self, paths: Sequence[str | Path]) -> JoinedFiles:
        """The raw rows of several files: below each other, or joined by id if they hold columns."""
        files = [Path(path).expanduser() for path in paths]
        if self.config.data.split == "sample":
            return stack_new_rows(files, self.reading, self.label)
        return join_new_columns(files, self.id, self.reading, self._parties())

    def _parties(self) -> dict[str, int]:
        """The party of each raw column that belongs to one party."""
        owner = {place: party for party, block in enumerate(self.blocks) for place in block}
        found, begin = {}, 0
        for column in self.encoder.columns if self.encoder else ():
            own = {owner[place] for place in range(begin, begin + len(column.features))}
            begin += len(column.features)
            if len(own) == 1:
                found[column.name] = own.pop()
        return found

    def encode(self, table: Mapping[str, Array], where: str = "the rows") -> Array:
        """The inputs of the network (rows, features) from raw columns."""
        if self.encoder is not None:
            return self.encoder.encode(table, where)
        if self.apart:
            raise UserError(
                "no party has all columns of this model: predict jointly, with fedssca deploy "
                "predict RUN and no file"
            )
        for name in self.features:
            if name not in table:
                raise UserError(
                    f"{where}: column {name!r} is missing, which the model needs; "
                    f"{nearest(name, table)}"
                )
            if is_text(table[name]) or not np.isfinite(table[name]).all():
                raise UserError(f"{where}: column {name!r} must hold numbers only; mend it")
        return np.stack([table[name] for name in self.features], axis=1).astype(np.float32)

    def own_precision(self) -> AbstractContextManager[Any]:
        """Inside it JAX computes in the precision in which the model was trained."""
        return jax.enable_x64(self.network.dtype == "float64")

    def scores(self, x: Array) -> Array:
        """The scores of encoded rows (rows, classes); the largest names the class."""
        with self.own_precision():
            model = self.network.model()
            params = ravel_pytree(model.init(0))[1](jnp.asarray(self.w))
            score = shared(lambda rows: model.apply(params, rows))
            parts = [score(x[begin : begin + CHUNK]) for begin in range(0, len(x), CHUNK)]
            return np.concatenate([np.asarray(part) for part in parts])

    @property
    def config(self) -> Config:
        """The configuration of the run."""
        return parse(self.settings, source="the saved configuration")

    @property
    def label(self) -> LabelName:
        """The label of the training rows."""
        return self.encoder.label if self.encoder else as_label(self.config.data.label) or "y"

    @property
    def reading(self) -> Reading:
        """How files with raw rows are read."""
        return self.encoder.reading if self.encoder else Reading()

    @property
    def inputs(self) -> tuple[str, ...]:
        """The raw columns that the model needs."""
        return tuple(c.name for c in self.encoder.columns) if self.encoder else self.features

    @property
    def id(self) -> str:
        """The column that identified the training rows; empty if there was none."""
        return self.encoder.id if self.encoder else ""


def is_paths(rows: Any) -> bool:
    """Whether rows are given as several files."""
    return isinstance(rows, list | tuple) and all(isinstance(path, str | Path) for path in rows)


def model_from(job: Job, w: Array, versions: Mapping[str, str]) -> TrainedModel:
    """The model of a job with the parameters w that its training returned."""
    dataset, blocks = job.dataset, getattr(job.clients, "blocks", None)
    return TrainedModel(
        network_of(job.config, dataset, blocks),
        np.asarray(w),
        dataset.labels,
        dataset.features,
        dataset.encoder,
        render(job.config),
        CountedRows.of(job.config, job.clients),
        dict(dataset.kinds),
        dataset.positive,
        tuple(tuple(int(place) for place in block) for block in blocks or ()),
        dataset.apart,
        dict(versions),
        target=dataset.target,
    )


def probabilities(scores: Array) -> Array:
    """exp(s_l) / sum_k exp(s_k) of the scores s of every row."""
    odds = np.exp(scores - scores.max(axis=1, keepdims=True))
    return np.asarray(odds / odds.sum(axis=1, keepdims=True))
