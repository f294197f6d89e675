"""Runs with limits on classes by name and on many groups, from a config to their results."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fedssca.data import load
from fedssca.errors import UserError
from fedssca.run.build import build
from fedssca.run.config import parse
from fedssca.run.execute import execute
from tests.data.test_data_load import held

ADULT = """
[data]
name = "adult"
[model]
name = "linear"
[[problem.constraint]]
kind = "parity"
column = "race"
limit = 0.05
[[problem.constraint]]
kind = "parity"
columns = ["sex", "race"]
limit = 0.1
[algorithm]
rounds = 60
batch = 100
[run]
evaluate_every = 30
"""
SICK = """
[data]
label = "state"
clients = 2
[model]
name = "linear"
[algorithm]
rounds = 40
"""


@pytest.mark.long
def test_adult_keeps_parity_of_five_races_and_of_their_intersections_with_sex(
    tmp_path: Path,
) -> None:
    """The limits hold for predictions that are made again from the saved weights."""
    folder = held("adult")
    found = execute(parse(ADULT, [f"data.dir={folder}"]), tmp_path / "run")
    assert found["feasible"]
    titles = [limit["title"] for limit in found["certificate"]["limits"]]
    assert len(titles) == 5 + 10
    assert titles[2] == "parity of '>50K', race = Black against all"
    data = load("adult", directory=folder)
    w = np.load(tmp_path / "run/model.npz")["w"].astype(np.float64)
    positive = data.train["x"] @ w[1:] + w[0] > 0
    race, sex = data.train["race"], data.train["sex"]
    for group in range(5):
        assert abs(positive[race == group].mean() - positive.mean()) <= 0.0501
        for both in range(2):
            own = positive[(race == group) & (sex == both)]
            assert abs(own.mean() - positive.mean()) <= 0.1001


def people(folder: Path, rows: int = 200) -> Path:
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(2, rows))
    state = np.where(a + 0.7 * rng.normal(size=rows) > 0.7, "sick", "well")
    town = rng.choice(["north", "south"], rows)
    lines = [f"{p:.4f},{q:.4f},{t},{s}" for p, q, t, s in zip(a, b, town, state, strict=True)]
    (folder / "people.csv").write_text("\n".join(["a,b,town,state", *lines]) + "\n")
    return folder / "people.csv"


def test_the_sick_are_found_if_they_are_named(tmp_path: Path) -> None:
    """Class 1 in sorted order is 'well': without a name the limit is refused."""
    file = f"data.path={people(tmp_path)}"
    with pytest.raises(UserError, match='counts as positive: "sick"'):
        build(parse(SICK, [file, 'problem.constraint=[{kind="fnr", limit=0.1}]']))
    limit = 'problem.constraint=[{kind="fnr", limit=0.1, positive="sick"}]'
    found = execute(parse(SICK, [file, limit]), tmp_path / "run")
    assert found["feasible"]
    assert found["train_fnr_0"] <= 0.1
    assert found["certificate"]["limits"][0]["title"] == "fnr of 'sick'"


def test_clients_are_called_by_their_files(tmp_path: Path) -> None:
    text = people(tmp_path).read_text()
    for name in ("ward-a", "ward-b"):
        (tmp_path / f"{name}.csv").write_text(text)
    limit = 'problem.constraint=[{kind="fnr", limit=0.1, positive="sick", per_client=true}]'
    problem = build(parse(SICK, [f"data.path={tmp_path}/ward-*.csv", limit])).problem
    assert [bound.title for bound in problem.bounds] == [
        "fnr of 'sick', ward-a",
        "fnr of 'sick', ward-b",
    ]


def test_results_of_groups_have_their_names(tmp_path: Path) -> None:
    limit = 'problem.constraint=[{kind="error", limit=0.4, columns=["town", "a"], bins={a=[0]}}]'
    problem = build(parse(SICK, [f"data.path={people(tmp_path)}", limit])).problem
    assert [(part.column, part.title) for part in problem.parts] == [
        ("town, a", f"{town}, {bin}") for town in ("north", "south") for bin in ("a < 0", "a >= 0")
    ]
