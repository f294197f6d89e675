"""Short integers in a masked sum: exact in words of 16 or 32 bits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fedssca.errors import UserError
from fedssca.privacy.sums.sum_layout import SumLayout

pytest.importorskip("cryptography")
from tests.privacy.parties import MaskedSums


def message(rng: np.random.Generator, kind: Any, size: int = 1000) -> dict[str, np.ndarray]:
    most = np.iinfo(kind).max
    return {
        "few": rng.integers(-most, most + 1, size).astype(kind),
        "real": rng.normal(size=(2, 3)),
        "rows": rng.integers(-most, most + 1, (2, 5)).astype(kind),
    }


@pytest.mark.parametrize(
    ("kind", "clients", "word"),
    [
        (np.int8, 2, np.uint16),
        (np.int8, 258, np.uint16),
        (np.int8, 259, np.uint32),
        (np.int16, 10, np.uint32),
        (np.int16, 70_000, np.uint64),
    ],
)
def test_words_are_long_enough(kind: Any, clients: int, word: Any) -> None:
    like = message(np.random.default_rng(0), kind, 3)
    layout = SumLayout.of(like)
    assert layout.word(clients) == word
    assert layout.bytes(clients) == 8 * 6 + 13 * np.dtype(word).itemsize
    worst = {name: np.full_like(value, np.iinfo(kind).max) for name, value in like.items()}
    worst["real"] = like["real"]
    packed = layout.pack(worst, clients)
    total = {name: np.zeros_like(value) for name, value in packed.items()}
    total["short"] += packed["short"] * np.asarray(clients, word)
    assert (layout.unpack(total)["few"] == clients * int(np.iinfo(kind).max)).all()


@pytest.mark.parametrize("kind", [np.int8, np.int16])
def test_the_masked_sum_is_the_plain_sum(kind: Any) -> None:
    rng = np.random.default_rng(1)
    own = [message(rng, kind) for _ in range(4)]
    table = MaskedSums(own)
    found = table.gather().total
    for name in ("few", "rows"):
        plain = sum(each[name].astype(np.int64) for each in own)
        np.testing.assert_array_equal(found[name], plain)
    np.testing.assert_allclose(found["real"], sum(each["real"] for each in own), atol=1e-10)
    table.gone = {"reply": {3}}
    rest = table.gather().total
    np.testing.assert_array_equal(
        rest["few"], sum(each["few"].astype(np.int64) for each in own[:3])
    )


def test_an_integer_outside_the_range_is_refused() -> None:
    layout = SumLayout.of({"few": np.zeros(3, np.int8)})
    with pytest.raises(UserError, match="too large for a sum in few bits"):
        layout.pack({"few": np.array([0, -128, 1], np.int8)}, 2)
