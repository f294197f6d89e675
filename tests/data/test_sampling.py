"""Mini-batches: subsets, a function of (seed, round, client) alone, and uniform."""

from __future__ import annotations

from functools import cache

import jax
import numpy as np
import pytest
from scipy import stats

from fedssca.data.sampling import TAIL, batch_indices, drawn_rows, places_for, words

SMALL = [3, 7, 10, 97]


@cache
def compiled(size: int, batch: int, steps: int):
    sizes = np.array([size])
    return jax.jit(lambda seed, t, me: batch_indices(seed, t, me, sizes, batch, steps)[0])


def draw(seed: int, round: int, client: int, size: int, batch: int, steps: int = 1) -> np.ndarray:
    return np.asarray(compiled(size, batch, steps)(words(seed), round, np.array([client])))


def many(seed: int, rounds: int, size: int, batch: int) -> np.ndarray:
    """The batches of rounds 1..rounds, (rounds, batch)."""

    every = jax.jit(jax.vmap(compiled(size, batch, 1), in_axes=(None, 0, None)))
    return np.asarray(every(words(seed), np.arange(1, rounds + 1), np.zeros(1, int)))


@pytest.mark.parametrize("size", [1, 2, 3, 97, 60_000, 1_000_000])
def test_a_batch_is_a_subset_of_the_rows(size: int) -> None:
    batch = min(size, 500)
    for t in (1, 2, 10_000):
        rows = draw(3, t, 0, size, batch)
        assert rows.min() >= 0
        assert rows.max() < size
        assert len(np.unique(rows)) == batch


@pytest.mark.parametrize("size", [1, 3, 10, 1024, 5000])
def test_all_rows_come_once_when_the_batch_is_everything(size: int) -> None:
    assert np.array_equal(np.sort(draw(0, 5, 2, size, size)), np.arange(size))


def test_a_million_rows_are_permuted() -> None:
    rows = draw(1, 1, 0, 1_000_000, 1_000_000)
    assert np.array_equal(np.sort(rows), np.arange(1_000_000))
    assert abs(np.corrcoef(rows, np.arange(1_000_000))[0, 1]) < 5e-3


def test_the_same_name_gives_the_same_batch_and_any_other_a_different_one() -> None:
    base = draw(1, 2, 3, 1000, 50)
    assert np.array_equal(base, draw(1, 2, 3, 1000, 50))
    others = [draw(2, 2, 3, 1000, 50), draw(1, 3, 3, 1000, 50), draw(1, 2, 4, 1000, 50)]
    others.append(draw(1 + (1 << 32), 2, 3, 1000, 50))
    for other in others:
        shared = len(np.intersect1d(base, other))
        assert shared < 15  # 2.5 expected
    assert draw(1, 2, 3, 1000, 20).tolist() == base[:20].tolist()


def test_a_client_draws_the_same_alone_and_among_others_of_other_sizes() -> None:
    sizes = np.array([17, 60_000, 23, 5])
    together = np.asarray(jax.jit(lambda: batch_indices(9, 4, np.arange(4), sizes, 5, 3))())
    assert together.shape == (4, 15)
    for client, size in enumerate(sizes):
        assert np.array_equal(together[client], draw(9, 4, client, size, 5, 3))
        assert together[client].max() < size


@pytest.mark.parametrize(("size", "batch", "steps"), [(12, 4, 3), (13, 4, 3), (100, 10, 7)])
def test_steps_are_disjoint_while_rows_last(size: int, batch: int, steps: int) -> None:
    assert len(np.unique(draw(0, 1, 0, size, batch, steps))) == batch * steps


def test_a_new_pass_begins_when_the_rows_are_used_up() -> None:
    steps = draw(0, 1, 0, 11, 3, 7).reshape(7, 3)  # 3 steps a pass, two rows left out of each
    for step in steps:
        assert len(np.unique(step)) == 3
    assert len(np.unique(steps[0:3])) == len(np.unique(steps[3:6])) == 9
    assert not np.array_equal(steps[0:3], steps[3:6])


@pytest.mark.parametrize("size", SMALL)
def test_every_row_is_included_equally_often(size: int) -> None:
    rounds, batch = 20_000, max(2, size // 3)
    rows, share = many(5, rounds, size, batch), batch / size
    count = np.bincount(rows.ravel(), minlength=size)
    # Inclusions within a round are dependent: the chi-square of sampling without replacement.
    statistic = np.sum((count - rounds * share) ** 2) / (rounds * share * (1 - share))
    assert stats.chi2.sf(statistic * (size - 1) / size, size - 1) > 1e-4


@pytest.mark.long
@pytest.mark.parametrize("size", [*SMALL, 20, 70])
def test_every_ordered_pair_is_drawn_equally_often(size: int) -> None:
    rows = many(11, 100_000, size, 2)
    count = np.bincount(rows[:, 0] * size + rows[:, 1], minlength=size * size)
    pairs = count.reshape(size, size)[~np.eye(size, dtype=bool)]
    assert np.trace(count.reshape(size, size)) == 0
    assert stats.chisquare(pairs).pvalue > 1e-4


def test_successive_rounds_are_independent() -> None:
    first = many(2, 50_000, 10, 1)[:, 0]
    count = np.bincount(first[:-1] * 10 + first[1:], minlength=100)
    assert stats.chisquare(count).pvalue > 1e-4


def test_clients_are_independent() -> None:
    clients = np.arange(50_000)
    drawn = jax.jit(lambda clients: batch_indices(0, 1, clients, np.full(50_000, 10), 1))
    rows = np.asarray(drawn(clients))[:, 0]
    assert stats.chisquare(np.bincount(rows[:-1] * 10 + rows[1:], minlength=100)).pvalue > 1e-4


def test_the_round_may_be_traced() -> None:
    sizes = np.array([40, 30])
    traced = jax.jit(lambda t: batch_indices(6, t, np.arange(2), sizes, 8, 2))
    for t in (1, 2, 77):
        assert np.array_equal(traced(t), batch_indices(6, t, np.arange(2), sizes, 8, 2))


def test_poisson_samples_take_every_row_with_its_own_probability() -> None:
    sizes, batch, rounds = np.array([30, 200]), 10, 2000
    places = places_for(sizes, batch)

    def marks(t: jax.Array) -> jax.Array:
        drawn = drawn_rows(words(5), t, np.arange(2), sizes, batch, 1, places)
        blank = jax.numpy.zeros((2, 200), bool)
        return blank.at[np.arange(2)[:, None], drawn.rows].max(drawn.present)

    seen = np.asarray(jax.jit(jax.vmap(marks))(np.arange(1, rounds + 1)))
    for client, size in enumerate(sizes):
        own, rate = seen[:, client, :size], batch / size
        assert own.mean() == pytest.approx(rate, rel=0.05)
        assert np.abs(own.mean(0) - rate).max() < 5 * np.sqrt(rate * (1 - rate) / rounds)
        spread = np.sqrt(size * rate * (1 - rate))
        assert own.sum(1).std() == pytest.approx(spread, rel=0.1)
    assert not seen[:, 0, 30:].any()


def test_a_batch_has_places_for_nearly_every_sample() -> None:
    for size in (10, 100, 6000):
        places = places_for([size], 10)
        assert stats.binom.sf(places, size, 10 / size) <= TAIL
        assert places <= min(size, 60)
