"""Limits in an existing Flower app: the diff of the how-to page, run on real data."""

from __future__ import annotations

import importlib
import re
import sys
from pathlib import Path
from typing import Any

import pytest

REASON = "needs the extras flower and torch: pip install 'fedssca[flower,torch]'"
pytest.importorskip("flwr", reason=REASON)
torch = pytest.importorskip("torch", reason=REASON)

from flwr.app import ConfigRecord, Message, RecordDict  # noqa: E402

from fedssca import UserError, flower  # noqa: E402
from tests.run.apps.flower_apps import (  # noqa: E402
    AppGrid,
    limited_example,
    page_diff,
    run_example,
    trainings,
)

ROOT = Path(__file__).parents[3]
NAME, LIMIT = "confidence", 0.9


@pytest.fixture(scope="module")
def limited(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Flower's quick start with the changes of the page."""
    return limited_example(tmp_path_factory.mktemp("app") / "limited")


def test_few_lines_change() -> None:
    changed = [line for line in page_diff().splitlines() if re.match(r"[+-](?![+-]{2} )", line)]
    assert 0 < len(changed) <= 15


def test_the_limit_is_kept(limited: Path) -> None:
    """What it costs in accuracy differs from seed to seed: the page has a table."""
    _, loose, _ = run_example(ROOT / "examples/flower")
    with trainings() as made:
        after, kept, _ = run_example(limited)
    assert loose > LIMIT, "without a limit it is broken"
    assert kept <= LIMIT
    assert after > 0.5, "chance is 0.1: the model is trained"
    ((strategy, result),) = made
    (entry,) = strategy.certificate["limits"]
    assert strategy.certificate["feasible"]
    assert entry["value"] == pytest.approx(kept, rel=1e-4), "measured again over all clients' rows"
    assert entry["margin"] == pytest.approx(LIMIT - kept, abs=1e-4)
    assert entry["held_out"]["rows"] < entry["rows"]
    history = result.train_metrics_clientapp
    assert set(history) == set(range(1, 12)), "the model of the last round is measured too"
    kept_losses = [row["objective"] for row in history.values() if row[NAME] <= LIMIT]
    returned = strategy.certificate
    assert returned["loss"] <= min(kept_losses), "chosen by training rows alone"
    evaluated = result.evaluate_metrics_clientapp[returned["round"] or 11]
    assert entry["held_out"]["value"] == evaluated[NAME], "the returned model is evaluated"
    for last in (history[11], result.evaluate_metrics_clientapp[10]):
        assert len(last[f"{NAME} by client"]) == len(last["clients"]) == 4
        assert last["limits_kept"] == int(last[NAME] <= LIMIT)
        assert last[f"multiplier of {NAME}"] >= 0
    lines = strategy._lines()
    assert lines[0] == f"{returned['model']}: all limits are kept on the training rows"
    assert "worst client" in lines[1]
    assert "not used for the choice" in lines[2]


def test_the_names_are_imported_from_one_module(monkeypatch: pytest.MonkeyPatch) -> None:
    from fedssca.flower import LimitedFedAvg, LimitedLoss

    assert (flower.LimitedFedAvg, flower.LimitedLoss) == (LimitedFedAvg, LimitedLoss)
    monkeypatch.delitem(sys.modules, "fedssca.flower")
    monkeypatch.setitem(sys.modules, "flwr.serverapp.strategy", None)
    with pytest.raises(UserError, match=r"older than flwr 1\.22: pip install"):
        importlib.import_module("fedssca.flower")


def message(**config: Any) -> Message:
    AppGrid(None, 1)  # type: ignore[arg-type]
    return Message(RecordDict({"config": ConfigRecord(config)}), 1, "train")


def rows_of(scores: Any, y: Any) -> Any:
    return torch.nn.functional.cross_entropy(scores, y, reduction="none")


def test_the_criterion_is_the_weighted_sum() -> None:
    asked = message(limits=["ones"], weights=[0.75, 0.25], shares=[0.5])
    limited = flower.LimitedLoss(asked, rows_of, {"ones": lambda s, y: rows_of(s, y)[y == 1]})
    scores, y = torch.tensor([[1.0, 0.0], [0.0, 2.0], [3.0, 0.0]]), torch.tensor([0, 1, 1])
    each = rows_of(scores, y)
    by_hand = 0.75 * each.mean() + 0.25 / 0.5 * (each[1] + each[2]) / 3
    assert float(limited(scores, y)) == pytest.approx(float(by_hand))


def test_what_is_wrong_is_one_clear_line() -> None:
    asked = message(limits=["a"])
    ok = flower.LimitedLoss(asked, rows_of, {"a": rows_of})
    data = [(torch.zeros(2, 3), torch.tensor([0, 1]))]
    linear = torch.nn.Linear(3, 2)
    measured = ok.measure(linear, data)
    assert measured["rows of a"] == 2
    assert measured["slope of a"] == measured["slope of objective"] > 0
    with pytest.raises(UserError, match=r"here are \['b'\], the server's limits \['a'\]"):
        flower.LimitedLoss(asked, rows_of, {"b": rows_of})
    with pytest.raises(UserError, match=r"server.s limits none: .* strategy LimitedFedAvg"):
        flower.LimitedLoss(message(lr=0.1), rows_of, {"b": rows_of})
    with pytest.raises(UserError, match="0 is BatchNorm in training mode"):
        ok.measure(torch.nn.Sequential(torch.nn.BatchNorm1d(3), linear), data)
    with pytest.raises(UserError, match="the data has no labels"):
        ok.measure(linear, [torch.zeros(2, 3)])
    with pytest.raises(UserError, match="gives no rows"):
        ok.measure(linear, [])
    with pytest.raises(UserError, match='reduction="none"'):
        flower.LimitedLoss(asked, torch.nn.CrossEntropyLoss(), {"a": rows_of}).measure(linear, data)
    with pytest.raises(UserError, match="give a number for each"):
        flower.LimitedFedAvg({})
    with pytest.raises(UserError, match="give 0 or a positive number"):
        flower.LimitedFedAvg({"a": 1.0}, more_models=-1)


def test_an_idle_limit_changes_nothing(tmp_path: Path) -> None:
    """Measuring draws no random numbers, and the criterion is the loss itself."""
    few = {"num-server-rounds": 3, "nodes": 2}
    plain = run_example(ROOT / "examples/flower", seed=1, **few)
    with trainings() as made:
        idle = run_example(limited_example(tmp_path / "idle", limit=2.0), seed=1, **few)
    assert made[0][0].certificate["round"] == 3
    assert idle == plain
