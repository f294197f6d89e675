"""A lying server asks a hidden census to count words of its own.

Who attacks: the server, which lays out the sums of the census and names the words that are counted.
What it wants: how many patients of a clinic have a certain name, or a rare diagnosis. It therefore
names words that no site told. What stops it: a site counts the words that enough of its own rows
have, and none besides, whatever the server names; rows with other words count as others. Where a
limit needs the rows of a group, a group of few rows is refused.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedssca.deploy.census import question
from fedssca.deploy.site.hidden_census import HiddenCensus
from fedssca.deploy.site.raw_table import read_raw_table, read_source
from fedssca.deploy.site.refusal import LimitRefused
from fedssca.deploy.site.rows import SiteRows
from fedssca.deploy.totals import CensusLayout, SiteTotals
from fedssca.deploy.words import from_numbers
from fedssca.errors import UserError
from fedssca.rounds.aggregate import in_clear
from fedssca.rounds.codec import Envelope, InvalidMessage, note
from fedssca.run.config import parse
from tests.attacks.clinic import BASE, HIDDEN, clinics
from tests.deploy.loopback import RUN

PARITY = "problem.constraint=[{kind='parity', column='ward', limit=0.1, positive='ill'}]"
RARE, NEVER, OFTEN = "quarantine", "moon", "north"
"""A ward of four patients, a ward that is none, and a large one."""


def site(folder: Path, settings: list[str]) -> tuple[HiddenCensus, SiteRows]:
    """The first clinic, without masks, so that its own numbers can be seen."""
    file = clinics(folder, rows=600)[0]
    lines = (folder / "0.csv").read_text().splitlines()
    for k in range(1, 5):
        cells = lines[k].split(",")
        lines[k] = ",".join([*cells[:2], RARE, *cells[3:]])
    (folder / "0.csv").write_text("\n".join(lines) + "\n")
    source, asked = read_source(file), question(parse(BASE, [HIDDEN, *settings]), RUN.hex())
    rows = SiteRows(read_raw_table(source, asked["label"]), asked, source.limits)
    return HiddenCensus(rows, asked, RUN, in_clear.client(0)), rows


def counted(census: HiddenCensus, rows: SiteRows, **told: Any) -> SiteTotals:
    """What the site adds where the server asks for numbers about these words."""
    request = {"step": "numbers", "labels": ["ill", "well"], "groups": {}, "words": {}} | told
    said = census.answer(Envelope("census/reply", RUN, 0, note(request)))
    words = {name: request["words"].get(name, []) for name in rows.summaries()}
    sizes = [2, *map(len, request["groups"].values())] if request["groups"] else []
    layout = CensusLayout(words, sizes, False)
    (numbers,) = said.values()
    return layout.unpack(from_numbers(np.asarray(numbers)), rows.sizes[0], 1)


def test_words_that_few_rows_have_are_not_counted(tmp_path: Path) -> None:
    census, rows = site(tmp_path, [])
    names = [name for name in (tmp_path / "0.csv").read_text().split() if "," not in name]
    asked = {"ward": [OFTEN, RARE, NEVER], "name": ["Ada Ek 0", *names]}
    found = counted(census, rows, words=asked).summaries
    assert set(found["ward"].counts) == {OFTEN}
    assert found["ward"].counts[OFTEN] >= 10
    assert not found["name"].counts
    assert RARE not in {word for _, word in census.words()}


def test_asking_for_one_word_less_tells_no_rare_one(tmp_path: Path) -> None:
    """What is left of the rows is a number about at least ten of them, or about none."""
    for words in ([], [OFTEN], [OFTEN, "south"], [OFTEN, "south", RARE]):
        census, rows = site(tmp_path, [])
        ward = counted(census, rows, words={"ward": words}).summaries["ward"]
        left = rows.sizes[0] - ward.missing - sum(ward.counts.values())
        assert left == 0 or left >= 10


@pytest.mark.parametrize("kinds", [[OFTEN, "south", RARE], [RARE, "other"], [RARE]])
def test_groups_of_few_rows_are_refused(kinds: list[str], tmp_path: Path) -> None:
    census, rows = site(tmp_path, [PARITY])
    with pytest.raises(UserError) as refused:
        counted(census, rows, groups={"ward": kinds})
    assert isinstance(refused.value, LimitRefused) or "limits.least_rows" in str(refused.value)
    assert RARE not in str(refused.value)


def test_a_census_has_so_many_sums_and_no_more(tmp_path: Path) -> None:
    """Otherwise a server would ask for one word after the other."""
    census, rows = site(tmp_path, [])
    for _ in range(8):
        counted(census, rows)
    with pytest.raises(InvalidMessage, match="at most 8 sums"):
        counted(census, rows)
