"""The limit calibration: expected less observed rate of a class, by hand and in a run."""

from __future__ import annotations

from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest

from fedssca import calibration_at_most
from fedssca.errors import UserError
from fedssca.problem.constraints import Groups
from fedssca.run.build import build
from fedssca.run.config import parse
from fedssca.run.execute import train

TOWN = np.array([0, 0, 1, 1])
Y = np.array([0, 1, 1, 1])


def test_both_sides_by_hand() -> None:
    scores = jnp.log(jnp.array([[0.5, 0.5], [0.2, 0.8], [0.9, 0.1], [0.4, 0.6]]))
    batch = {"y": jnp.asarray(Y), "town": jnp.asarray(TOWN)}
    made = calibration_at_most(0.1, Groups({"town": TOWN}))
    values = {}
    for each in made:
        ((weight, term),) = each.terms.values()
        values[each.name] = float(weight * jnp.mean(term(scores, batch)))
    first, second = (0.5 + 0.8) / 2 - 0.5, (0.1 + 0.6) / 2 - 1
    assert values == pytest.approx(
        {
            "calibration_town_0": first,
            "calibration_town_0_lower": -first,
            "calibration_town_1": second,
            "calibration_town_1_lower": -second,
        },
        abs=1e-6,
    )
    assert {each.limit for each in made} == {0.1}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("split", ["sample", "feature"])
def test_a_run_is_calibrated_in_every_group(split: str, tmp_path: Path) -> None:
    """A large weight of one class spoils the probabilities; the limit mends them."""
    draw = np.random.default_rng(0)
    x, town = draw.normal(size=(400, 3)), draw.integers(0, 2, 400)
    y = x[:, 0] + 0.5 * town + draw.normal(size=400) > 1
    file = tmp_path / "rows.csv"
    table = np.c_[x, town, y]
    np.savetxt(file, table, delimiter=",", header="a,b,c,town,y", comments="", fmt="%.5f")
    settings = [f"data.path={file}", "data.clients=2", f"data.split={split}", "model.name=linear",
                "problem.class_weights={1=8}", "algorithm.rounds=60"]  # fmt: skip
    limit = "{kind='calibration',limit=0.05,column='town'}"
    free = train(build(parse("", [*settings, "data.keep=['town']"])))
    job = build(parse("", [*settings, f"problem.constraint=[{limit}]"]))
    kept, rows = train(job), job.clients.columns

    def off(w: np.ndarray) -> list[float]:
        assert job.problem.scores is not None
        scores = np.asarray(job.problem.scores(jnp.asarray(w), rows))
        above = 1 / (1 + np.exp(scores[:, 0] - scores[:, 1])) - rows["y"]
        return [abs(float(above[rows["town"] == place].mean())) for place in (0, 1)]

    assert kept.feasible
    assert max(off(kept.w)) <= 0.0501
    assert min(off(free.w)) > 0.1


def test_refused() -> None:
    with pytest.raises(UserError, match="limit = 2: it must be 0 <= limit < 1"):
        calibration_at_most(2)
    entry = "problem.constraint=[{kind='calibration',limit=0.1}]"
    with pytest.raises(UserError, match="cannot be certified, because it is about a mean"):
        parse("", [entry, "problem.confidence=0.9"])
    with pytest.raises(UserError, match="a regression has no constraint of kind 'calibration'"):
        parse("", [entry, "problem.task=regression"])
