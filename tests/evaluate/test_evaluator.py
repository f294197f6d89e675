"""What is reported, against direct sums, known KKT points and bytes counted by hand."""

from __future__ import annotations

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedssca.data.split import Columns, Rows
from fedssca.evaluate import passes
from fedssca.evaluate.evaluator import evaluator_over
from fedssca.evaluate.traffic import traffic
from fedssca.methods.schedule import power
from fedssca.methods.ssca import ssca
from fedssca.problem.constraints import false_negative_rate_at_most, loss_at_most
from fedssca.problem.custom import custom_problem
from fedssca.problem.models import classifier, linear, mlp

pytestmark = pytest.mark.usefixtures("float64")

STEPS = {"rho": power(1.0, 0.55), "gamma": power(1.0, 0.9)}


@pytest.mark.long
@pytest.mark.parametrize("chunk", [16, 20, 60, 4096])  # 60 rows: 16 leaves 12 over
def test_evaluation_is_the_direct_sum(columns, by_hand, monkeypatch, chunk: int) -> None:
    monkeypatch.setattr(passes, "CHUNK", chunk)
    p = classifier(mlp(7, 5, 3, dtype="float64"), loss_at_most(0.4), l2=0.1)
    test = {name: column[:25] for name, column in columns.items()}
    look = evaluator_over(p, Rows(columns, (25, 35)), test)
    row, slopes = look.row(p.start), look.gradients(p.start)
    w = np.asarray(p.start)
    losses, gradients = by_hand(w, columns["x"], columns["y"])
    assert row["objective"] == pytest.approx(losses.mean() + 0.1 * w @ w, rel=1e-12)
    assert row["constraints"] == pytest.approx([losses.mean() - 0.4], rel=1e-12)
    assert row["norm_sq"] == pytest.approx(w @ w, rel=1e-12)
    assert row["train_cost"] == pytest.approx(losses.mean(), rel=1e-12)
    assert row["test_cost"] == pytest.approx(losses[:25].mean(), rel=1e-12)
    mean = gradients.mean(axis=0)
    np.testing.assert_allclose(slopes, [mean + 0.2 * w, mean], atol=1e-13)
    w1, w0 = w[15:].reshape(5, 7), w[:15].reshape(3, 5)
    z = columns["x"] @ w1.T
    hit = np.argmax(z / (1 + np.exp(-z)) @ w0.T, axis=1) == columns["y"]
    assert row["train_accuracy"] == pytest.approx(hit.mean(), rel=1e-12)
    assert row["test_accuracy"] == pytest.approx(hit[:25].mean(), rel=1e-12)


@pytest.mark.parametrize("chunk", [4, 100])
def test_terms_may_depend_on_the_client(monkeypatch, chunk: int) -> None:
    monkeypatch.setattr(passes, "CHUNK", chunk)
    p = custom_problem(
        lambda w, batch: jnp.where(batch["client"] == 1, batch["x"][:, 0], 0.0)[None] * w[0],
        jnp.ones(1),
        measure=lambda w, batch: {
            "rate": [(1.0, batch["x"][:, 0] * w[0], 1.0 * (batch["client"] == 1))]
        },
    )
    rows = Rows({"x": np.arange(9.0)[:, None], "y": np.zeros(9)}, (5, 4))
    row = evaluator_over(p, rows, None).row(p.start)
    assert row["objective"] == pytest.approx((5 + 6 + 7 + 8) / 9)
    assert row["train_rate"] == pytest.approx(36 / 4)
    assert not any(name.startswith("test") for name in row)


def test_parties_with_columns_are_evaluated_alike(columns) -> None:
    p = classifier(mlp(7, 5, 3, dtype="float64"))
    rows = evaluator_over(p, Rows(columns, (60,)), None).row(p.start)
    parties = Columns(columns, (np.arange(3), np.arange(3, 7)))
    assert evaluator_over(p, parties, None).row(p.start) == rows


@pytest.mark.parametrize("chunk", [7, 16, 100])  # 60 rows
def test_rows_with_slopes_of_the_same_terms_are_taken_together(
    columns, monkeypatch, chunk: int
) -> None:
    """Three limits on single classes and one on the loss: gradients as without the order."""
    limits = [
        limit
        for digit in range(3)
        for limit in false_negative_rate_at_most(0.1, columns["y"], positive=digit)
    ]
    p = classifier(mlp(7, 5, 3, dtype="float64"), [*limits, *loss_at_most(0.4)], objective="norm")
    rows = Rows(columns, (25, 30), np.arange(55))  # five rows belong to nobody
    expected = evaluator_over(replace(p, of_scores=None), rows, None).gradients(p.start)
    monkeypatch.setattr(passes, "CHUNK", chunk)
    monkeypatch.setattr(passes, "MANY", 1)
    found = evaluator_over(replace(p, notes=("another",)), rows, None).gradients(p.start)
    np.testing.assert_allclose(found, expected, rtol=1e-11, atol=1e-13)


# Bytes -------------------------------------------------------------------------------------------


def test_bytes_of_rows_by_hand(columns) -> None:
    p = classifier(mlp(7, 5, 3, dtype="float64"), loss_at_most(0.5), objective="norm")
    sent = traffic(p, Rows(columns, (20, 40)), ssca(p, batch=10, **STEPS))
    # up: one value and one gradient a client; down: w and the number of the round
    assert sent == (2 * 8 * (1 + 50), 2 * (8 * 50 + 4), 0)


def test_bytes_of_columns_by_hand(columns) -> None:
    own = [np.arange(3), np.arange(3, 7)]
    p = classifier(mlp(7, 5, 3, dtype="float64"), loss_at_most(0.5), objective="norm", features=own)
    method, up = ssca(p, batch=10, **STEPS), 8 * (1 + 50)
    # down: round, 10 row numbers and w_0 (15) to each party, its own block (15, 20) to one
    down = 2 * (4 + 4 * 10 + 8 * 15) + 8 * (15 + 20)
    h = 10 * 5 * 8
    assert traffic(p, Columns(columns, tuple(own)), method) == (up, down, 2 * h)
    # one party has the labels: h to it, and as much back for the one term
    assert traffic(p, Columns(columns, tuple(own), label_holder=0), method) == (up, down, 2 * h)
    # open: every h, the raw features, and int32 labels
    raw = 2 * h + 10 * 7 * 8 + 10 * 4
    assert traffic(p, Columns(columns, tuple(own), collection="open"), method) == (raw, down, 0)


@pytest.mark.parametrize(("misses", "of"), [(21, 30), (13, 49)])
def test_a_count_on_its_limit_keeps_it_in_single_precision(misses: int, of: int) -> None:
    """The sum of the rows' weights N / `of` is rounded, and is above the limit without care."""
    row = np.arange(500)
    y = (row < of).astype(np.int32)
    x = np.where(row < misses, -1.0, 2.0 * y - 1)[:, None].astype(np.float32)
    with jax.enable_x64(False):
        for limit, kept in ((misses / of, True), ((misses - 0.01) / of, False)):
            p = classifier(linear(1, 2), false_negative_rate_at_most(limit, y))
            look = evaluator_over(p, Rows({"x": x, "y": y}, (500,)), None)
            found = look.row(jnp.array([0.0, 1.0]))
            assert (found["constraints"][0] <= 0) == kept
            assert found["train_fnr"] == pytest.approx(misses / of)
