"""An accident, and a curious server: a clinic forgets `ignore = ["name"]` in its site.toml.

The server wants the names of the patients. It used to get every distinct one, as a value of a text
column, and its own limit on the number of values was checked after they had arrived. Now the site
tells only values that at least `limits.least_rows` of its rows have, and at most 50 of them.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.attacks.clinic import HIDDEN, ask_census, clinics, seen, table


@pytest.mark.parametrize("settings", [[], [HIDDEN]], ids=["plain", "hidden"])
def test_no_name_leaves(settings: list[str], tmp_path: Path) -> None:
    census, _ = ask_census(clinics(tmp_path), settings, tmp_path / "run")
    heard = seen(tmp_path / "run")
    names = set(table()["name"])
    assert len(names) == 40
    assert not [name for name in names if name.encode() in heard]
    assert census.encoder is not None
    assert "name" in census.encoder["left_out"]
    assert "ward=north" in census.features


def test_a_site_may_list_its_features(tmp_path: Path) -> None:
    """Whoever lists what may be used cannot forget what may not."""
    limits = '[limits]\nfeatures = ["age", "weight"]\nleast_rows = 1\nmost_kinds = 1000\n'
    census, _ = ask_census(clinics(tmp_path, limits), [], tmp_path / "run")
    assert census.features == ["age", "weight"]
    assert not [name for name in table()["name"] if name.encode() in seen(tmp_path / "run")]


def test_no_more_than_fifty_values_leave(tmp_path: Path) -> None:
    """A list of 60 towns, each frequent enough: 50 are named, the rest is joined to one."""
    files = clinics(tmp_path)
    for number, file in enumerate(files):
        rows = [f"town {i % 60},{i % 7},{i % 2}" for i in range(1200)]
        (tmp_path / f"{number}.csv").write_text("\n".join(["town,size,y", *rows]) + "\n")
        assert file.exists()
    census, _ = ask_census(files, ["data.most_categories=1000"], tmp_path / "run")
    towns = [name for name in census.features if name.startswith("town")]
    assert len(towns) == 51
    assert "town other" in towns
