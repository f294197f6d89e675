"""Limits on groups in deployments: counts of bins, intersections and single sites in the census."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from fedssca.errors import UserError
from fedssca.problem.constraints.cells import representatives
from fedssca.run.config import parse
from tests.deploy.test_sites import BASE, COLUMNS, by_columns, by_rows, run, table, write

METHOD = [
    *("algorithm.name=ssca", "algorithm.rho={a=0.9,alpha=0.3}", "algorithm.tau=1.0"),
    *("algorithm.gamma={a=0.5,alpha=0.6}", "algorithm.multipliers=exact"),
]
LIMITS = (
    'problem.constraint=[{kind="fnr", positive="well", limit=0.5, column="age", bins=[43, 50],'
    " least_rows=9},"
    ' {kind="parity", positive="ill", limit=0.5, columns=["sex", "age"], bins={age=[45.5]}},'
    ' {kind="error", limit=0.9, column="sex", per_client=PER_CLIENT}]'
)


def people() -> dict[str, list[str]]:
    columns = table(240)
    columns["sex"] = ["man" if i % 3 else "woman" for i in range(240)]
    return columns


def check(found: dict, names: list[str]) -> None:
    """A value uses the factor N / N_S of the census, a reported rate the rows that are counted."""
    assert [name for name in found["constraint_names"] if not name.endswith("_lower")] == names
    for name, value, limit in zip(
        found["constraint_names"], found["constraints"], found["limits"], strict=True
    ):
        if not name.endswith("_lower"):
            assert value + limit == pytest.approx(found[f"train_{name}"], abs=1e-5), name


GROUPS = [
    *(f"fnr_age_{bin}" for bin in ("below_43", "43_to_50", "from_50")),
    *(
        f"parity_sex_age_0_{s}_{bin}"
        for s in ("man", "woman")
        for bin in ("below_45.5", "from_45.5")
    ),
]


def test_sites_with_rows_count_bins_and_intersections_site_by_site(tmp_path: Path) -> None:
    limits = LIMITS.replace("PER_CLIENT", "true")
    config = parse(BASE, [*METHOD, limits])
    found, _ = run(config, by_rows(tmp_path, people()), tmp_path / "run")
    names = [f"error_sex_{sex}_client_{i}" for i in range(2) for sex in ("man", "woman")]
    check(found, [*GROUPS, *names])
    census = json.loads((tmp_path / "run/census.json").read_text())
    assert sum(row[-1] for row in census["counts"]) == sum(census["sizes"])
    assert len({row[1] for row in census["counts"]}) <= 4  # ages are told by bins only


@pytest.mark.long
def test_the_party_with_labels_has_the_groups(tmp_path: Path) -> None:
    columns = people()
    files = by_columns(tmp_path, columns)
    write(tmp_path / "0.csv", {name: columns[name] for name in ("id", "age", "sex", "y")})
    limits = LIMITS.replace("PER_CLIENT", "false")
    config = parse(BASE, [*METHOD, limits, *COLUMNS, "data.label_holder=0"])
    found, _ = run(config, files, tmp_path / "run")
    check(found, [*GROUPS, "error_sex_man", "error_sex_woman"])


def test_a_class_that_is_not_named_is_an_error_at_the_server(tmp_path: Path) -> None:
    config = parse(BASE, [*METHOD, 'problem.constraint=[{kind="fnr", limit=0.5}]'])
    with pytest.raises(UserError, match='counts as positive: "ill"'):
        run(config, by_rows(tmp_path, table()), tmp_path / "run")


def test_a_representative_is_in_the_same_bin_as_its_number() -> None:
    edges = [0.1, 25.0, 1e9]
    values = np.array([-5, 0.0999, 0.1, 24.99, 25, 9e8, 1e9, 2e9], np.float32)
    told = representatives(values, edges)
    ends = np.asarray(edges, np.float32)
    np.testing.assert_array_equal(np.digitize(told, ends), np.digitize(values, ends))
    assert len(np.unique(told)) == 4
