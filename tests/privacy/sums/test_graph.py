"""The graph of masks: regular, symmetric, the same for all, and chosen by nobody."""

from __future__ import annotations

import pytest

pytest.importorskip("cryptography")
from fedssca.privacy.sums.graph import Rules


@pytest.mark.parametrize(
    ("count", "wanted", "degree"), [(3, 0, 2), (32, 0, 31), (100, 0, 40), (100, 7, 8), (9, 8, 8)]
)
def test_every_member_has_as_many_neighbours(count: int, wanted: int, degree: int) -> None:
    rules = Rules(b"run", count, wanted)
    graph = rules.graph(range(0, 2 * count, 2))
    near = {who: graph.neighbours(who) for who in range(0, 2 * count, 2)}
    for who, others in near.items():
        assert len(set(others)) == degree
        assert who not in others
        assert all(who in near[other] for other in others)
    assert graph == rules.graph(reversed(range(0, 2 * count, 2)))
    if degree < count - 1:
        assert graph.order != Rules(b"other", count, wanted).graph(range(0, 2 * count, 2)).order
        fewer = rules.graph(range(0, 2 * count - 2, 2)).order
        assert fewer == tuple(who for who in graph.order if who != 2 * count - 2)


@pytest.mark.parametrize("threshold", [0.0, 0.51, 0.8, 1.0])
@pytest.mark.parametrize("count", [2, 3, 4, 10, 33, 100])
def test_two_groups_of_share_holders_always_meet(count: int, threshold: float) -> None:
    rules = Rules(b"run", count, 0, threshold)
    assert 2 * rules.shares(count) > rules.degree(count)
    assert rules.degree(count) >= rules.shares(count) >= 2 / 3 * rules.degree(count) - 1e-6
    assert rules.shares(count) + 1 >= threshold * (rules.degree(count) + 1) - 1e-6
    assert rules.witnesses(count) >= rules.quorum(count) >= 2 / 3 * rules.witnesses(count) - 1e-6
    assert rules.least >= max(2, threshold * count - 1e-6)


def test_thin_neighbourhoods_are_found() -> None:
    graph = Rules(b"run", 40, 4, 0.6).graph(range(40))
    assert graph.shares == 3
    at = graph.order.index(0)
    around = [graph.order[(at + step) % 40] for step in (-2, -1)]
    assert 0 in graph.unprotected(set(range(40)) - set(around))
    assert graph.unprotected(range(40)) == []
