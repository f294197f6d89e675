"""A submitter wants one row: he varies `data.test_fraction` and subtracts two censuses.

With a fraction near 1 one training row of each class was left, and its moments are the row. Two
fractions that differ by one row gave that row as the difference of two exact sums. Now a site sends
no sums over fewer than `limits.least_rows` rows, the rows are chosen by a rule of the site, and the
site's ledger lets one set of rows be counted, unless the operator allows more (`limits.censuses`).
"""

from __future__ import annotations

from pathlib import Path

import pytest

from fedssca.errors import UserError
from tests.attacks.clinic import HIDDEN, ask_census, clinics


def test_one_row_per_class_is_not_described(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"limits\.least_rows = 10 .*data\.test_fraction"):
        ask_census(clinics(tmp_path), ["data.test_fraction=0.999"], tmp_path / "run")


@pytest.mark.parametrize("hidden", [[], [HIDDEN]], ids=["plain", "hidden"])
def test_two_fractions_are_not_subtracted(hidden: list[str], tmp_path: Path) -> None:
    files = clinics(tmp_path)
    ask_census(files, ["data.test_fraction=0.3", *hidden], tmp_path / "one", b"1" * 16)
    with pytest.raises(UserError, match=r"site-1: refused by limits\.censuses = 1"):
        ask_census(files, ["data.test_fraction=0.315", *hidden], tmp_path / "two", b"2" * 16)
    for again, how in enumerate(([HIDDEN], [], hidden)):  # the same rows, told in any way
        out = tmp_path / f"again {again}"
        ask_census(files, ["data.test_fraction=0.3", *how], out, bytes([again]) * 16)


def test_the_seed_of_a_run_chooses_no_rows(tmp_path: Path) -> None:
    """Another seed gives the same sums, so that nothing can be subtracted."""
    files = clinics(tmp_path)
    one, _ = ask_census(files, ["run.seed=1"], tmp_path / "one", b"1" * 16)
    two, _ = ask_census(files, ["run.seed=2"], tmp_path / "two", b"2" * 16)
    assert one.encoder == two.encoder


def test_a_new_row_is_not_subtracted(tmp_path: Path) -> None:
    """A patient more makes another set of rows: the operator decides whether it is counted."""
    files = clinics(tmp_path)
    ask_census(files, [], tmp_path / "one", b"1" * 16)
    with open(tmp_path / "1.csv", "a") as file:
        file.write("Zoe Zen,33,north,71.234,ill\n")
    with pytest.raises(UserError, match=r"site-2: refused by limits\.censuses = 1"):
        ask_census(files, [], tmp_path / "two", b"2" * 16)


def test_another_group_of_sites_is_not_subtracted(tmp_path: Path) -> None:
    """Sums with and without one site would give away what it tells."""
    files = clinics(tmp_path)
    ask_census(files, [HIDDEN], tmp_path / "one", b"1" * 16)
    with pytest.raises(UserError, match=r"site-1: refused by limits\.censuses = 1"):
        ask_census(files[:2], [HIDDEN, "data.clients=2"], tmp_path / "two", b"2" * 16)
