"""Which model is returned, the proof that it keeps its limits, and what is said when it cannot."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import minimize

import fedssca
from fedssca import load
from fedssca.data.split import Rows
from fedssca.evaluate.certificate import (
    TRIALS,
    BestPoints,
    certify,
    feasible,
    refine,
    restore,
)
from fedssca.evaluate.evaluator import Evaluator, evaluator_over
from fedssca.methods.multipliers import steered
from fedssca.methods.schedule import Schedule
from fedssca.methods.ssca import ssca
from fedssca.problem.custom import custom_problem
from fedssca.problem.problem import Array, Problem
from fedssca.run.simulate import Checkpoint, simulate
from tests.cli_helpers import Shell

pytestmark = pytest.mark.usefixtures("float64")

ROWS = Rows({"x": np.array([[0.0], [2.0]])}, (2,))


def toy(limit: float = 2.0, *more: float) -> Problem:
    """min |w|^2 s.t. mean (w_1 - x)^2 <= limit with x = 0, 2, so (w_1 - 1)^2 + 1 <= limit.

    A second limit is one on |w|^2.
    """
    return custom_problem(
        lambda w, batch: jnp.square(w[0] - batch["x"][:, 0])[None],
        jnp.array([3.0, 1.0]),
        combine=[[0], [1], [0]][: 2 + len(more)],
        known=[1.0, 0.0, 1.0][: 2 + len(more)],
        limits=[limit, *more],
        names=["error", "size"][: 1 + len(more)],
    )


def judge(p: Problem) -> Evaluator:
    return evaluator_over(p, ROWS, None)


def at(look: Evaluator, *w: float) -> tuple[Array, dict[str, Any]]:
    return jnp.array(w), look.row(jnp.array(w)) | {"round": 7}


# The points that are kept -------------------------------------------------------------------------


def test_the_kept_points_are_the_best_the_last_and_the_least() -> None:
    kept, points = BestPoints(), {}
    for name, objective, values in (
        ("far", 0.0, [5.0, -1.0]),
        ("near", 9.0, [0.1, 0.2]),
        ("torn", 0.0, [-9.0, 0.3]),
        ("good", 3.0, [-1.0, 0.0]),
        ("best", 2.0, [0.0, -1.0]),
        ("last", 2.5, [-0.1, -0.1]),
        ("after", 0.0, [0.25, -1.0]),
    ):
        points[name] = (jnp.zeros(1), {"name": name, "objective": objective, "constraints": values})
        kept.see(*points[name])
    assert (kept.best, kept.last, kept.least) == tuple(
        points[name] for name in ("best", "last", "near")
    )
    assert kept.best[0] is points["best"][0]


def test_a_value_on_its_limit_is_feasible() -> None:
    assert feasible({"constraints": [0.0, -0.0]})
    assert not feasible({"constraints": [0.0, 1e-300]})
    assert feasible({"constraints": []})


# Refine and restore ------------------------------------------------------------------------------


@pytest.mark.parametrize("last", [(0.2, 0.0), (0.5, 3.0), (2.5, 2.5), (1.9, 0.9), (-40.0, 0.0)])
@pytest.mark.parametrize("limit", [1.01, 1.3, 2.0])
def test_refine_returns_a_feasible_point_that_is_no_worse(
    last: tuple[float, float], limit: float
) -> None:
    look, kept = judge(toy(limit)), BestPoints()
    kept.see(*at(look, 1.05, 0.5))
    w, row, passes = refine(look, kept, jnp.array(last))
    assert row == look.row(w) | {"round": 7}  # where the search began
    assert feasible(row)
    assert row["objective"] <= kept.best[1]["objective"]
    assert 0 < passes <= 40


def test_refine_spends_the_room_that_is_left() -> None:
    """From 1.5 straight towards the optimum 1 - sqrt(0.5) and past it."""
    look, kept = judge(toy(1.5)), BestPoints()
    kept.see(*at(look, 1.5, 0.0))
    w, row, _ = refine(look, kept, jnp.array([0.0, 0.0]))
    assert row["objective"] == pytest.approx((1 - np.sqrt(0.5)) ** 2, rel=0.02)
    assert float(w[0]) >= 1 - np.sqrt(0.5)


def test_refine_needs_a_feasible_point() -> None:
    with pytest.raises(ValueError, match="no feasible point"):
        refine(judge(toy()), BestPoints(), jnp.zeros(2))


@pytest.mark.parametrize(
    ("miss", "mended"), [(1e-4, True), (0.01, True), (0.05, True), (0.3, False)]
)
def test_restore_mends_a_near_miss_and_gives_up_on_a_far_one(miss: float, mended: bool) -> None:
    """The limit is kept for w_1 >= 0; a step of 2 % of |w| = 1 goes 0.02 that way, or 0.2."""
    look, kept = judge(toy(2.0)), BestPoints()
    passes = restore(look, kept, *at(look, -miss, 1.0))
    assert (kept.best is not None) == mended
    if not mended:
        assert passes == 2 * TRIALS
        return
    w, row = kept.best
    assert feasible(row)
    assert row == look.row(w) | {"round": 7}
    farthest = 1e-4 if miss < 0.02 else 1e-3  # no farther than it has to be: farther costs
    assert 0 <= float(w[0]) <= farthest


def test_restore_where_the_constraint_is_flat() -> None:
    look, kept = judge(toy(0.5)), BestPoints()
    assert restore(look, kept, *at(look, 1.0, 0.0)) == 0
    assert kept.best is None


# The certificate ---------------------------------------------------------------------------------


def test_the_certificate_by_hand() -> None:
    p = toy(1.25, 4.0)
    look = judge(p)
    w, row = at(look, 0.5, 0.0)  # the optimum: 2 w_1 + nu 2 (w_1 - 1) = 0, nu = 1
    proof = certify(p, look, w, row, [0.5, 0.0], [0.0, 0.0])
    assert proof["feasible"]
    assert proof["kkt_residual"] < 1e-9
    error, size = proof["constraints"]
    assert error == {
        "name": "error",
        "title": "error",
        "value": pytest.approx(1.25),
        "limit": 1.25,
        "margin": pytest.approx(0.0, abs=1e-12),
        "feasible": True,
        "active": True,
        "multiplier": pytest.approx(1.0),
        "fitted": pytest.approx(1.0),
        "method": 0.0,
        "relaxing_by_0.01_buys": pytest.approx(0.01),
        "slack": 0.5,
        "train_rate": 1.25,
    }
    assert size["value"] == pytest.approx(0.25)
    assert size["margin"] == pytest.approx(3.75)
    assert size["multiplier"] == pytest.approx(0.0, abs=1e-9)
    json.dumps(proof)


def test_the_price_foretells_what_a_wider_limit_buys() -> None:
    best = lambda limit: (1 - np.sqrt(limit - 1)) ** 2  # noqa: E731
    p = toy(1.25)
    look = judge(p)
    (entry,) = certify(p, look, *at(look, 0.5, 0.0), [0.0], [0.0])["constraints"]
    assert entry["relaxing_by_0.01_buys"] == pytest.approx(best(1.25) - best(1.26), rel=0.05)


def test_prices_that_fit_the_gradients_come_first() -> None:
    p = toy(1.25)
    look = judge(p)
    (entry,) = certify(p, look, *at(look, 0.4, 0.0), [0.1], [7.0])["constraints"]
    assert (entry["method"], entry["feasible"]) == (7.0, False)
    assert entry["multiplier"] == pytest.approx(2 / 3)
    assert entry["margin"] == pytest.approx(-0.11)


# Runs --------------------------------------------------------------------------------------------


def trained(p: Problem, rounds: int = 301, **settings: Any) -> Any:
    gamma = Schedule(0.2, cool=0.5, horizon=rounds)
    dual = steered(p, rounds) if p.constraints else None
    method = ssca(p, batch=2, rho=Schedule(0.5, warm=True), gamma=gamma, dual=dual)
    return simulate(p, ROWS, method, rounds, evaluate_every=10, **settings)


def test_two_limits_that_cannot_hold_together_are_named() -> None:
    """The error's limit needs w_1 >= 0.5, that of the size |w| <= 0.3."""
    found = trained(toy(1.25, 0.09))
    assert not found.feasible
    assert all(any(line.startswith(name) for line in found.notes) for name in ("error", "size"))
    worst = [max(row["constraints"]) for row in found.rows]
    assert max(found.final["constraints"]) <= min(worst)


