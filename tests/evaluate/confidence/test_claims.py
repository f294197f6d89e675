"""Claims about one mean, a gap and a group against all rows: how often wrong ones pass, exactly."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import multinomial

from fedssca.evaluate.confidence.claims import Claim, claim_bound, claim_p_value
from fedssca.evaluate.confidence.evidence import Evidence

DELTA = 0.1


def counted(weights: list[float], hits: list[float], rows: list[float]) -> Evidence:
    nothing = np.zeros((len(rows), 2, 3))
    arrays = (np.array(values, float) for values in (weights, hits, rows))
    return Evidence(*arrays, nothing, nothing, 1.0, counted=True)


@pytest.mark.parametrize("sign", [1.0, -1.0])
@pytest.mark.parametrize("limit", [0.3, -0.15])
def test_a_group_against_all_rows(sign: float, limit: float) -> None:
    """All counts of (group, hit) of 9 rows, for populations in which the claim is just wrong."""
    rows = 9
    cells = [
        (a, b, c, rows - a - b - c)
        for a in range(rows + 1)
        for b in range(rows + 1 - a)
        for c in range(rows + 1 - a - b)
    ]
    claim = Claim(sign, limit, DELTA, whole=True)
    p_values = np.array(
        [
            claim_p_value(claim, counted([1.0, -1.0], [a, a + c], [a + b, rows]))
            for a, b, c, _ in cells
        ]
    )
    assert (p_values <= DELTA).any() == (limit > 0)  # 9 rows are too few for a negative limit
    for share in (0.2, 0.5, 0.7):
        apart = limit / (1 - share) * sign  # p_group - p_rest on the limit
        for rest in np.linspace(max(0, -apart), min(1, 1 - apart), 5):
            group = rest + apart
            if not 0 <= group <= 1:
                continue
            chances = [share * group, share * (1 - group)]
            chances += [(1 - share) * rest, (1 - share) * (1 - rest)]
            found = multinomial.pmf(np.array(cells), rows, chances)
            assert found[p_values <= DELTA].sum() <= DELTA


def test_values_of_unknown_range_are_never_claimed() -> None:
    """A user's function with values 0 and 10 is no rate, however small the values in between."""
    seen = counted([1.0], [3.0], [1000.0])._replace(counted=False)
    claim = Claim(1.0, 0.5, DELTA)
    assert claim_p_value(claim, seen) == 1
    assert claim_bound(claim, seen) == np.inf
    assert claim_p_value(claim, seen._replace(counted=True)) < DELTA


def test_the_bound_is_the_smallest_limit_that_passes() -> None:
    for weights, hits, rows in (([1.0], [4.0], [80.0]), ([1.0, -1.0], [9.0, 5.0], [40.0, 60.0])):
        claim, seen = Claim(1.0, 0.0, DELTA), counted(weights, hits, rows)
        bound = claim_bound(claim, seen)
        assert claim_p_value(claim._replace(limit=bound), seen) <= DELTA
        assert claim_p_value(claim._replace(limit=bound - 2e-3), seen) > DELTA
