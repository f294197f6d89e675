"""Fixed point: exact sums, exact cancelling, and no silent overflow."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedssca.errors import UserError
from fedssca.methods.algorithm import Message
from fedssca.privacy.sums.fixed_point import RANGE, Layout, from_fixed, to_fixed


@given(st.lists(st.floats(-1e5, 1e5), min_size=1, max_size=20))
def test_a_sum_is_off_by_half_a_unit_an_addend(values: list[float]) -> None:
    total = np.zeros(1, np.uint64)
    for value in values:
        total += to_fixed(np.array([value]), len(values))
    exact = sum(np.longdouble(value) for value in values)
    off = abs(np.longdouble(from_fixed(total)[0]) - exact)
    assert off <= len(values) * 2.0**-41 + 2.0**-52 * abs(exact)  # the last: doubles themselves


@given(st.floats(0.999, 1.001), st.integers(1, 100), st.sampled_from([-1, 1]))
def test_what_could_overflow_is_refused_and_nothing_else(f: float, n: int, sign: int) -> None:
    value = np.array([sign * f * RANGE / n])
    try:
        one = to_fixed(value, n)
    except UserError:
        assert f > 1 - 1e-9
        return
    total = sum((one for _ in range(n)), start=np.zeros(1, np.uint64))
    assert from_fixed(total)[0] == pytest.approx(n * value[0], rel=1e-12)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_is_refused(bad: float) -> None:
    with pytest.raises(UserError, match="not finite"):
        to_fixed(np.array([1.0, bad]), 2)


def test_the_refusal_says_what_is_allowed() -> None:
    """And not the number itself: the server would learn it."""
    with pytest.raises(UserError, match=r"10 parties.*below 838,861") as refused:
        to_fixed(np.array([1e7]), 10)
    assert "1e+07" not in str(refused.value)


def test_trees_go_to_one_vector_and_back() -> None:
    tree = Message({"b": np.float32(2.5)}, [np.arange(6, dtype=np.float32).reshape(2, 3), ()])
    layout = Layout.of(tree)
    vector = layout.pack(tree)
    assert layout.size == len(vector) == 7
    back = layout.unpack(vector)
    assert jax.tree.structure(back) == jax.tree.structure(tree)
    assert [leaf.dtype for leaf in jax.tree.leaves(back)] == [np.float32] * 2
    np.testing.assert_array_equal(back.vectors[0], tree.vectors[0])
    with pytest.raises(ValueError, match="expected are"):
        layout.pack(Message({"b": np.float32(1)}, [np.zeros((3, 2)), ()]))
    with pytest.raises(ValueError, match="expected are"):
        layout.unpack(np.zeros(8))