def test_what_a_result_holds() -> None:
    found = trained(toy(1.25))
    assert found.feasible
    assert not found.converged  # the steps of 100 rounds are too short, and the run says so
    assert found.notes[0].startswith("training is not finished")
    best = min(row["objective"] for row in found.rows if feasible(row))
    assert 0.25 <= found.final["objective"] <= best  # (1 - 0.5)^2 is the optimum
    assert found.final["objective"] == pytest.approx(found.w @ found.w)
    assert found.last @ found.last == pytest.approx(found.rows[-1]["objective"])
    for name in ("round", "slack", "multipliers", "bytes_up", "seconds"):
        assert found.final[name] == found.rows[-1][name]


def test_without_limits_the_last_point_is_returned() -> None:
    free = custom_problem(
        lambda w, batch: jnp.square(w[0] - batch["x"][:, 0])[None], jnp.array([3.0, 1.0])
    )
    found = trained(free)
    assert found.feasible
    assert np.array_equal(found.w, found.last)
    assert found.final == found.rows[-1]


def test_a_checkpoint_keeps_the_best_point_found_before() -> None:
    """The best point may lie before the stop: any checkpoint leads to the unbroken end."""
    p, kept = toy(1.25), []
    whole = trained(p, checkpoint_every=75, on_checkpoint=kept.append)
    assert [int(at.state.round) for at in kept] == [0, 75, 150, 225, 300]
    ends = [at.points.best and at.points.best[1]["objective"] for at in kept]
    assert len(set(ends)) > 1  # checkpoints do not change after they were made
    for stop in kept[1:4]:
        resumed = Checkpoint(stop.state, stop.points, stop.seconds)
        earlier = [row for row in whole.rows if row["round"] <= int(stop.state.round)]
        again = trained(p, resume=resumed, earlier=earlier)
        assert again.w.tobytes() == whole.w.tobytes()
        assert again.last.tobytes() == whole.last.tobytes()
        assert again.certificate == whole.certificate


