"""Arrays that programs read where they lie."""

from __future__ import annotations

from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest

from fedssca.data.arrays import aligned
from fedssca.data.memory import on_device, summed


@pytest.mark.parametrize("shape", [(7,), (5, 3), (0, 4)])
def test_aligned_holds_the_same_numbers(shape: tuple[int, ...]) -> None:
    array = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    for given in (array, array[1:], array[::2]):
        placed = aligned(given)
        assert np.array_equal(placed, given)
        assert placed.dtype == given.dtype
        assert not placed.size or placed.ctypes.data % 64 == 0
    assert aligned(placed) is placed


def test_aligned_and_mapped_arrays_are_not_copied(tmp_path: Path) -> None:
    array = aligned(np.arange(1000, dtype=np.uint8))
    np.save(tmp_path / "a.npy", array)
    mapped = np.load(tmp_path / "a.npy", mmap_mode="r")
    for column in (array, mapped):
        there = on_device({"a": column})["a"]
        assert there.unsafe_buffer_pointer() == column.ctypes.data
        assert int(there.astype(jnp.int32).sum()) == int(array.sum(dtype=int))


def test_summed() -> None:
    parts = {"a": jnp.arange(12.0).reshape(4, 3)}
    total = summed(lambda part: {"b": 2 * part["a"]}, parts)
    assert np.array_equal(total["b"], 2 * parts["a"].sum(axis=0))
