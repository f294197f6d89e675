"""A lying server evaluates a model over rows of its choice.

Who attacks: the server of a run with columns, which names the rows of a sum. What it wants: the
loss of one patient, as the sum over a group of rows minus the sum over the same group without him.
What stops it: rows are divided into chunks in one way, and a party adds up these chunks only.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fedssca.deploy.site.party import _check_indices
from fedssca.deploy.site.stages import Parts
from fedssca.deploy.stages import chunks, is_chunk
from fedssca.evaluate.passes import CHUNK
from fedssca.rounds.codec import InvalidMessage

ROWS = 2 * CHUNK + 100
SIZES = [1, 99, CHUNK - 1, CHUNK, CHUNK + 1, 3 * CHUNK // 2, ROWS, 20_000]


@pytest.mark.parametrize("rows", SIZES)
def test_what_an_honest_server_asks_for_is_answered(rows: int) -> None:
    found = list(chunks(rows))
    assert np.array_equal(np.concatenate(found), np.arange(rows))
    assert all(is_chunk(chunk, rows) for chunk in found)
    assert all(len(chunk) <= 3 * CHUNK // 2 for chunk in found)


def test_rows_of_a_choice_are_refused() -> None:
    whole = np.arange(CHUNK)
    refused = {
        "one row": whole[:1],
        "all but the first": whole[1:],
        "all but the last": whole[:-1],
        "a hole, and one more": np.delete(np.arange(CHUNK + 1), 7),
        "another order": whole[::-1],
        "one row twice": np.where(whole == 5, 6, whole),
        "shifted": whole + 1,
        "the end, cut short": np.arange(CHUNK, ROWS - 1),
        "the end without the rest": np.arange(CHUNK, 2 * CHUNK),
        "the rest alone": np.arange(2 * CHUNK, ROWS),
        "two chunks in one": np.arange(ROWS),
        "nothing": whole[:0],
    }
    party = type("Ready", (), {"parts": Parts({"x": np.zeros(ROWS)}, {}, {})})
    for stage in ("measure", "tally", "slope"):
        _check_indices(stage, {"indices": whole}, party)
        for what, rows in refused.items():
            assert not is_chunk(rows, ROWS), what
            with pytest.raises(InvalidMessage):
                _check_indices(stage, {"indices": rows}, party)


@given(st.integers(1, 3 * CHUNK), st.integers(0, 2), st.integers(-1, 3 * CHUNK))
@example(CHUNK + 1, 0, CHUNK)
def test_no_two_sums_that_are_answered_have_a_row_in_common(rows: int, k: int, length: int) -> None:
    """So no difference of two of them is about a few rows."""
    asked = np.arange(k * CHUNK, min(k * CHUNK + length, rows))
    if is_chunk(asked, rows):
        assert sum(bool(np.isin(chunk, asked).any()) for chunk in chunks(rows)) == 1
        assert any(np.array_equal(chunk, asked) for chunk in chunks(rows))
