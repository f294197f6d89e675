"""The data of a run: loaded as its config says, and shared out to its clients."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from fedssca.data import Columns, Dataset, Rows, by_feature, by_sample
from fedssca.data.calibration import with_calibration
from fedssca.data.encode import EncodingRules
from fedssca.data.encode.labels import as_label
from fedssca.data.lines import Reading
from fedssca.data.load import DataSource, encoded
from fedssca.data.split import by_owner
from fedssca.errors import UserError
from fedssca.problem.weights import SAMPLE_WEIGHT, sample_weights
from fedssca.run.schema import Config, DataSettings

__all__ = ["data_source", "encoding_rules", "load_dataset", "reading_of", "share_out"]


def load_dataset(config: Config) -> Dataset:
    """The data that a config names, encoded, with the columns that its problem asks for."""
    data, fraction = data_source(config).read(), config.calibration_fraction
    if fraction:
        data = with_calibration(data, fraction, config.run.seed)
    dataset = encoded(data, encoding_rules(config.data))
    if config.data.weight:
        dataset = _weighted(dataset, config)
    for note in dataset.notes:
        warnings.warn(note, stacklevel=2)
    return dataset


def _weighted(dataset: Dataset, config: Config) -> Dataset:
    """The data with the sample weights under their own name, beside what groups are made of."""
    name = config.data.weight
    kept = name in (*config.data.keep, *config.problem.columns)
    if name in dataset.kinds:
        raise UserError(f"data.weight = {name!r}: the column holds text; weights are numbers")

    def part(columns: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        own = {SAMPLE_WEIGHT: sample_weights(f"data.weight = {name!r}", columns[name])}
        return {n: v for n, v in columns.items() if kept or n != name} | own

    return dataclasses.replace(dataset, train=part(dataset.train), test=part(dataset.test))


def data_source(config: Config) -> DataSource:
    """Where the rows of a config come from."""
    data = config.data
    asked = [*data.keep, *config.problem.columns, *filter(None, [data.weight])]
    return DataSource(
        name=None if data.own else data.name,
        path=data.paths or None,
        directory=Path(data.dir) if data.dir else None,
        label=as_label(data.label) or None,
        test_fraction=data.test_fraction,
        seed=config.run.seed,
        keep=list(dict.fromkeys(asked)),
        test_path=data.test_path or None,
        id=data.id,
        drop=data.drop,
        categories=data.categories,
        reading=reading_of(data),
        query=(data.database, data.query) if data.query else None,
        split=data.split,
        kind=config.problem.target,
        weight=data.weight,
        client=data.client,
    )


def reading_of(data: DataSettings) -> Reading:
    """How the tables that a config names are read."""
    return Reading(tuple(data.missing), tuple(data.columns))


def encoding_rules(data: DataSettings) -> EncodingRules:
    """What a config chooses about the encoding of columns."""
    return EncodingRules(data.impute, data.most_categories)


def share_out(data: DataSettings, dataset: Dataset, seed: int) -> Rows | Columns:
    """The training rows (or their features) given out to clients, as the config says."""
    holder = data.label_holder if data.label_holder >= 0 else None
    if dataset.owners is not None and data.split == "sample":
        return by_owner(dataset.train, dataset.owners, dataset.clients)
    if dataset.blocks is not None and data.split == "feature":
        return Columns(dataset.train, dataset.blocks, holder, data.collection)
    sizes = [int(s) if s.is_integer() else s for s in data.sizes] or None
    if data.split == "sample":
        return by_sample(
            dataset.train,
            data.clients,
            data.partition,
            seed=seed,
            concentration=data.concentration,
            sizes=sizes,
            classes_per_client=data.classes_per_client,
        )
    return by_feature(
        dataset.train,
        data.clients,
        "contiguous" if data.partition == "iid" else data.partition,
        seed=seed,
        sizes=sizes,
        label_holder=holder,
        collection=data.collection,
    )
