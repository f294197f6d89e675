"""Numbers that were read as text are refused, with what to do."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fedssca import load
from fedssca.data.encode.misread import misread_numbers
from fedssca.errors import UserError

N = 60
NUMBERS = [f"{1000 + 37 * i}" for i in range(N)]


@pytest.mark.parametrize(
    ("cells", "words"),
    [
        ([f"{i},{i + 1}" for i in range(N)], "numbers that are not written plainly, such as '0,1'"),
        ([f"{n[0]},{n[1:]}" for n in NUMBERS], "not written plainly, such as '1,000' in row 1"),
        ([f"{i}.5%" for i in range(N)], "not written plainly, such as '0.5%'"),
        ([f"${n}" for n in NUMBERS], "not written plainly"),
        ([f"1.{n[1:]},50 €" for n in NUMBERS], "not written plainly"),
        (NUMBERS, "numbers that are saved as text"),
        ([*NUMBERS, "-"], "1 of 61 cells are none, such as '-' in row 61: mend them, or if they "
         "mean missing, set data.missing = ['-']"),
        (["age", *NUMBERS], "if that row holds the names of columns, leave data.columns out"),
    ],
)  # fmt: skip
def test_numbers_as_text(cells: list[str], words: str) -> None:
    (line,) = misread_numbers({"a": np.array(cells)})
    assert words in line
    assert "list it in data.categories" in line
    (quiet,) = misread_numbers({"a": np.array(cells)}, tell=False)
    assert not any(repr(cell) in quiet for cell in cells)  # a site shows none of its cells
    assert not list(misread_numbers({"a": np.array(cells)}, but=["a"]))


@pytest.mark.parametrize(
    "cells",
    [
        ["1", "2", "3+"] * 20,
        [f"p{i}" for i in range(N)],
        [f"{1 + i % 28}.{1 + i % 12}.2020" for i in range(N)],
        ["31.2.2020", *(f"{1 + i % 28}.{1 + i % 12}.2020" for i in range(N))],
        [f"{i % 24}:{i:02}" for i in range(N)],
        [f"A {i}" if i % 3 else f"{i}" for i in range(N)],
        [""] * N,
    ],
)
def test_other_text(cells: list[str]) -> None:
    assert not list(misread_numbers({"a": np.array(cells)}))


def test_a_table_with_them_is_refused(tmp_path: Path) -> None:
    """In a column with a decimal comma, a decimal point may stand for thousands."""
    rows = [f"{n[0]}.{n[1:]};{i},5;{i % 2}" for i, n in enumerate(NUMBERS)]
    path = tmp_path / "t.csv"
    path.write_text("\n".join(["big;small;y", *rows]))
    assert load(None, str(path)).features == ("big", "small")
    path.write_text("\n".join(["big;small;y", *rows, "1.000,5;3;1"]))
    with pytest.raises(UserError, match=r"^t: column 'big' holds numbers .* such as '1\.000,5'"):
        load(None, str(path))
    for settings in ({"drop": ["big"]}, {"categories": ["big"]}):
        assert "small" in load(None, str(path), **settings).features
