"""The words that sites use, joined by a sum that hides whose they are.

A word is a value of a column, such as (3, "north"). Each site puts its words into a table, the
tables are added up under masks, and the words of all sites are read from the sum (an invertible
Bloom lookup table, Goodrich and Mitzenmacher 2011). A word adds

    1, its bytes as numbers of 40 bits, and 40 bits of its hash

to three cells that its hash chooses. A cell of the sum that holds c copies of one word, and no
other, shows the word when it is divided by c. Taking the word out of its other cells leaves more
such cells. The sum depends only on how many sites have each word. So the server learns these
numbers and nothing else: exchanging the words of any two sites changes no number that it sees.

The size of the table follows from a first sum: each word adds 1 to one of `BUCKETS` counters, and
the share of counters that stay 0 tells how many different words there are.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from hashlib import sha256
from typing import Any, TypeAlias

import numpy as np

__all__ = [
    "BUCKETS",
    "Word",
    "as_numbers",
    "bucket_counts",
    "cells_needed",
    "fits",
    "from_numbers",
    "listed",
    "table_size",
    "word_table",
]

Word: TypeAlias = tuple[int, Any]
"""The number of a column, and a value: text, a number, true or false."""

BITS = 40
"""The number of bits of one addend; sums of fewer than 2^13 addends are exact in doubles."""
LENGTH = 100
"""The number of bytes of a word in the table."""
LIMBS = LENGTH * 8 // BITS
WIDTH = LIMBS + 2
"""The numbers of one cell: how many words, their bytes, their hashes."""
BUCKETS = 4096
HASHES = 3


def as_numbers(integers: np.ndarray) -> np.ndarray:
    """Integers as numbers whose fixed-point form is exact: k becomes k 2^-40."""
    return np.asarray(integers, np.float64) * 2.0**-BITS


def from_numbers(numbers: np.ndarray) -> np.ndarray:
    """The integers of a sum of such numbers."""
    return np.rint(np.asarray(numbers, np.float64) * 2.0**BITS).astype(np.int64)


def fits(value: Any) -> bool:
    """Whether a value is short enough for a word."""
    return len(_text(value)) <= LENGTH - 3


def bucket_counts(words: Iterable[Word], salt: bytes) -> np.ndarray:
    """How many words fall into each bucket."""
    out = np.zeros(BUCKETS, np.int64)
    for word in words:
        out[int.from_bytes(_hash(salt, _packed(word))[:8]) % BUCKETS] += 1
    return out


def cells_needed(buckets: np.ndarray) -> int:
    """The number of cells of a table for so many different words, from the sum of the buckets.

    If z of n buckets stay empty, there are about n log(n / z) different words. A table of three
    hashes needs 1.23 cells per word; here it has at least 1.6.
    """
    empty = int((buckets == 0).sum())
    words = -BUCKETS * math.log(empty / BUCKETS) if empty else float(buckets.sum())
    return HASHES * math.ceil((1.6 * words + 30) / HASHES)


def table_size(cells: int) -> int:
    """The number of numbers in a table of so many cells."""
    return cells * WIDTH


def word_table(words: Iterable[Word], cells: int, salt: bytes) -> np.ndarray:
    """The table of a site's words."""
    table = np.zeros((cells, WIDTH), np.int64)
    for word in words:
        data = _packed(word)
        table[_places(salt, data, cells)] += _row(salt, data)
    return table.ravel()


def listed(total: np.ndarray, cells: int, salt: bytes) -> dict[Word, int] | None:
    """The words in a sum of tables, and how many sites have each; None if it is too small."""
    table = total.reshape(cells, WIDTH).copy()
    found: dict[Word, int] = {}
    waiting = list(range(cells))
    while waiting:
        place = waiting.pop()
        count = int(table[place, 0])
        data = _pure(table[place], count)
        if data is None:
            continue
        places, row = _places(salt, data, cells), _row(salt, data)
        if place not in places or not np.array_equal(table[place], count * row):
            continue
        table[places] -= count * row
        found[_unpacked(data)] = count
        waiting += places
    return None if table.any() else found


def _pure(cell: np.ndarray, count: int) -> bytes | None:
    """The bytes of the only word in a cell that holds `count` copies of it, if they are whole."""
    if count < 1 or (cell % count).any():
        return None
    limbs = (cell[1:-1] // count).tolist()
    if not all(0 <= limb < 2**BITS for limb in limbs):
        return None
    return b"".join(limb.to_bytes(BITS // 8) for limb in limbs)


def _row(salt: bytes, data: bytes) -> np.ndarray:
    step = BITS // 8
    limbs = [int.from_bytes(data[at : at + step]) for at in range(0, LENGTH, step)]
    check = int.from_bytes(_hash(salt, data)[-step:])
    return np.array([1, *limbs, check], np.int64)


def _places(salt: bytes, data: bytes, cells: int) -> list[int]:
    """One cell in each third of the table."""
    mixed, third = _hash(salt, data), cells // HASHES
    parts = (int.from_bytes(mixed[8 * k : 8 * k + 8]) for k in range(HASHES))
    return [k * third + part % third for k, part in enumerate(parts)]


def _hash(salt: bytes, data: bytes) -> bytes:
    return sha256(salt + data).digest()


def _packed(word: Word) -> bytes:
    column, text = word[0], _text(word[1])
    head = column.to_bytes(2) + len(text).to_bytes(1)
    return (head + text).ljust(LENGTH, b"\0")


def _unpacked(data: bytes) -> Word:
    return int.from_bytes(data[:2]), json.loads(data[3 : 3 + data[2]])


def _text(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode()
