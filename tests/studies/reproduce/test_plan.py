"""Which runs, where they are evaluated, in which portions."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest

from fedssca.errors import UserError
from fedssca.studies.reproduce.cache import Cache
from fedssca.studies.reproduce.experiment import read
from fedssca.studies.reproduce.plan import evaluated, keys, located, plan
from tests.studies.reproduce.reproduce_helpers import TINY, tiny

RUN = {"rows": [], "returned": {}, "feasible": True, "notes": []}


def test_evaluations_are_dense_early_and_sparse_late() -> None:
    at = evaluated(1000)
    assert {0, 1, 2, 3, 100, 200, 500, 999} <= set(at)
    assert list(at) == sorted(set(at))
    assert at[-1] == 999
    assert 45 <= len(at) <= 70
    assert max(b / a for a, b in pairwise(at[20:])) < 1.15
    assert evaluated(1) == (0,)
    assert evaluated(3) == (0, 1, 2)
    assert evaluated(101)[-1] == 100


@pytest.fixture
def cache(tmp_path: Path) -> Cache:
    made = Cache(tmp_path / "cache", "code")
    made.create()
    return made


def test_seeds_of_a_curve_are_one_item_and_known_ones_are_left_out(
    tmp_path: Path, cache: Cache
) -> None:
    panel = read(str(tiny(tmp_path)))
    first, _ = panel.curves
    cache.put(keys(first, 3)[1], RUN, {})
    items = plan([panel, panel], 3, cache)
    assert {item.label: [c.run.seed for c in item.configs] for item in items} == {
        "SGD, B=20": [0, 1, 2],
        "Algorithm 1, B=5": [0, 2],
    }
    assert items[0].cost > items[1].cost
    assert items[1].keys == (keys(first, 3)[0], keys(first, 3)[2])


def test_with_large_batches_every_seed_is_an_item(tmp_path: Path, cache: Cache) -> None:
    panel = read(str(tiny(tmp_path, TINY.replace("batch = 20", "batch = 500, local_steps = 2"))))
    items = [item for item in plan([panel], 3, cache) if item.label.startswith("SGD")]
    assert [len(item.configs) for item in items] == [1, 1, 1]


def test_missing_data_names_the_command_that_fetches_them(tmp_path: Path) -> None:
    panel = located(read("fig1a"), tmp_path)
    with pytest.raises(
        UserError, match=r"mnist is not in .*: fetch it with: fedssca data get mnist"
    ):
        keys(panel.curves[0], 1)
