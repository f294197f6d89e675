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