# Digits, end to end ------------------------------------------------------------------------------


@pytest.fixture
def shell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Shell:
    monkeypatch.setenv("COLUMNS", "80")
    return Shell(tmp_path, monkeypatch, capsys)


def numpy_loss(model: Path, hidden: int) -> float:
    data = load("digits", seed=0)
    x, y = data.train["x"] * np.float64(data.scale), data.train["y"]
    with np.load(model) as saved:
        w = saved["w"].astype(float)
    w0, w1 = w[: 10 * hidden].reshape(10, hidden), w[10 * hidden :].reshape(hidden, -1)
    z = x @ w1.T
    scores = (z / (1 + np.exp(-z))) @ w0.T
    scores -= scores.max(axis=1, keepdims=True)
    return float((np.log(np.exp(scores).sum(axis=1)) - scores[np.arange(len(y)), y]).mean())


@pytest.mark.long
def test_the_default_run_keeps_its_limit(tmp_path: Path) -> None:

    from fedssca.run.config import embedded_default, parse
    from fedssca.run.execute import execute

    config = parse(embedded_default())
    found = execute(config, tmp_path / "run")
    (limit,) = found["certificate"]["constraints"]
    assert found["feasible"]
    (stated,) = found["certificate"]["limits"]
    assert stated["value"] == pytest.approx(limit["value"], rel=1e-5)
    said = [note for note in found["notes"] if note != stated.get("note")]
    assert all(note.startswith("training is not finished") for note in said)
    assert found["objective"] <= 67.6
    assert limit["value"] <= limit["limit"] == 0.2
    loss = numpy_loss(tmp_path / "run/model.npz", config.model.hidden)
    assert loss == pytest.approx(limit["value"], rel=1e-5)
    assert loss <= 0.2 * (1 + 1e-5)
    assert found["test_accuracy"] > 0.9


@pytest.mark.long
def test_an_impossible_limit_is_said_and_the_run_is_a_success(shell: Shell) -> None:
    """The run did what it could: exit code 0; that the limit is broken cannot be overlooked."""
    out = shell.folder / "out"
    settings = ("problem.constraint.0.limit=1e-6", "algorithm.rounds=50")
    extra = [part for setting in settings for part in ("--set", setting)]
    outcome = shell("run", *extra, "--out", out)
    assert outcome.code == 0
    found = json.loads((out / "result.json").read_text())
    assert not found["feasible"]
    assert not found["certificate"]["feasible"]
    note = next(note for note in found["notes"] if note.startswith("loss: "))
    assert "is over its limit 1e-06 by" in note
    assert "out: limits broken on the training rows" in outcome.out
    assert note in outcome.out.replace("\n", " ")


@pytest.mark.parametrize("seed", [0, 1])
def test_advice_about_a_limit_below_the_optimum_contains_the_optimum(seed: int) -> None:
    """The least loss of logistic regression is known; the advice must not promise less."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(400, 3))
    y = (x @ [1.0, -1.0, 0.5] + rng.normal(size=400) > 0).astype(np.int32)
    clients = fedssca.by_sample({"x": x.astype(np.float32), "y": y}, 4)
    problem = fedssca.classifier(fedssca.linear(3, 2), fedssca.loss_at_most(0.05), objective="norm")

    def loss(w: np.ndarray) -> float:
        return float(np.logaddexp(0, -(2 * y - 1) * (x @ w[1:] + w[0])).mean())

    optimum = minimize(loss, np.zeros(4)).fun
    algorithm = fedssca.auto(problem, clients, batch=20, rounds=150, seed=seed)
    result = fedssca.simulate(problem, clients, algorithm, 150, seed)
    assert not result.feasible
    (advice,) = [note for note in result.notes if note.startswith("loss: ")]
    numbers = [float(number) for number in re.findall(r"0\.\d+(?= and| looks)", advice)]
    reached = result.certificate["constraints"][0]["value"]
    assert numbers, advice
    assert max(numbers) <= reached + 1e-4  # never worse than what was reached
    assert min(numbers) - 0.01 <= optimum <= max(numbers) + 1e-4
