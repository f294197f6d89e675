"""`fedssca certificate watch`: fresh rows in several files, and an alarm when labels change."""

from __future__ import annotations

import csv
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer

import fedssca
from tests.cli_helpers import Shell

pytestmark = pytest.mark.long


def write_rows(file: Path, run: Path, rows: slice, flip: float = 0.0) -> Path:
    """Rows of the data set in a random order; a share of the labels is wrong."""
    data, model = load_breast_cancer(), fedssca.load_model(run)
    rng = np.random.default_rng(0)
    order = rng.permutation(len(data.data))[rows]
    y = (data.target == 0).astype(int)  # the run counts malignant tumours as 1
    wrong = rng.random(len(y)) < flip
    y = np.where(wrong, 1 - y, y)
    with open(file, "w", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow([*data.feature_names, model.label])
        writer.writerows([*data.data[i].tolist(), int(y[i])] for i in order)
    return file


def test_rows_are_watched_as_they_come(
    rows_run: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    run = tmp_path / "run"
    shutil.copytree(rows_run, run)
    shell = Shell(tmp_path, monkeypatch, capsys)
    good = write_rows(tmp_path / "good.csv", run, slice(0, 150))
    told = json.loads(shell("certificate", "watch", run, good, "--json").out)
    assert (told["holds"], told["alarm"], told["rows"]) == (True, None, 150)
    assert told["false_alarm_rate"] == 0.05
    assert [limit["title"] for limit in told["limits"]] == ["fnr of class 0", "loss"]
    assert told["limits"][1]["rows"] == 150
    assert "counted already" in shell.refused("certificate", "watch", run, good)
    bad = write_rows(tmp_path / "bad.csv", run, slice(150, 450), flip=0.6)
    seen = shell("certificate", "watch", run, bad)
    assert seen.code == 0
    assert "alarm at row" in seen.out
    more = write_rows(tmp_path / "more.csv", run, slice(450, 500))
    told = json.loads(shell("certificate", "watch", run, more, "--json").out)
    assert (told["holds"], told["rows"]) == (False, 500)
    assert 150 < told["alarm"] < 450
    bare = tmp_path / "bare.csv"
    bare.write_text("\n".join(line.rsplit(",", 1)[0] for line in more.read_text().splitlines()))
    refused = {
        (run, more, "--alpha", 0.1): "was begun with --alpha 0.05",
        (run, more, "--alpha", 0): "between 0 and 1",
        (run, bare, "--state", tmp_path / "state.json"): "watching needs labels",
        (tmp_path, more): "has no certificate.json",
        (run, tmp_path / "none.csv"): "is not there",
    }
    for arguments, said in refused.items():
        assert said in shell.refused("certificate", "watch", *arguments)
    (run / "watch.json").write_text("{}")
    assert "cannot be read" in shell.refused("certificate", "watch", run, more)
