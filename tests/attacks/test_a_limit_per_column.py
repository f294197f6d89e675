"""A submitter wants the table itself: he states one limit on parity for every column.

The server then needs to know how many rows have which label and which value of each of these
columns, all of them together, which used to be the rows: 240 of 240 came out. Secure sums did not
help, because they began later. Now a site counts no group of fewer than `limits.least_rows` rows.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from fedssca.errors import UserError
from tests.attacks.clinic import HIDDEN, ask_census, clinics, seen, table

COLUMNS = ("age", "ward", "weight")
LIMITS = ", ".join(f"{{kind = 'parity', column = '{name}', limit = 0.1}}" for name in COLUMNS)
ATTACK = [f"problem.constraint=[{LIMITS}]"]


@pytest.mark.parametrize("hidden", [False, True])
def test_no_row_leaves(hidden: bool, tmp_path: Path) -> None:
    files = clinics(tmp_path, "hidden = true\n" if hidden else "")
    with pytest.raises(UserError, match=r"limits\.least_rows"):
        ask_census(files, [*ATTACK, HIDDEN] if hidden else ATTACK, tmp_path / "run")
    heard = seen(tmp_path / "run")
    assert not [weight for weight in table()["weight"] if weight.encode() in heard]


def test_a_site_may_list_the_columns_that_are_counted(tmp_path: Path) -> None:
    limits = '[limits]\ncounted = ["ward"]\nleast_rows = 1\n'
    with pytest.raises(UserError, match=r'limits\.counted = \["ward"\].*\'age\''):
        ask_census(clinics(tmp_path, limits), ATTACK, tmp_path / "run")


def test_large_groups_are_counted(tmp_path: Path) -> None:
    """What the limit is for still works, under masks too."""
    honest = ["problem.constraint=[{kind = 'parity', column = 'ward', limit = 0.1}]"]
    files = clinics(tmp_path, "[limits]\ncensuses = 2\n", rows=1500)
    plain, _ = ask_census(files, honest, tmp_path / "plain")
    hidden, _ = ask_census(files, [*honest, HIDDEN], tmp_path / "hidden", b"h" * 16)
    assert plain.counts == hidden.counts
    assert sum(row[-1] for row in plain.counts) == sum(plain.sizes)
