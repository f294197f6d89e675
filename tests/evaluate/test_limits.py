"""Limits on training and held-out rows, and results of clients and groups, counted by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import fedssca
from fedssca.data.split import Columns, Rows
from fedssca.evaluate.certificate import certify
from fedssca.evaluate.estimate import clopper_pearson
from fedssca.evaluate.evaluator import evaluator_over
from fedssca.evaluate.limits import held_out_notes, limit_entries
from fedssca.evaluate.tally import client_results, group_results
from fedssca.evaluate.verdicts import limits_kept, stated_entries
from fedssca.problem.problem import Part, Problem

pytestmark = pytest.mark.usefixtures("float64")


def columns(x: list[int], y: list[int], g: list[int]) -> dict[str, np.ndarray]:
    """Rows whose predicted class is x."""
    return {"x": np.array(x, float)[:, None], "y": np.array(y, np.int32), "g": np.array(g)}


TRAIN = columns(x=[1, 0, 1, 0, 1, 1], y=[1, 0, 1, 0, 1, 0], g=[0, 0, 1, 1, 0, 1])
TEST = columns(x=[1, 0, 0, 1, 0], y=[1, 1, 1, 0, 0], g=[0, 0, 1, 1, 1])


def posed(*limits: Any) -> Problem:
    """Scores (0, 4 x - 2): the class is x."""
    made = fedssca.from_scores(
        lambda w, x: jnp.concatenate([0 * x, w[0] * (4 * x - 2)], axis=1),
        jnp.ones(1),
        [each for limit in limits for each in limit],
    )
    parts = [Part("g", str(v), lambda batch, v=v: batch["g"] == v) for v in (0, 1)]
    return replace(made, parts=tuple(parts))


def entries_of(problem: Problem, test: Any = TEST, rows: Any = None) -> list[dict[str, Any]]:
    look = evaluator_over(problem, rows or Rows(TRAIN, (2, 4)), test)
    none = [0.0] * problem.constraints
    found = certify(problem, look, problem.start, look.row(problem.start), none, none)
    return limit_entries(problem, found["constraints"], look.tally(problem.start))


def test_a_rate_that_held_out_rows_break() -> None:
    (entry,) = entries_of(posed(fedssca.false_negative_rate_at_most(0.2, TRAIN["y"])))
    assert (entry["value"], entry["counts"]) == (0.0, [[0, 3]])
    assert (entry["test_value"], entry["test_counts"]) == (pytest.approx(2 / 3), [[2, 3]])
    assert entry["test_interval"] == pytest.approx(clopper_pearson(2, 3))
    assert (entry["feasible"], entry["test_feasible"]) == (True, False)
    assert entry["status"] == "held-out"
    (note,) = held_out_notes([entry])
    assert "2 of 3" in note
    assert "≤ 0.2" in note
    assert "chance alone may explain it" in note


def test_both_sides_of_a_gap_are_one_limit() -> None:
    problem = posed(fedssca.parity_gap_at_most(0.4, TRAIN["g"], "g"))
    (entry,) = entries_of(problem)
    # positive predictions, training: 2 of 3 in both groups; held out: 1 of 3 against 1 of 2
    assert entry["constraints"] == [0, 1]
    assert (entry["low"], entry["high"]) == (-0.4, 0.4)
    assert entry["value"] == pytest.approx(0.0)
    assert entry["test_value"] == pytest.approx(1 / 3 - 1 / 2)
    assert sorted(entry["test_counts"]) == [[1, 2], [1, 3]]
    assert entry["status"] == "kept"
    assert limits_kept([entry]) == (1, 1, "kept")


def test_a_limit_from_below_and_one_that_is_broken() -> None:
    recall = fedssca.recall_at_least(0.5, TRAIN["y"])
    loss = fedssca.loss_at_most(0.1)
    recall_entry, loss_entry = entries_of(posed(recall, loss))
    assert (recall_entry["low"], recall_entry["high"]) == (0.5, None)
    assert (recall_entry["value"], recall_entry["margin"]) == (1.0, pytest.approx(0.5))
    assert recall_entry["status"] == "held-out"
    assert loss_entry["title"] == "loss"
    assert loss_entry["status"] == "broken"
    assert loss_entry["interval_kind"] == "normal approximation"
    assert "note" not in loss_entry
    assert limits_kept([recall_entry, loss_entry]) == (1, 2, "broken")


def test_what_cannot_be_checked_says_why() -> None:
    fnr = fedssca.false_negative_rate_at_most(0.2, TRAIN["y"])
    (entry,) = entries_of(posed(fnr), test=None)
    assert (entry["status"], entry["unchecked"]) == ("unchecked", "there are no held-out rows")
    (entry,) = entries_of(posed(fnr), test=columns(x=[0, 1], y=[0, 0], g=[0, 1]))
    assert entry["unchecked"] == "no held-out row counts for it"
    first, _ = entries_of(posed(fedssca.client_loss_at_most(3.0, [2, 4])))
    assert (first["status"], first["unchecked"]) == (
        "unchecked",
        "held-out rows belong to no client",
    )


def test_held_out_rows_of_clients_check_their_limits() -> None:
    test = TEST | {"client": np.array([0, 0, 1, 1, 1])}
    problem = posed(fedssca.client_loss_at_most(3.0, [2, 4]))
    first, second = entries_of(problem, test)
    right, wrong = np.log1p(np.exp(-2)), np.log1p(np.exp(2))
    assert first["test_value"] == pytest.approx((right + wrong) / 2)
    assert second["test_value"] == pytest.approx((right + 2 * wrong) / 3)
    assert second["status"] == "kept"


def test_parts_of_the_objective_are_no_limits() -> None:
    problem = fedssca.minimise_worst(
        posed(fedssca.client_loss_at_most(3.0, [2, 4])), ["client_loss_0", "client_loss_1"]
    )
    entries = entries_of(problem)
    assert [entry["status"] for entry in entries] == ["part", "part"]
    assert entries[0]["value"] == pytest.approx(np.log1p(np.exp(-2)))
    assert limits_kept(entries) == (0, 0, "kept")


def test_results_of_clients_and_groups_by_hand() -> None:
    problem = posed(fedssca.recall_at_least(0.5, TRAIN["y"]))
    tally = evaluator_over(problem, Rows(TRAIN, (2, 4)), TEST).tally(problem.start)
    first, second = client_results(tally)
    assert (first["rows"], second["rows"]) == (2, 4)
    assert second["train"]["accuracy"] == pytest.approx(3 / 4)
    assert second["train"]["recall"] == 1.0
    assert "test" not in first
    zero, one = group_results(problem, tally)
    assert (zero["column"], zero["group"], zero["rows"], zero["test_rows"]) == ("g", "0", 3, 2)
    assert one["train"]["accuracy"] == pytest.approx(2 / 3)
    assert one["test"] == {
        "cost": pytest.approx((2 * np.log1p(np.exp(2)) + np.log1p(np.exp(-2))) / 3),
        "accuracy": pytest.approx(1 / 3),
        "recall": 0.0,
    }


def test_a_gap_is_no_quantity_of_one_group() -> None:
    problem = posed(fedssca.parity_gap_at_most(0.9, TRAIN["g"], "g"))
    tally = evaluator_over(problem, Rows(TRAIN, (2, 4)), TEST).tally(problem.start)
    assert sorted(map(len, tally.weights.values())) == [1, 1, 2]
    for group in group_results(problem, tally):
        assert list(group["train"]) == ["cost", "accuracy"]


def test_parties_with_columns_have_groups_but_no_results_of_their_own() -> None:
    wide = {**TRAIN, "x": np.repeat(TRAIN["x"], 2, axis=1)}
    parties = Columns(wide, (np.array([0]), np.array([1])))
    problem = fedssca.classifier(fedssca.linear(2, 2))
    tally = evaluator_over(problem, parties, None).tally(problem.start)
    assert client_results(tally) == []
    assert "columns" in tally.sums.hidden


def test_a_user_written_limit_is_checked_too() -> None:
    problem = fedssca.custom_problem(
        lambda w, batch: jnp.stack([0 * batch["x"][:, 0], batch["x"][:, 0] * w[0]]),
        jnp.ones(1),
        limits=[(0.5, 0.9)],
        names=["mean"],
    )
    (entry,) = entries_of(problem)
    assert (entry["value"], entry["test_value"]) == (pytest.approx(2 / 3), pytest.approx(2 / 5))
    assert entry["constraints"] == [0, 1]
    assert entry["status"] == "held-out"


def test_an_older_certificate_is_read() -> None:
    old = {"name": "fnr", "limit": 0.1, "value": 0.05, "margin": 0.05, "feasible": True}
    (entry,) = stated_entries({"constraints": [old | {"multiplier": 1.0}]})
    assert (entry["title"], entry["high"], entry["status"]) == ("fnr", 0.1, "unchecked")
