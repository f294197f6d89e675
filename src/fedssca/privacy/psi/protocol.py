"""Private set intersection: the ids that all parties have, and nothing about the other ids.

Party i of I has ids X_i and a secret number k_i. H maps an id to a point of the group ristretto255
(SHA-512, then the map of the group). Each set goes once around the ring of parties, and each party
multiplies its points by its secret number:

    H(x)  ->  k_1 H(x)  ->  k_2 k_1 H(x)  ->  ...  ->  E(x) = k_1 k_2 ... k_I H(x)

The order of the numbers does not matter, so E(x) does not depend on the set from which x came, and
the sets are compared as sets of E(x). Computing E of a guessed id needs the numbers of all I
parties. So neither the place where the sets are compared, nor that place together with all parties
but one, can test a guess. With two parties this is the protocol of Meadows and of Huberman,
Franklin and Hogg.

A set is sent in the order of the bytes of its points, which says nothing about ids or rows. The
other parties keep this order, so the owner finds its rows again by their positions.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import numpy as np

from fedssca.data.dataset import Array
from fedssca.privacy import require_privacy
from fedssca.rounds.codec import InvalidMessage
from fedssca.system import cores

__all__ = [
    "PsiParty",
    "Tick",
    "check_points",
    "common_positions",
    "intersect",
    "multiplications",
    "rows_by_part",
    "tagged_ids",
]

SIZE = 32
"""The number of bytes of a point, and of a secret number."""
CHUNK = 500
"""The number of points that a thread multiplies at a time."""
DOMAIN = b"fedssca psi 1\0"
Tick = Callable[[int], None]
"""A function that is called with the number of multiplications that were done."""


def _silent(count: int) -> None:
    del count


class PsiParty:
    """One party: its ids, its secret number, and the order in which it sends its points."""

    def __init__(self, ids: Sequence[str], key: bytes = b"", order: Array | None = None) -> None:
        """Start an alignment, or continue the one that has this `key` and `order`."""
        self.ids = ids
        self.key = key or _group().crypto_core_ristretto255_scalar_random()
        self.order = np.empty(0, np.int64) if order is None else order

    def encrypt_own(self, tick: Tick = _silent) -> Array:
        """Return k H(x) of all own ids, sorted: what the next party receives."""
        group = _group()

        def point(name: bytes) -> bytes:
            bare = group.crypto_core_ristretto255_from_hash(hashlib.sha512(DOMAIN + name).digest())
            return group.crypto_scalarmult_ristretto255(self.key, bare)

        points = _each(point, [name.encode() for name in self.ids], tick)
        self.order = _sorted(points)
        return points[self.order]

    def encrypt(self, points: Array, tick: Tick = _silent) -> Array:
        """Return k P for each point P of another party's set, in the same order."""
        data = check_points(points).tobytes()
        pieces = [data[at : at + SIZE] for at in range(0, len(data), SIZE)]
        return _each(partial(_group().crypto_scalarmult_ristretto255, self.key), pieces, tick)

    def rows_at(self, positions: Array) -> Array:
        """Return the own rows at these positions of the sent set, in the order of their ids."""
        count = len(self.order)
        if positions.ndim != 1 or positions.dtype.kind != "i":
            raise InvalidMessage("positions of common ids are whole numbers")
        if len(positions) and not (positions.min() >= 0 and positions.max() < count):
            raise InvalidMessage(f"positions of common ids lie outside 0 to {count - 1}")
        if len(np.unique(positions)) != len(positions):
            raise InvalidMessage("a position of a common id comes twice")
        found = sorted(self.order[positions].tolist(), key=lambda row: self.ids[row])
        return np.array(found, np.int64)


def common_positions(sets: Sequence[Array]) -> list[Array]:
    """Return the positions of the common E(x) in each set, in one order for all sets."""
    places = []
    for points in sets:
        data = check_points(points, valid=True).tobytes()
        places.append({data[at : at + SIZE]: at // SIZE for at in range(0, len(data), SIZE)})
    common = sorted(set(places[0]).intersection(*places[1:]))
    return [np.array([own[point] for point in common], np.int64) for own in places]


def intersect(sets: Sequence[Sequence[str]], tick: Tick = _silent) -> list[Array]:
    """Run the whole protocol here: return each party's common rows, in the order of the ids."""
    parties = [PsiParty(ids) for ids in sets]
    count = len(parties)
    travelling = [party.encrypt_own(tick) for party in parties]
    for hop in range(1, count):
        travelling = [
            parties[(owner + hop) % count].encrypt(points, tick)
            for owner, points in enumerate(travelling)
        ]
    found = common_positions(travelling)
    return [party.rows_at(positions) for party, positions in zip(parties, found, strict=True)]


def tagged_ids(parts: Mapping[str, Sequence[str]]) -> list[str]:
    """Return the ids of several parts as one set: ids of different parts never match."""
    return [f"{part}\0{name}" for part, ids in parts.items() for name in ids]


def rows_by_part(parts: Mapping[str, Sequence[str]], rows: Array) -> dict[str, Array]:
    """Return rows of the set from `tagged_ids` as rows of each part, in the same order."""
    found, start = {}, 0
    for part, ids in parts.items():
        end = start + len(ids)
        found[part] = rows[(rows >= start) & (rows < end)] - start
        start = end
    return found


def multiplications(sizes: Sequence[int]) -> int:
    """Return the number of multiplications of all parties."""
    return len(sizes) * sum(sizes)


def check_points(points: Any, count: int | None = None, valid: bool = False) -> Array:
    """Return a set of points as it was sent, or raise a InvalidMessage.

    With `valid` every point is checked. Multiplication checks it otherwise.
    """
    if not isinstance(points, np.ndarray) or points.dtype != np.uint8 or points.ndim != 2:
        raise InvalidMessage("a set of points is an array of bytes, one row per point")
    if points.shape[1] != SIZE:
        raise InvalidMessage(f"a point has {SIZE} bytes, these have {points.shape[1]}")
    if count is not None and len(points) != count:
        raise InvalidMessage(f"{len(points)} points came back, {count} were sent")
    order = _sorted(points)
    if (points[order[1:]] == points[order[:-1]]).all(axis=1).any():
        raise InvalidMessage("a point comes twice in a set")
    if valid:
        check = _group().crypto_core_ristretto255_is_valid_point
        if not all(point.any() and check(point.tobytes()) for point in points):
            raise InvalidMessage("bytes in a set are no point of the group")
    return points


def _each(function: Callable[[bytes], bytes], pieces: Sequence[bytes], tick: Tick) -> Array:
    """Apply `function` to all pieces on all cores; the library releases Python's lock."""
    chunks = [pieces[at : at + CHUNK] for at in range(0, len(pieces), CHUNK)]
    pool = ThreadPoolExecutor(len(cores()))
    done = []
    try:
        for chunk in pool.map(lambda some: b"".join(map(function, some)), chunks):
            done.append(chunk)
            tick(len(chunk) // SIZE)
    except RuntimeError:
        raise InvalidMessage("bytes in a set are no point of the group") from None
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
    return np.frombuffer(b"".join(done), np.uint8).reshape(-1, SIZE)


def _sorted(points: Array) -> Array:
    words = np.ascontiguousarray(points).view(">u8")
    return np.lexsort(words.T[::-1])


def _group() -> Any:
    require_privacy("rbcl")
    import rbcl

    return rbcl
