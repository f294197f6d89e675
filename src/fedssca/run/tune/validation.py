"""The training rows that are held out: trials train without them and are evaluated on them."""

from __future__ import annotations

import dataclasses

import numpy as np

from fedssca.data import Dataset
from fedssca.data.dataset import stratified
from fedssca.data.encode.targets import as_strata
from fedssca.errors import UserError

__all__ = ["HELD_OUT", "hold_out"]

HELD_OUT = 0.2
"""The fraction of the training rows that is held out."""


def hold_out(dataset: Dataset, seed: int) -> Dataset:
    """Split the training rows into train and test; the seed selects a fraction of each class.

    Calibration rows are left out: no choice may depend on the rows that certify limits afterwards.
    """
    if dataset.aside is not None:
        dataset = _part(dataset, ~dataset.aside)
    y = dataset.train["y"]
    kept = stratified(as_strata(y), HELD_OUT, seed, dataset.owners)
    if kept.all():
        raise UserError(
            f"{dataset.name}: {len(y)} training rows are too few to hold some out; bring more"
        )
    held = {name: values[~kept] for name, values in dataset.train.items()}
    return dataclasses.replace(_part(dataset, kept), test=held, test_owners=None)


def _part(dataset: Dataset, rows: np.ndarray) -> Dataset:
    """The data set with these training rows only."""
    left = {name: values[rows] for name, values in dataset.train.items()}
    owners = None if dataset.owners is None else dataset.owners[rows]
    return dataclasses.replace(dataset, train=left, owners=owners, aside=None)
