"""Calibration rows: a row keeps its role, and no statistic of the training uses it."""

from __future__ import annotations

import numpy as np
import pytest

from fedssca.data.calibration import calibration_rows, set_aside, with_calibration
from fedssca.data.dataset import from_arrays
from fedssca.data.encode import EncodingRules
from fedssca.data.raw import from_table
from fedssca.data.split import by_feature, by_sample
from fedssca.errors import UserError


def test_a_row_keeps_its_role_by_its_id() -> None:
    ids = [f"p{i}" for i in range(500)]
    marks = calibration_rows(500, 0.3, seed=0, ids=ids)
    again = calibration_rows(499, 0.3, seed=7, ids=ids[1:])
    assert (marks[1:] == again).all()
    assert 100 < marks.sum() < 200


def test_rows_without_ids_are_drawn_by_the_seed() -> None:
    draws = [calibration_rows(500, 0.3, seed) for seed in (0, 0, 1)]
    assert (draws[0] == draws[1]).all()
    assert (draws[0] != draws[2]).any()


def test_clients_do_not_hold_calibration_rows() -> None:
    columns = {"x": np.arange(60.0)[:, None], "y": np.arange(60) % 2}
    marks = calibration_rows(60, 0.3, 0)
    for partition in ("iid", "contiguous"):
        clients, held = set_aside(by_sample(columns, 3, partition), marks)
        trained = np.concatenate([clients.client(i)["x"][:, 0] for i in range(3)])
        assert sorted([*trained, *held["x"][:, 0]]) == list(range(60))
        assert sorted(held["x"][:, 0]) == np.flatnonzero(marks).tolist()
        whole = by_sample(columns, 3, partition)
        owner = {float(v): i for i in range(3) for v in whole.client(i)["x"][:, 0]}
        assert [owner[float(v)] for v in held["x"][:, 0]] == held["client"].tolist()
    parties, held = set_aside(by_feature(columns | {"x": np.ones((60, 2))}, 2), marks)
    assert (parties.total, len(held["y"])) == (60 - marks.sum(), marks.sum())


def test_a_client_without_training_rows_is_an_error() -> None:
    columns = {"x": np.ones((4, 1)), "y": np.arange(4) % 2}
    with pytest.raises(UserError, match="no training row left"):
        set_aside(by_sample(columns, 2, "contiguous"), np.array([True, True, False, False]))


def test_no_statistic_of_the_training_uses_them() -> None:
    """Numbers of calibration rows may be anything: encoded training rows stay the same."""
    rng = np.random.default_rng(0)
    table = {"a": rng.normal(size=200), "y": (np.arange(200) % 2).astype(float)}
    made = []
    for shift in (0.0, 1000.0):
        raw = with_calibration(from_table("t", table, "y", 0.2, 0), 0.3, seed=0)
        raw.table["a"][raw.aside] += shift
        dataset = raw.encoded(EncodingRules())
        made.append(dataset.train["x"][~dataset.aside])
    assert np.array_equal(*made)
    made = []
    for shift in (0.0, 1000.0):
        columns = {"x": np.arange(400.0).reshape(200, 2), "y": table["y"]}
        columns["x"][calibration_rows(200, 0.3, 0)] += shift
        test = {name: values[:5] for name, values in columns.items()}
        dataset = with_calibration(from_arrays("t", columns, test, None, 0.2, 0), 0.3, seed=0)
        made.append(dataset.train["x"][~dataset.aside])
    assert np.allclose(*made, atol=1e-4)
