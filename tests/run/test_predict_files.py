"""Predictions for the rows of several files: below each other, or joined by id."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fedssca import load_model
from fedssca.data.tables import write_csv
from fedssca.errors import UserError
from fedssca.run.config import parse
from fedssca.run.execute import execute
from fedssca.run.model import predict_rows
from tests.run.test_model import CONFIG

ROWS = 90
BANK = ("id", "age", "income")
SHOP = ("id", "age", "debt", "town")


def people() -> dict[str, np.ndarray]:
    """What two parties know of the same people; the shop knows another age than the bank."""
    draw = np.random.default_rng(5)
    income, debt = draw.normal(50, 9, ROWS), draw.exponential(3, ROWS)
    return {
        "id": np.array([f"0{i}" for i in range(ROWS)]),
        "age": draw.normal(40, 9, ROWS),
        "income": income,
        "shop age": draw.normal(60, 3, ROWS),
        "debt": debt,
        "town": draw.choice(["north", "south"], ROWS),
        "state": np.where(income + 5 * debt > 65, "late", "paid"),
    }


def part(names: tuple[str, ...], rows: np.ndarray, own: dict[str, np.ndarray]) -> dict:
    cells = own | ({"age": own["shop age"]} if names == SHOP else {})
    return {name: cells[name][rows] for name in names}


def test_parties_with_files_of_columns(tmp_path: Path) -> None:
    """Rows and files in any order, some rows at one party only, no labels."""
    own, everyone = people(), np.arange(ROWS)
    bank, shop = tmp_path / "bank.csv", tmp_path / "shop.csv"
    write_csv(bank, part((*BANK, "state"), everyone, own))
    write_csv(shop, part(SHOP, everyone[::-1], own))
    settings = [f"data.path=['{bank}', '{shop}']", "data.split=feature", "data.id=id"]
    execute(parse(CONFIG.format(path=""), settings), tmp_path / "run")
    model = load_model(tmp_path / "run")
    assert model.inputs == ("age.1", "income", "age.2", "debt", "town")
    table = {"id": own["id"], "age.1": own["age"], "age.2": own["shop age"]}
    table |= {name: own[name] for name in ("income", "debt", "town")}
    whole = model.predict_proba(table)

    shuffled = np.random.default_rng(0).permutation(ROWS)
    write_csv(tmp_path / "new-bank.csv", part(BANK, shuffled[:60], own))
    write_csv(tmp_path / "new-shop.csv", part(SHOP, shuffled[10:][::-1], own))
    files = [tmp_path / "new-bank.csv", tmp_path / "new-shop.csv"]
    for given in (files, files[::-1]):
        found = predict_rows(model, given, "the files")
        places = [int(name) for name in found.ids["id"]]
        assert sorted(places) == sorted(shuffled[10:60].tolist())
        assert found.probabilities == pytest.approx(whole[places], abs=1e-6)
        assert [f"0{place}" for place in places] == found.ids["id"]
        assert list(found.ids) == ["id"]
        assert found.evaluation is None
        (note,) = found.notes
        assert note.startswith("50 rows are in all files; ")
        assert "new-bank.csv leaves out 10" in note
    labelled = predict_rows(model, [bank, shop], "the files")
    assert labelled.evaluation is not None
    assert labelled.evaluation["rows"] == ROWS
    write_csv(tmp_path / "odd.csv", {"key": own["id"], "debt": own["debt"]})
    with pytest.raises(UserError, match=r"odd.csv has no column 'id'"):
        model.predict([bank, tmp_path / "odd.csv"])

    write_csv(tmp_path / "one.csv", {**table, "state": own["state"]})
    one = [f"data.path={tmp_path}/one.csv", "data.split=feature", "data.drop=['id']"]
    execute(parse(CONFIG.format(path=""), one), tmp_path / "no-id")
    with pytest.raises(UserError, match=r"the run has none \(data.id\); give one file"):
        load_model(tmp_path / "no-id").predict(files)


def test_clients_with_files_of_rows(tmp_path: Path) -> None:
    own, files = people(), [tmp_path / "a.csv", tmp_path / "b.csv"]
    for file, rows in zip(files, (slice(0, 40), slice(40, ROWS)), strict=True):
        write_csv(file, {name: cells[rows] for name, cells in own.items()})
    paths = [str(file) for file in files]
    with pytest.warns(UserWarning, match="'id' is left out"):
        execute(parse(CONFIG.format(path=""), [f"data.path={paths}"]), tmp_path / "run")
    model = load_model(tmp_path / "run")
    found = predict_rows(model, paths, "the files")
    each = [model.predict_proba(file) for file in files]
    assert found.probabilities.tobytes() == np.concatenate(each).tobytes()
    assert found.ids["id"] == own["id"].tolist()  # with their zeros in front
