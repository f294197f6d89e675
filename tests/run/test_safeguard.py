"""Training that diverges goes back to its last good state, with shorter steps, and says so."""

from __future__ import annotations

import math
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import fedssca
from fedssca.errors import Diverged
from fedssca.methods.schedule import Schedule
from fedssca.run.safeguard import MOST, Safeguard

GOOD = {"round": 3, "objective": 1.0, "constraints": [], "slack": [0.5], "norm_sq": 1.0}


def state(at: int, size: float = 1.0) -> fedssca.State:
    none = jnp.zeros(0)
    return fedssca.State(jnp.int32(at), size * jnp.ones(2), (), none, none, jnp.ones(()))


def bowl() -> tuple[Any, Any]:
    """min w^2 from w = 1, where every client has the same rows."""

    def terms(w: Any, batch: Any) -> Any:
        return (jnp.square(w[0]) + 0 * batch["x"][:, 0])[None]

    columns = {"x": np.zeros((20, 1), np.float32), "y": np.zeros(20, np.int32)}
    problem = fedssca.custom_problem(terms, jnp.array([1.0]))
    return problem, fedssca.by_sample(columns, 2, "iid", seed=0)


@pytest.mark.parametrize(
    "bad", [{"constraints": [0.0, math.nan]}, {"test_cost": math.inf}, {"norm_sq": 1e9}]
)
def test_the_last_good_state_continues_with_shorter_steps(bad: dict[str, Any]) -> None:
    safeguard = Safeguard()
    assert safeguard.see(state(3), GOOD) is None
    back = safeguard.see(state(5, 7.0), GOOD | bad | {"round": 5})
    assert isinstance(back, fedssca.State)
    assert (int(back.round), float(back.pace), float(back.w[0])) == (5, 0.25, 1.0)
    assert safeguard.ended
    assert safeguard.see(state(6), GOOD | {"round": 6}) is None
    assert not safeguard.ended
    assert "diverged once and went back" in safeguard.notes(back)[0]


def test_after_several_returns_the_run_ends_with_the_best_point() -> None:
    safeguard = Safeguard()
    assert safeguard.see(state(3), GOOD) is None
    bad = GOOD | {"objective": math.nan}
    said = [safeguard.see(state(4 + k), bad | {"round": 4 + k}) for k in range(MOST + 1)]
    assert said[-1] is True
    assert int(safeguard.end(state(9)).round) == 3
    assert "diverged (objective at round 9) and ended" in safeguard.notes(state(9))[0]


def test_a_start_that_is_not_finite_is_an_error() -> None:
    with pytest.raises(Diverged, match="training cannot start: objective is not finite at round 0"):
        Safeguard().see(state(0), GOOD | {"round": 0, "objective": math.nan})


def test_steps_that_are_too_long_become_shorter_until_training_succeeds() -> None:
    problem, clients = bowl()
    algorithm = fedssca.sgd(problem, batch=5, rate=Schedule(3.0), steps=1)
    result = fedssca.simulate(problem, clients, algorithm, 100)
    assert abs(float(result.w[0])) < 1e-3
    assert "went back to the last good point with shorter steps" in " ".join(result.notes)


def test_steps_that_stay_too_long_end_the_run_at_a_finite_point() -> None:
    problem, clients = bowl()
    algorithm = fedssca.sgd(problem, batch=5, rate=Schedule(1e6), steps=1)
    result = fedssca.simulate(problem, clients, algorithm, 100)
    assert np.isfinite(result.w).all()
    assert "diverged" in result.notes[0]
