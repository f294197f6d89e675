"""`[model]` of a run: clients with rows and parties with columns get the same network."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fedssca.errors import UserError
from fedssca.run.build import load_dataset, problem_of, share_out
from fedssca.run.config import parse
from fedssca.run.execute import execute
from fedssca.run.record import RunDirectory

DIGITS = '[data]\nname = "digits"\nclients = 2\n[run]\nprecision = "float64"\n'
CANCER = '[data]\nname = "breast-cancer"\nclients = 2\n'
NETWORKS = {
    "deep": (["model.hidden=[6, 5]", "model.layer_norm=true"], []),
    "bottoms": (["model.bottom=[[6, 4], [4]]", "model.hidden=[5]"], ["model.parties=2"]),
    "halves of images": (["model.name=cnn", "model.channels=[2, 3]"], ["model.parties=2"]),
}


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("name", NETWORKS)
def test_rows_and_columns_pose_the_same_problem(name: str) -> None:
    """The terms of parties with columns are those of the network on pooled rows, to 1e-10."""
    common, pooled = NETWORKS[name]
    rows = parse(DIGITS, [*common, *pooled])
    columns = parse(DIGITS, [*common, "data.split=feature"])
    dataset = load_dataset(rows)
    one, two = (
        problem_of(config, dataset, share_out(config.data, dataset, 0))
        for config in (rows, columns)
    )
    np.testing.assert_array_equal(one.start, two.start)
    batch = {key: column[:20] for key, column in dataset.train.items()}
    split, w = two.vertical, np.asarray(two.start)
    assert split is not None
    hs = [
        h(w[block], batch["x"][:, own])
        for h, block, own in zip(split.locals, split.blocks[1:], split.features, strict=True)
    ]
    apart = split.head(w[split.blocks[0]], hs, batch)
    np.testing.assert_allclose(apart, one.terms(one.start, batch), rtol=0, atol=1e-10)


def test_columns_of_parties_by_name() -> None:
    config = parse(CANCER, ["model.bottom=[3]", "model.parties=[['mean radius'], ['mean area']]"])
    dataset = load_dataset(config)
    clients = share_out(config.data, dataset, 0)
    with pytest.raises(UserError, match="column 'mean texture' belongs to no party"):
        problem_of(config, dataset, clients)
    config = parse(CANCER, ["model.bottom=[3]", "model.parties=[['mean radios']]"])
    with pytest.raises(UserError, match="no column 'mean radios'; did you mean 'mean radius'"):
        problem_of(config, dataset, clients)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (["model.hidden=[]"], 'it is linear: set model.name = "linear"'),
        (["model.hidden=[3, 0]"], "model.hidden.1 = 0: it must be at least 1"),
        (["model.name=linear", "model.bottom=[3]"], 'name = "linear" has no bottom'),
        (["model.name=linear", "model.embed=3"], "model.embed = 3: name"),
        (["model.bottom=[3]", "model.embed=3"], "leave embed or bottom out"),
        (["model.join=sum"], "model.join = 'sum': only networks with a bottom"),
        (["model.parties=2"], "only with a bottom"),
        (["model.image=[8, 8]"], 'belong to name = "cnn"'),
        (["model.bottom=[3]", "model.parties=2", "data.split=feature"], "leave it out"),
    ],
)
def test_refused_before_data_are_read(settings: list[str], said: str) -> None:
    with pytest.raises(UserError) as caught:
        parse(CANCER, settings)
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (["model.name=cnn"], "30 features are no square image; set model.image"),
        (["model.bottom=[[3], [3], [3]]", "data.split=feature"], "of 3 parties, there are 2"),
    ],
)
def test_refused_with_the_data(settings: list[str], said: str, tmp_path: Path) -> None:
    with pytest.raises(UserError) as caught:
        execute(parse(CANCER, settings), tmp_path / "run")
    assert said in str(caught.value)


SHORT = """
[data]
name = "breast-cancer"
clients = 2
[model]
hidden = [5, 4]
[algorithm]
name = "sgd"
batch = 20
rounds = 20
rate = 0.3
"""


def test_training_begins_at_an_earlier_run(tmp_path: Path) -> None:
    """Round 0 has the loss with which the other run ended; another network is one clear line."""
    first = execute(parse(SHORT), tmp_path / "first")
    start = f"model.start={tmp_path / 'first'}"
    execute(parse(SHORT, [start]), tmp_path / "again")
    rows = RunDirectory.open(tmp_path / "again").rows()
    assert rows[0]["train_cost"] == pytest.approx(first["train_cost"], rel=1e-6)
    for settings, said in (
        (["model.hidden=[5, 3]"], "its network has hidden = [5, 4], this run [5, 3]"),
        (["model.activation=tanh"], "its network has activation = swish, this run tanh"),
        (["data.name=digits"], "its network has features = 30, this run 64"),
        ([f"model.start={tmp_path / 'none'}"], "none holds no run"),
    ):
        with pytest.raises(UserError) as caught:
            execute(parse(SHORT, [start, *settings]), tmp_path / "other")
        assert said in str(caught.value)
