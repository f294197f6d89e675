"""The section `[data]` of a run."""

from __future__ import annotations

from typing import Literal, TypeAlias

from pydantic import field_validator, model_validator
from pydantic.dataclasses import dataclass

from fedssca.run.schema.types import MODEL, Positive, Real, TextOrTexts, Whole, invalid, key

__all__ = ["PARTITIONERS", "DataSettings"]

PARTITIONERS = {
    "IidPartitioner": "iid",
    "DirichletPartitioner": "dirichlet",
    "PathologicalPartitioner": "classes",
}
"""Partitioners of flwr-datasets, and the partition that divides rows in the same way."""

DataName: TypeAlias = Literal[
    "adult",
    "breast-cancer",
    "credit",
    "diabetes",
    "digits",
    "fashion",
    "heart",
    "heart-flamby",
    "mnist",
]


@dataclass(frozen=True, config=MODEL)
class DataSettings:
    """The rows, and how they are divided among the clients."""

    name: DataName = key(
        "A ready-made data set. digits, breast-cancer and diabetes are installed with the package; "
        "mnist, fashion, adult and heart are downloaded by `fedssca data get`; the file of credit "
        "you download yourself. heart has four hospitals, one client each; heart-flamby are its "
        "rows, columns and test rows in FLamby's Fed-Heart-Disease.",
        title="Ready-made data set",
        default="digits",
        basic=True,
        unless=("path", "query"),
    )
    path: TextOrTexts = key(
        "Your own data in place of `name`: a text file such as CSV (also .gz), Parquet, NPZ (x, "
        "y), or a folder of NPY files. Several tables, as a list or a pattern such as sites/*.csv, "
        "are one client each: with its own rows, or with its own columns of the rows that share "
        "an `id`. The folder holds x.npy, y.npy, x_test.npy and y_test.npy (x uint8, or float32 "
        "near 1; y from 0 on), is read from disk as needed and may be larger than the memory.",
        title="Own data (file or folder)",
        default="",
        basic=True,
    )
    test_path: str = key(
        "A table like `path` with the test rows. Without it `test_fraction` of the rows are set "
        "aside.",
        title="File with test rows",
        default="",
    )
    database: str = key(
        "A SQLAlchemy URL to be used in place of a file, or env:NAME to read the URL from an "
        "environment variable.",
        title="Database address",
        default="",
    )
    query: str = key(
        "The SQL query that gives the rows of the database.", title="SQL query", default=""
    )
    dir: str = key(
        "The folder with the files of a ready-made data set.",
        title="Folder of the ready-made data set",
        default="",
    )
    label: TextOrTexts = key(
        "The label column of `path`, or a comparison such as num > 0, whose two outcomes are the "
        "classes. A column named y, label, target or class is found without it. A list names "
        "several labels at once (problem.task = multilabel), also of diabetes and breast-cancer: "
        "columns of 0 and 1, false and true or no and yes, or comparisons.",
        title="Label column",
        default="",
        basic=True,
    )
    id: str = key(
        "The column that identifies the rows of `path`. It is not a feature; files that hold "
        "different columns are joined by it.",
        title="Column of row ids",
        default="",
    )
    weight: str = key(
        "The column of `path` with the weights of the rows in the objective, numbers of 0 or more. "
        "It is not a feature; limits and metrics count every row once.",
        title="Column of row weights",
        default="",
    )
    client: str = key(
        "The column of `path` that names the client of each row, such as a hospital. It is not a "
        "feature. flwr-datasets divides rows in this way with NaturalIdPartitioner.",
        title="Column of clients",
        default="",
    )
    drop: list[str] = key(
        "Columns of `path` that are not features; limits can still make groups of them.",
        title="Columns to leave out",
        default=[],
    )
    categories: list[str] = key(
        "Columns of numbers that are codes: each number is a category, as if it were text.",
        title="Number columns that are categories",
        default=[],
    )
    columns: list[str] = key(
        "The names of the columns of `path`, if it has no line with names.",
        title="Column names",
        default=[],
    )
    missing: list[str] = key(
        "Cells that mean a missing value, beside empty cells, ?, NA, N/A, NaN and NULL.",
        title="Texts for missing values",
        default=[],
    )
    keep: list[str] = key(
        "Columns of `path` that are also kept unscaled under their names. The `column` of a "
        "constraint is kept without being listed.",
        title="Columns to keep unscaled",
        default=[],
    )
    impute: Literal["mean", "median", "most_frequent"] = key(
        "What replaces missing numbers: a statistic of the training rows. A further feature marks "
        "the rows where a number was missing. Missing text is a category of its own.",
        title="Missing numbers become the",
        default="mean",
    )
    most_categories: Whole = key(
        "The number of categories that a column of text has at most. If it has more values, the "
        "most frequent ones are categories and all others are one category together.",
        title="Most categories per column",
        default=50,
        ge=1,
    )
    test_fraction: Real = key(
        "The share of rows held out for testing, if the data have no test set.",
        title="Share of test rows",
        default=0.2,
        gt=0,
        lt=1,
    )
    calibration_fraction: Real | None = key(
        "The share of the training rows that is set aside to certify limits for new rows: by the "
        "hash of `id` where there is one, else at random.",
        title="Share of calibration rows",
        default=None,
        unset="0.2 if a confidence is asked for, else 0",
        ge=0,
        lt=1,
    )
    split: Literal["sample", "feature"] = key(
        "What the clients hold: different rows (sample), or different columns of the same rows "
        "(feature).",
        title="Clients hold different",
        default="sample",
        basic=True,
    )
    clients: Whole = key(
        "The number of clients.", title="Number of clients", default=10, ge=1, basic=True
    )
    partition: Literal["iid", "contiguous", "dirichlet", "classes"] = key(
        "How rows are divided: at random, in order, with skewed labels (dirichlet), or with few "
        "classes per client. Columns are always divided in order, also with iid. "
        "IidPartitioner, DirichletPartitioner and PathologicalPartitioner, as flwr-datasets calls "
        "them, mean iid, dirichlet and classes.",
        title="How rows are divided",
        default="iid",
        basic=True,
    )
    sizes: list[Positive] = key(
        "Sizes of unequal clients, as counts or as fractions.", title="Sizes of clients", default=[]
    )
    concentration: Positive = key(
        "How even the labels are with the partition dirichlet: 0.1 is skewed, 100 nearly even.",
        title="Evenness of labels",
        default=0.5,
    )
    classes_per_client: Whole = key(
        "The number of classes that each client holds with the partition classes.",
        title="Classes per client",
        default=2,
        ge=1,
    )
    label_holder: Whole = key(
        "The number of the only party that knows the labels, if parties hold columns. With -1 all "
        "parties know them.",
        title="Party with the labels",
        default=-1,
        ge=-1,
    )
    collection: Literal["exchange", "open"] = key(
        "How parties with columns work together. With exchange they send their hidden values h_i "
        "to each other; with open they send h_i and its Jacobian to the server, which reveals "
        "their columns.",
        title="How parties work together",
        default="exchange",
    )

    @field_validator("partition", mode="before")
    @classmethod
    def _takes_names_of_partitioners(cls, value: object) -> object:
        if value == "NaturalIdPartitioner":
            raise invalid("to divide rows by a column, name it: data.client = COLUMN", "partition")
        return PARTITIONERS.get(value, value) if isinstance(value, str) else value

    @property
    def labels(self) -> tuple[str, ...]:
        """The names of several labels at once; empty if there is one label."""
        return () if isinstance(self.label, str) else tuple(self.label)

    @property
    def paths(self) -> list[str]:
        """The files or patterns of `path`, in their order."""
        return [self.path] if isinstance(self.path, str) and self.path else list(self.path)

    @property
    def own(self) -> bool:
        """Whether the rows are the user's own, and not those of a ready-made data set."""
        return bool(self.path or self.query)

    @model_validator(mode="after")
    def _names_one_source(self) -> DataSettings:
        if self.path and self.query:
            raise invalid("give either path, or database and query", "query")
        if bool(self.query) != bool(self.database):
            raise invalid("database and query go together: give both, or path", "query")
        if self.client and not self.own:
            raise invalid(
                "it names a column of path; ready-made data have none", "client", self.client
            )
        if self.client and self.split == "feature":
            raise invalid("it divides rows, split = feature columns", "client", self.client)
        return self
