"""Seeds trained together give the bits of single runs."""

from __future__ import annotations

import dataclasses

import jax
import numpy as np
import pytest

from fedssca.errors import UserError
from fedssca.run.build import build, load_dataset
from fedssca.run.config import Config, parse
from fedssca.run.execute import train
from fedssca.run.seeds import train_together

BASE = """
[model]
hidden = 8
[algorithm]
batch = 5
rounds = 30
rho = 0.5
gamma = {a = 0.3, alpha = 0.6}
tau = 0.2
"""


def seeded(settings: list[str], seeds: tuple[int, ...] = (0, 2**31 - 1)) -> list[Config]:
    config = parse(BASE, settings)
    return [
        dataclasses.replace(config, run=dataclasses.replace(config.run, seed=seed))
        for seed in seeds
    ]


@pytest.mark.parametrize(
    ("settings", "own_data"),
    [
        ([], True),
        ([], False),
        (['data.split="feature"', 'run.precision="float64"'], True),
        (['data.partition="dirichlet"', "algorithm.name=momentum"], True),
        (["algorithm.name=momentum", "algorithm.local_steps=2"], True),
        (["data.clients=3", "problem.constraint=[{kind='client_loss', limit=2.0}]"], True),
    ],
)
@pytest.mark.filterwarnings("ignore:convergence is not guaranteed")
def test_together_as_alone(settings: list[str], own_data: bool) -> None:
    configs = seeded(settings)
    dataset = load_dataset(configs[0]) if own_data else None
    results = train_together(configs, dataset=dataset, evaluate_at=[0, 7])
    for config, result in zip(configs, results, strict=True):
        with jax.enable_x64(config.run.precision == "float64"):
            alone = train(build(config, dataset), evaluate_at=[0, 7])
        assert np.array_equal(result.w, alone.w)
        assert [row["round"] for row in result.rows] == [0, 7, 29]
        for ours, theirs in zip(result.rows, alone.rows, strict=True):
            assert {**ours, "seconds": 0} == {**theirs, "seconds": 0}


@pytest.mark.filterwarnings("ignore:convergence is not guaranteed")
def test_runs_must_be_alike() -> None:
    with pytest.raises(UserError, match=r"differ in run\.seed only"):
        list(train_together([*seeded([]), *seeded(["algorithm.batch=6"])]))
    with pytest.raises(UserError, match="at least one"):
        list(train_together([]))
