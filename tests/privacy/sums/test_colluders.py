"""How many colluders a secure sum survives, and that the page for users says the same."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pytest

pytest.importorskip("cryptography")
from fedssca.privacy.sums.graph import Rules
from fedssca.privacy.sums.table import COUNTS, lines

DOCS = Path(__file__).parents[3] / "docs" / "secure-sums.md"


def test_the_page_has_the_table_of_the_code() -> None:
    assert "\n".join(lines()) in DOCS.read_text()


@pytest.mark.parametrize("count", range(2, 33))
def test_one_colluder_more_would_be_too_many(count: int) -> None:
    """By trying all ways to divide honest witnesses, who see all others, into two views."""
    rules = Rules(b"run", count)

    def broken(colluders: int) -> bool:
        if rules.least - colluders < 2:
            return True
        for members in range(rules.least, count + 1):
            quorum, honest = rules.quorum(members), rules.witnesses(members) - colluders
            two_views = any(
                one + colluders >= quorum and other + colluders >= quorum
                for one, other in product(range(honest + 1), repeat=2)
                if one + other <= honest
            )
            if two_views or colluders >= rules.shares(members):
                return True
        return False

    most = rules.colluders()
    assert most == 0 or not broken(most)
    assert broken(most + 1)


def test_on_a_circle_two_gaps_cut_it() -> None:
    for count in (n for n in COUNTS if n > 32):
        rules = Rules(b"run", count)
        assert 2 * rules.shares(count) - rules.degree(count) > rules.colluders()
