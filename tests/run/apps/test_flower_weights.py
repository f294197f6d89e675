"""The rule for the weights of limits, and the choice of the model, without any training."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

pytest.importorskip("flwr", reason="needs the flower extra: pip install 'fedssca[flower]'")

from flwr.app import Array, ArrayRecord

from fedssca.run.apps.flower.candidates import Candidates, MeasuredModel
from fedssca.run.apps.flower.weights import Weights

COURSE = [0.1, 0.15, 0.3, 0.6, 0.8, 0.95, 0.93, 0.85, 0.92, 0.88]


def course(values: list[float], limit: float, unit: float = 1.0) -> tuple[Weights, np.ndarray]:
    """The weights, and the multipliers of all rounds; the constraint is scaled by `unit`."""
    weights = Weights(np.array([unit * limit]), len(values))
    told = []
    for value in values:
        weights.move(np.array([unit * value]), np.array([2.0 / unit]))
        told.append(weights.multipliers[0])
    return weights, np.array(told)


def test_an_idle_limit_has_no_weight() -> None:
    weights, told = course(COURSE, 1.5)
    assert not told.any()
    assert not weights.active
    assert weights.sent().tolist() == [1.0, 0.0], "the criterion is the loss itself"


@pytest.mark.parametrize("unit", [1e-3, 1e3])
def test_units_do_not_matter(unit: float) -> None:
    plain, scaled = course(COURSE, 0.9)[1], course(COURSE, 0.9, unit)[1]
    assert plain.any()
    np.testing.assert_allclose(scaled * unit, plain, rtol=1e-9)


def test_the_weight_rises_while_a_limit_is_broken_and_falls_while_it_is_kept() -> None:
    broken = course([0.1, *[0.95] * 9], 0.9)[1]
    assert (np.diff(broken[3:]) > 0).all()
    back = course([0.1, *[0.95] * 5, *[0.5] * 4], 0.9)[1]
    assert (np.diff(back[6:]) < 0).all()


def test_large_weights_are_divided() -> None:
    weights, told = course([0.1, *[5.0] * 29], 0.9)
    sent = weights.sent()
    assert sent[0] < 1
    assert sent[1] / sent[0] == pytest.approx(told[-1])


def model(name: str, of: int | None, at: float, loss: float, excess: float) -> MeasuredModel:
    arrays = ArrayRecord({"w": Array(np.array([at], np.float32)), "n": Array(np.array([of or 0]))})
    return MeasuredModel(name, of, arrays, SimpleNamespace(loss=loss), excess, {})  # type: ignore[arg-type]


def test_the_average_and_then_points_nearer_the_limit_are_tried() -> None:
    models = Candidates(4)
    models.add(model("model of round 3", 3, 0.0, 1.0, -0.5))
    models.add(model("model of round 4", 4, 1.0, 0.2, 0.5))
    assert models.broken
    name, average = models.candidate() or ("", ArrayRecord())
    assert name == "average of the models of rounds 3 to 4"
    assert average["w"].numpy().tolist() == [0.5]
    assert average["n"].numpy().tolist() == [4], "counts are not averaged"
    models.add(model(name, None, 0.5, 0.6, 0.1))  # breaks the limit by less
    name, point = models.candidate() or ("", ArrayRecord())
    assert 0 < float(point["w"].numpy()[0]) < 0.5, "between the kept model and the nearest broken"
    models.add(model(name, None, 0.33, 0.61, -0.01))
    assert models.best is not None
    assert (models.best.name, models.best.feasible) == (name, True)
    assert models.candidate() is None, "hardly anything is to be gained"


def test_a_short_way_back_from_a_trained_model_is_preferred() -> None:
    """The model that keeps the limits best is near them, and hardly trained."""
    models = Candidates(3)
    models.add(model("model of round 1", 1, 0.0, 2.0, -1.0))
    models.add(model("model of round 2", 2, 0.5, 1.0, -0.001))
    models.add(model("model of round 3", 3, 1.0, 0.2, 0.02))
    name, point = models.candidate() or ("", ArrayRecord())
    assert name.endswith("from the model of round 3 to the model of round 1")
    assert 0.9 < float(point["w"].numpy()[0]) < 1.0


def test_the_least_broken_model_is_returned_if_none_keeps_the_limits() -> None:
    models = Candidates(2)
    models.add(model("a", 1, 0.0, 1.0, 0.3))
    models.add(model("b", 2, 1.0, 0.1, 0.6))
    assert models.best is not None
    assert (models.best.name, models.best.feasible) == ("a", False)
    assert models.candidate() is None
