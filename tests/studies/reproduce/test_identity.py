"""Algorithm 1 without constraints against the momentum recursion, through the same batches."""

from __future__ import annotations

import jax
import pytest

from fedssca.errors import UserError
from fedssca.run.build import build
from fedssca.run.config import parse
from fedssca.studies.reproduce.identity import against_momentum
from fedssca.studies.reproduce.runs import carry_out

BASE = """
data.name = "digits"
model.name = "linear"
problem.l2 = 0.0
algorithm.rounds = 61
algorithm.tau = 0.2
algorithm.rho = {a = 0.3, alpha = 0.1, warm = true}
algorithm.gamma = {a = 0.3, alpha = 0.1}
"""


@pytest.mark.parametrize(("precision", "within"), [("float64", 1e-12), ("float32", 1e-4)])
def test_both_are_the_same_to_round_off(precision: str, within: float) -> None:
    config = parse(BASE, [f"run.precision={precision}"])
    shares: list[float] = []
    (run,) = carry_out("identity", [config], (0, 20, 60, 99), shares.append)
    assert [row["round"] for row in run["rows"]] == [0, 20, 60]
    assert shares[-1] == 1.0
    assert run["rows"][0]["distance"] == 0.0
    assert 0 < run["rows"][-1]["distance"] < within
    assert run["rows"][-1]["train_cost"] < 0.5 * run["rows"][0]["train_cost"]
    assert run["rows"][-1]["momentum_cost"] == pytest.approx(
        run["rows"][-1]["train_cost"], rel=1e-3
    )


@pytest.mark.filterwarnings("ignore:convergence is not guaranteed")
@pytest.mark.parametrize(
    ("setting", "line"),
    [
        ("problem.l2=0.1", "problem.l2 = 0"),
        ("algorithm.rho.warm=false", r"rho\(1\) = 1"),
        ("algorithm.tau=[0.1]", "one number"),
        ("algorithm.name=sgd", "ssca"),
    ],
)
def test_where_it_does_not_hold_it_is_refused(setting: str, line: str) -> None:
    with jax.enable_x64(False), pytest.raises(UserError, match=line):
        against_momentum(build(parse(BASE, [setting])), (0,))
