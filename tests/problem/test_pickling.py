"""Constraints and models are pickled by the calls that made them."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import fedssca
from fedssca.problem.constraints import Constraint
from fedssca.problem.constraints.base import Once
from fedssca.problem.constraints.config import MAKERS
from fedssca.problem.pickling import portable

Y = np.array([0, 1, 1, 0, 1, 0, 1, 0])
TOWN = np.array([0, 1, 2, 0, 1, 2, 0, 1])
SCORES = jnp.asarray(np.random.default_rng(0).normal(size=(8, 2)), jnp.float32)
BATCH = {"y": jnp.asarray(Y), "town": jnp.asarray(TOWN), "client": jnp.asarray([0] * 4 + [1] * 4)}
TOWNS = fedssca.Groups({"town": TOWN}, least_rows=1)
LIMITS: dict[str, list[Constraint]] = {
    "loss": fedssca.loss_at_most(0.2, TOWNS),
    "loss_gap": fedssca.loss_gap_at_most(0.2, TOWNS),
    "error": fedssca.error_at_most(0.2),
    "fnr": fedssca.false_negative_rate_at_most(0.1, Y),
    "fpr": fedssca.false_positive_rate_at_most(0.1, Y, sharpness=2.0),
    "recall": fedssca.recall_at_least(0.9, Y, groups=TOWNS),
    "precision": fedssca.precision_at_least(0.9, Y),
    "parity": fedssca.parity_gap_at_most(0.1, TOWNS, compare="pairs"),
    "opportunity": fedssca.opportunity_gap_at_most(0.1, TOWN % 2, "town", Y),
    "client_loss": fedssca.client_loss_at_most(0.2, [4, 4]),
    "client_loss_gap": fedssca.client_loss_gap_at_most(0.2, [4, 4]),
    "mae": fedssca.mae_at_most(0.2, TOWNS),
    "rmse": fedssca.rmse_at_most(0.2),
    "mae_gap": fedssca.mae_gap_at_most(0.2, TOWNS),
    "beyond": fedssca.beyond_at_most(0.2, bound=1.5),
    "bias": fedssca.bias_at_most(0.2, TOWNS),
    "calibration": fedssca.calibration_at_most(0.2, TOWNS),
    "custom": fedssca.custom("spread", lambda scores, batch: scores[:, 0] ** 2, (0.1, 0.3)),
}


def test_every_kind_of_limit_is_here() -> None:
    assert set(LIMITS) == {*MAKERS, "custom"}


@pytest.mark.parametrize("kind", LIMITS)
def test_a_limit_is_the_same_after_pickling(kind: str) -> None:
    for made, back in zip(LIMITS[kind], pickle.loads(pickle.dumps(LIMITS[kind])), strict=True):
        assert isinstance(back, Constraint)
        assert _plain(back) == _plain(made)
        assert _values(back) == _values(made)
        again = pickle.loads(pickle.dumps(back))
        assert _values(again) == _values(made)


def test_what_was_replaced_stays_replaced() -> None:
    """The call says what the functions are; the other fields are pickled as they are."""
    (fnr,) = fedssca.false_negative_rate_at_most(0.1, Y)
    changed = fnr._replace(name="missed", limit=0.3, rates=lambda scores, batch: [])
    back = pickle.loads(pickle.dumps(changed))
    assert (back.name, back.limit, back.rates(SCORES, BATCH)) == ("missed", 0.3, [])
    assert _values(back) == _values(changed)


def test_one_call_is_made_once_for_all_its_constraints() -> None:
    """The constraints of all groups hold the labels once in the pickle."""
    labels = np.tile(Y, 1000)
    groups = fedssca.Groups({"town": np.tile(TOWN, 1000)})
    limits = [fedssca.recall_at_least(0.9, labels, groups=each) for each in (None, groups)]
    one, two = (len(pickle.dumps(limit)) for limit in limits)
    assert two < one + labels.nbytes + 5000


def test_models_and_functions_of_the_user() -> None:
    x = jnp.ones((2, 3))
    for model in (fedssca.mlp(3, 4, 2), fedssca.linear(3, 2, scale=0.5)):
        back = pickle.loads(pickle.dumps(model))
        for made, again in zip(model.init(1), back.init(1), strict=True):
            np.testing.assert_array_equal(made, again)
        w0, w1 = model.init(1)
        scores = [each.top(w0, each.local(w1, x)) for each in (model, back)]
        np.testing.assert_array_equal(*scores)
    factor = 3
    functions: Any = [lambda x: factor * x, {"mean": np.mean}]
    own, named = pickle.loads(pickle.dumps(portable(functions)))
    assert (own(2), named["mean"]) == (6, np.mean)


def test_a_copy_is_the_same_object() -> None:
    """So that scikit-learn's clone does not make the limits again."""
    (limit,) = fedssca.loss_at_most(0.2)
    model = fedssca.linear(3, 2)
    assert copy.deepcopy(limit) is limit
    assert copy.deepcopy(model) is model


def _plain(limit: Constraint) -> tuple[Any, ...]:
    weights = {name: weight for name, (weight, _) in limit.terms.items()}
    fields = limit._replace(terms=weights, rates=None)  # type: ignore[arg-type]
    return tuple(fields)


def _values(limit: Constraint) -> list[list[float]]:
    """The terms and the reported rates of eight rows."""
    now = Once(SCORES, BATCH)
    if limit.units or limit.name == "beyond":
        now = Once(SCORES[:, :1], BATCH, fedssca.regression())
    rates = now.of(limit.rates) if limit.rates else ()
    terms = [now.of(term) for _, term in limit.terms.values()]
    return [np.asarray(v).tolist() for v in (*terms, *(part for rate in rates for part in rate))]
