"""The census under masks: the encoder of pooled rows, from sums that hide who told what."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedssca.data.encode import Encoder, EncodingRules, Telling, fit_encoder, merged, summarise
from fedssca.data.encode.summary import grouped_numbers
from fedssca.data.tables import write_csv
from fedssca.deploy.words import (
    as_numbers,
    bucket_counts,
    cells_needed,
    from_numbers,
    listed,
    word_table,
)
from fedssca.errors import UserError
from fedssca.rounds.codec import decode
from tests.attacks.clinic import HIDDEN, ask_census

SITES, ROWS, LEAST = 3, 150, 10


def pooled(seed: int = 0) -> dict[str, np.ndarray]:
    """A table with every kind of column; some values are rare at every site."""
    rng, count = np.random.default_rng(seed), SITES * ROWS
    town = rng.choice(["north", "south", "west"], count, p=[0.5, 0.4, 0.1])
    town[:7] = ["Nowhere", "Elsewhere", "Nowhere", "Far", "Far", "Far", "Off"]
    only_there = np.where(np.arange(count) % SITES == 1, "here", "there")
    day = rng.integers(1, 28, count)
    gap = rng.normal(0, 1, count)
    gap[rng.random(count) < 0.3] = np.nan
    return {
        "who": np.array([f"p{i}" for i in range(count)]),
        "number": np.arange(1, count + 1).astype(float),
        "income": rng.normal(5e7, 2e3, count),
        "tiny": rng.normal(0, 1e-9, count),
        "gap": gap,
        "same": np.full(count, 7.25),
        "town": town,
        "only": only_there,
        "smokes": rng.choice(["no", "yes"], count),
        "seen": np.array([f"2020-03-{d:02d}" for d in day]),
        "y": rng.choice(["ill", "well"], count),
    }


def write_sites(folder: Path, table: dict[str, np.ndarray]) -> list[Path]:
    files = []
    for number in range(SITES):
        write_csv(folder / f"{number}.csv", {n: v[number::SITES] for n, v in table.items()})
        files.append(folder / f"{number}.toml")
        write_csv(folder / f"{number}-test.csv", {n: v[:LEAST] for n, v in table.items()})
        paths = f'path = "{number}.csv"\ntest_path = "{number}-test.csv"\n'
        files[-1].write_text(f"{paths}[limits]\n")
    return files


def expected(table: dict[str, np.ndarray]) -> Encoder:
    """The simulator's encoder, of rows in which rare values are one value that has no name."""
    table = {name: values for name, values in table.items() if name != "y"}
    towns = table["town"]
    often = {
        town
        for site in range(SITES)
        for town, count in Counter(towns[site::SITES].tolist()).items()
        if count >= LEAST
    }
    assert "Nowhere" not in often
    table["town"] = np.where(np.isin(towns, list(often)), towns, "rare")
    rules = EncodingRules()
    return fit_encoder({n: [summarise(n, v, None, rules)] for n, v in table.items()}, rules)


@pytest.mark.parametrize("how", [[], [HIDDEN]], ids=["plain", "hidden"])
def test_the_encoder_is_that_of_pooled_rows(how: list[str], tmp_path: Path) -> None:
    table = pooled()
    files = write_sites(tmp_path, table)
    census, link = ask_census(files, how, tmp_path / "run")
    assert census.encoder is not None
    found, due = Encoder.from_state(census.encoder), expected(table)
    assert list(found.left_out) == list(due.left_out) == ["who", "number"]
    features = [name for name in due.features if name != "town=rare"]
    assert set(features) <= set(found.features)
    assert set(found.features) - set(features) <= {"town other"}
    for mine, theirs in zip(found.columns, due.columns, strict=True):
        assert type(mine) is type(theirs)
        for name in ("mean", "deviation", "fill"):
            if hasattr(theirs, name):
                # The simulator adds up in floating point, whose errors are relative to the numbers.
                scale = abs(getattr(theirs, "mean", 1.0)) + getattr(theirs, "deviation", 0.0)
                value = getattr(theirs, name)
                assert getattr(mine, name) == pytest.approx(value, rel=1e-9, abs=1e-14 * scale)
    heard = b"".join(link.answers)
    assert b"Nowhere" not in heard
    assert (b"north" in heard) == (not how)  # under masks no site's answer names a word


