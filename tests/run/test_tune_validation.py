"""The rows that trials of a search see: never the calibration rows of the run."""

from __future__ import annotations

import dataclasses

import numpy as np

import fedssca
from fedssca.run.tune.validation import hold_out


def test_trials_do_not_see_calibration_rows() -> None:
    data = fedssca.load("breast-cancer")
    marks = np.arange(len(data.train["y"])) % 3 == 0
    found = hold_out(dataclasses.replace(data, aside=marks), seed=0)
    assert found.aside is None
    seen = np.concatenate([found.train["x"], found.test["x"]])
    kept = data.train["x"][~marks]
    np.testing.assert_array_equal(np.unique(seen, axis=0), np.unique(kept, axis=0))


def test_every_client_holds_out_rows_of_its_own() -> None:
    data = fedssca.load("breast-cancer")
    owners = np.arange(len(data.train["y"])) % 3
    marks = np.arange(len(owners)) % 5 == 0
    found = hold_out(dataclasses.replace(data, owners=owners, aside=marks), seed=0)
    assert found.owners is not None
    assert len(found.owners) == len(found.train["y"])
    before, left = np.bincount(owners[~marks]), np.bincount(found.owners)
    np.testing.assert_allclose(left, 0.8 * before, atol=2)
    for row in (0, 1, -1):
        same = (data.train["x"] == found.train["x"][row]).all(axis=1)
        assert found.owners[row] in owners[same]
