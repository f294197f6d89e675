"""What all parties know of each other's data: the census, and the problem that follows from it.

Before round 1 every site describes its data (`site.rows`), and the server joins the descriptions to
one `Census` (`server.census`). From it every party builds the same problem without seeing a row.
What is asked follows from the run's config alone: each site reads it there itself (`question`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, TypeAlias

import numpy as np

from fedssca.data import Columns, Dataset, Rows
from fedssca.data.classes import class_names
from fedssca.data.dataset import Array
from fedssca.data.encode import Encoder, TargetScale
from fedssca.data.encode.label_sets import subsets
from fedssca.deploy.notes import MOST_ROWS
from fedssca.errors import UserError
from fedssca.problem.weights import SAMPLE_WEIGHT
from fedssca.run.build import Job, encoding_rules, plan, reading_of
from fedssca.run.config import Config, render

__all__ = [
    "OTHER",
    "START",
    "TARGET",
    "Census",
    "Facts",
    "Question",
    "blank",
    "counted_labels",
    "fingerprint",
    "job_of",
    "named_labels",
    "question",
]

Question: TypeAlias = dict[str, Any]
"""What a run needs to know of every site's data."""

Facts: TypeAlias = dict[str, Any]
"""What a site tells of its data; `site.rows.SiteRows.facts` makes it."""

OTHER = "other"
"""The kind of the rows whose value, in a column beside x, is told by no site."""


START = "start"
"""The name of the array of the parameters with which training begins, if the server has them."""
TARGET = "\0target"
"""The place of the target among the columns that are summarised; no column can be called so."""


@dataclass(frozen=True)
class Census:
    """What all parties know of each other's data."""

    names: list[str]
    """The sites, in the order in which their messages are added."""
    columns: bool
    """True if the sites hold columns of the same rows, false if they hold rows."""
    sizes: list[int]
    """The number of training rows of each site; one number if the sites hold columns."""
    widths: list[int]
    """The number of features of each site that holds columns; one number if they hold rows."""
    features: list[str]
    """The names of all features in their order."""
    labels: list[Any]
    """The values of the label that the classes 0, 1, ... stand for; of several labels the names."""
    encoder: dict[str, Any] | None
    """The state of the encoder that all sites with rows share; None if x is only scaled."""
    scale: float
    """The model multiplies x by this."""
    extra: dict[str, list[str] | None]
    """The columns that constraints ask for, and the values of those that are text."""
    counts: list[list[float]]
    """For each combination of label and extra columns: its values, then its number of rows.

    They are those of all sites, or site by site if limits hold at every single site. A column of
    numbers that is divided into bins has one value for each bin.
    """
    dtype: str
    """The type of x."""
    test_rows: list[int]
    """Where sites hold columns and no file of test rows: the rows that are set aside."""
    held: int
    """Where sites hold columns: the number of test rows."""
    left_out: list[int] = field(default_factory=list)
    """Where sites hold columns: the number of rows of each that not all have; empty if none."""
    calibration: list[int] = field(default_factory=list)
    """The number of calibration rows of each site, or one number if the sites hold columns."""
    cells: list[str] = field(default_factory=list)
    """Where sites hold columns: a digest of each one's cells, for this run only."""
    target: list[float] = field(default_factory=list)
    """Shift and scale of a target of numbers; empty if the label is a class."""
    categories: list[list[int]] = field(default_factory=list)
    """Where sites hold columns: the features of each column of categories, if they are embedded."""


def question(config: Config, run: str) -> Question:
    """What a run needs to know of every site's data."""
    return {
        "columns": config.data.split == "feature",
        "label": config.data.label,
        "target": config.problem.target,
        "limited": config.limited_labels,
        "embeds": config.model.embed is not None,
        "test_fraction": config.data.test_fraction,
        "calibration_fraction": config.calibration_fraction,
        "extra": config.problem.columns,
        "counted": config.problem.counts,
        "bins": config.problem.bins,
        "per_site": config.problem.counts_per_client,
        "holder": config.data.label_holder,
        "reading": asdict(reading_of(config.data)),
        "categories": config.data.categories,
        "drop": [*config.data.drop, *filter(None, [config.data.weight, config.data.client])],
        "weight": config.data.weight,
        "rules": asdict(encoding_rules(config.data)),
        "run": run,
    }