def test_under_masks_answers_look_alike(tmp_path: Path) -> None:
    """Who has the word "here" cannot be seen: all answers to sums are integers of every size."""
    _, link = ask_census(write_sites(tmp_path, pooled()), [HIDDEN], tmp_path / "run")
    replies = [e for e in map(decode, link.answers) if e.kind == "census/reply"]
    assert len(replies) == 3 * SITES
    for envelope in replies:
        (masked,) = [a for a in envelope.arrays.values() if a.dtype == np.uint64]
        middle = np.abs(masked.astype(float) - 2.0**63) < 2.0**62
        assert 0.45 < middle.mean() < 0.55
    answers = [e for e in map(decode, link.answers) if e.kind == "facts"]
    assert all(b'"labels"' not in a.arrays["note"].tobytes() for a in answers)


def test_a_sum_with_a_site_missing_is_not_opened(tmp_path: Path) -> None:
    """Otherwise the server would subtract it from the sum with the site."""
    from fedssca.deploy.project import site_names
    from fedssca.deploy.server.run import RunOrder, RunServer
    from fedssca.run.config import parse
    from tests.attacks.clinic import BASE
    from tests.deploy.loopback import RUN, Loopback, parties

    def tamper(site: str, asked: bytes, answer: bytes) -> Any:
        gone = site == "site-3" and decode(asked).kind == "census/reply"
        return None if gone else answer

    link = Loopback(parties(write_sites(tmp_path, pooled())), tamper)
    order = RunOrder(parse(BASE, [HIDDEN]), site_names(SITES), RUN)
    with pytest.raises(UserError, match="2 of 3 parties answer"):
        RunServer(order, link, tmp_path / "run")._preparation.census()
    assert "sum/unmask" not in {decode(data).kind for data in link.envelopes}


def test_what_is_not_told_under_masks_is_one_line(tmp_path: Path) -> None:
    files = write_sites(tmp_path, pooled())
    with pytest.raises(
        UserError, match=r'data.impute = "median" needs .* use data.impute = "mean"'
    ):
        ask_census(files, [HIDDEN, "data.impute=median"], tmp_path / "run")


def test_medians_come_from_groups_of_rows(tmp_path: Path) -> None:
    """Without masks each told number is the mean of at least ten rows: the median is close."""
    table = pooled()
    census, link = ask_census(
        write_sites(tmp_path, table), ["data.impute=median"], tmp_path / "run"
    )
    assert census.encoder is not None
    (gap,) = [c for c in census.encoder["columns"] if c["name"] == "gap"]
    assert gap["fill"] == pytest.approx(np.nanmedian(table["gap"]), abs=0.1)
    assert link.answers


@given(st.dictionaries(st.text(max_size=3), st.integers(1, 40)), st.integers(1, 12))
def test_merged_counts_stand_for_enough_rows(counts: dict[str, int], least: int) -> None:
    told, others = merged(counts, Telling(least, 5))
    assert len(told) <= 5
    assert all(count >= least for count in told.values())
    assert not told or not 0 < others < least
    assert sum(told.values()) + others == sum(counts.values())


@given(st.dictionaries(st.integers(-50, 50).map(float), st.integers(1, 9)), st.integers(1, 12))
def test_grouped_numbers_stand_for_enough_rows(counts: dict[float, int], least: int) -> None:
    sorted_counts = dict(sorted(counts.items()))
    groups = grouped_numbers(sorted_counts, least)
    assert sum(groups.values()) == sum(counts.values())
    assert len(groups) <= 1 or min(groups.values()) >= least
    mean = sum(value * count for value, count in groups.items())
    assert mean == pytest.approx(sum(v * n for v, n in counts.items()), abs=1e-9)
    if least == 1:
        assert groups == sorted_counts


WORDS = st.tuples(st.integers(0, 9), st.one_of(st.text(max_size=20), st.integers(-9, 9)))


@settings(max_examples=30, deadline=None)
@given(st.lists(st.lists(WORDS, max_size=30, unique_by=repr), min_size=2, max_size=5))
def test_words_are_read_from_the_sum_of_tables(sites: list[list[Any]]) -> None:
    salt = bytes(16)
    cells = cells_needed(np.sum([bucket_counts(own, salt) for own in sites], axis=0))
    for _ in range(4):
        total = np.sum([as_numbers(word_table(own, cells, salt)) for own in sites], axis=0)
        found = listed(from_numbers(total), cells, salt)
        if found is not None:
            break
        cells *= 2
    assert found is not None
    due = Counter(repr(word) for own in sites for word in own)
    assert {repr(word): count for word, count in found.items()} == dict(due)


def test_tables_of_exchanged_words_have_the_same_sum() -> None:
    """The server cannot tell which of two sites has which of their words."""
    one, two = [(0, "north"), (1, "rare")], [(0, "south")]
    swapped = [(0, "south"), (1, "rare")], [(0, "north")]
    tables = [sum(word_table(own, 30, b"s") for own in pair) for pair in ((one, two), swapped)]
    np.testing.assert_array_equal(*tables)