def counted_labels(asked: Question, told: Sequence[Any]) -> list[Any]:
    """The labels by which rows are counted, of which a count has the place.

    They are the classes that sites tell, and one label for all numbers. Of several labels they are
    the sets of those that limits name, so that no count is about others.
    """
    if asked["target"] == "labels":
        return subsets(asked["limited"])
    return list(told) if asked["target"] == "class" else [0]


def named_labels(asked: Question, counted: Sequence[Any]) -> list[Any]:
    """The names of the classes or labels, from the labels by which rows are counted."""
    if asked["target"] == "labels":
        return list(asked["label"])
    return list(counted) if asked["target"] == "class" else []


def job_of(config: Config, census: Census, start: np.ndarray | None = None) -> Job:
    """The job that a config names for the rows of a census, with step sizes as they are.

    `start` are the parameters with which training begins, where the server has them of a run.
    """
    return plan(config, *blank(census, config), start)


def blank(census: Census, config: Config) -> tuple[Dataset, Rows | Columns]:
    """Data of the right sizes, counts and names with zeros for x: all that a problem needs."""
    total = sum(census.sizes)
    if total > MOST_ROWS:
        raise UserError(f"{total} rows at all sites: a run takes at most {MOST_ROWS}")
    repeats = np.array([count[-1] for count in census.counts], int)
    if len(repeats) and (repeats.min() < 0 or repeats.sum() != total):
        raise UserError(f"the sites count {repeats.sum()} rows in groups and {total} in all")
    y: Array = np.zeros(total, np.float32 if census.target else np.int32)
    columns: dict[str, Array] = {}
    if len(repeats):
        y = np.repeat(np.array([count[0] for count in census.counts], y.dtype), repeats)
    for place, (name, kinds) in enumerate(census.extra.items()):
        dtype = np.float32 if kinds is None else np.int32
        values = np.array([count[1 + place] for count in census.counts], dtype)
        columns[name] = np.repeat(values, repeats) if len(repeats) else np.zeros(total, dtype)
    x = np.broadcast_to(np.zeros((1, 1), census.dtype), (total, len(census.features)))
    if config.data.weight:
        columns[SAMPLE_WEIGHT] = np.ones(total, np.float32)
    rows = {"x": x, "y": y, **columns}
    dataset = Dataset(
        name="sites",
        train=rows,
        test={},
        classes=len(census.labels),
        scale=census.scale,
        features=tuple(census.features),
        labels=class_names(census.labels),
        kinds={name: tuple(kinds) for name, kinds in census.extra.items() if kinds is not None},
        encoder=None if census.encoder is None else Encoder.from_state(census.encoder),
        apart=census.columns,
        target=TargetScale(*census.target) if census.target else None,
        sets=config.problem.target == "labels",
        categories=tuple(map(tuple, census.categories)),
    )
    if not census.columns:
        return dataset, Rows(rows, tuple(census.sizes), names=tuple(census.names))
    ends = np.cumsum(census.widths)
    blocks = tuple(np.split(np.arange(ends[-1]), ends[:-1]))
    holder = config.data.label_holder
    return dataset, Columns(rows, blocks, holder if holder >= 0 else None, config.data.collection)


def fingerprint(job: Job, census: Census) -> str:
    """A digest that is equal at two parties only if they train the same model on the same terms."""
    hasher = hashlib.sha256(render(job.config).encode())
    hasher.update(repr(census).encode())
    problem = job.problem
    for part in (problem.start, problem.combine, problem.known, problem.limits):
        hasher.update(np.ascontiguousarray(part).tobytes())
    hasher.update(repr(problem.names).encode())
    return hasher.hexdigest()
