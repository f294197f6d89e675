"""Private set intersection: which ids all parties have, and nothing about the others.

Party i of I has ids X_i and a secret number k_i. H maps an id to a point of the group ristretto255
(SHA-512, then the group's own map). Each set goes once around the ring of parties, and each party
multiplies its points by its number:

    H(x)  ->  k_1 H(x)  ->  k_2 k_1 H(x)  ->  ...  ->  E(x) = k_1 k_2 ... k_I H(x)

The order of the numbers does not matter, so E(x) is the same from whichever set x came, and sets
meet as sets of E(x). Nobody can compute E of an id that he guesses without all I parties at work:
neither the place where the sets meet, nor all parties but one together with it. (Two parties: this
is the protocol of Meadows and of Huberman, Franklin and Hogg.)

A set is sent sorted by the bytes of its points, an order that says nothing about ids or rows; later
stations keep it, so its owner finds his rows again by position.
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
from fedssca.rounds.codec import WireError
from fedssca.system import cores

__all__ = ["Member", "Tick", "apart", "check_points", "intersect", "meet", "multiplications",
           "together"]  # fmt: skip

SIZE = 32
"""Bytes of a point, and of a secret number."""
CHUNK = 500
DOMAIN = b"fedssca psi 1\0"
Tick = Callable[[int], None]
"""Told how many multiplications were done."""


def _silent(count: int) -> None:
    del count


class Member:
    """One party: its ids, its secret number, and the order in which it sends its points."""

    def __init__(self, ids: Sequence[str], key: bytes = b"", order: Array | None = None) -> None:
        """`key` and `order` of an alignment that goes on; none: a new one begins."""
        self.ids = ids
        self.key = key or _group().crypto_core_ristretto255_scalar_random()
        self.order = np.empty(0, np.int64) if order is None else order

    def open(self, tick: Tick = _silent) -> Array:
        """k H(x) of all own ids, sorted: what the next station gets."""
        group = _group()

        def point(name: bytes) -> bytes:
            bare = group.crypto_core_ristretto255_from_hash(hashlib.sha512(DOMAIN + name).digest())
            return group.crypto_scalarmult_ristretto255(self.key, bare)

        points = _each(point, [name.encode() for name in self.ids], tick)
        self.order = _sorted(points)
        return points[self.order]

    def turn(self, points: Array, tick: Tick = _silent) -> Array:
        """k P for each point P of another's set, in the same order."""
        data = check_points(points).tobytes()
        pieces = [data[at : at + SIZE] for at in range(0, len(data), SIZE)]
        return _each(partial(_group().crypto_scalarmult_ristretto255, self.key), pieces, tick)

    def rows(self, positions: Array) -> Array:
        """The own rows at these places of the sent set, in the order of their ids."""
        count = len(self.order)
        if positions.ndim != 1 or positions.dtype.kind != "i":
            raise WireError("places of common ids are whole numbers")
        if len(positions) and not (positions.min() >= 0 and positions.max() < count):
            raise WireError(f"places of common ids lie outside 0 to {count - 1}")
        if len(np.unique(positions)) != len(positions):
            raise WireError("a place of a common id comes twice")
        found = sorted(self.order[positions].tolist(), key=lambda row: self.ids[row])
        return np.array(found, np.int64)


def meet(sets: Sequence[Array]) -> list[Array]:
    """Where in each set of E(x) the common ones are, in one order for all."""
    places = []
    for points in sets:
        data = check_points(points, valid=True).tobytes()
        places.append({data[at : at + SIZE]: at // SIZE for at in range(0, len(data), SIZE)})
    common = sorted(set(places[0]).intersection(*places[1:]))
    return [np.array([own[point] for point in common], np.int64) for own in places]


def intersect(sets: Sequence[Sequence[str]], tick: Tick = _silent) -> list[Array]:
    """The whole protocol in one place: for each party its common rows, in the order of the ids."""
    members = [Member(ids) for ids in sets]
    count = len(members)
    travelling = [member.open(tick) for member in members]
    for hop in range(1, count):
        travelling = [
            members[(owner + hop) % count].turn(points, tick)
            for owner, points in enumerate(travelling)
        ]
    found = meet(travelling)
    return [member.rows(places) for member, places in zip(members, found, strict=True)]


def together(parts: Mapping[str, Sequence[str]]) -> list[str]:
    """The ids of several parts as one set: an id for training meets only ids for training."""
    return [f"{part}\0{name}" for part, ids in parts.items() for name in ids]


def apart(parts: Mapping[str, Sequence[str]], rows: Array) -> dict[str, Array]:
    """Rows of `together` as rows of each part, in the same order."""
    found, start = {}, 0
    for part, ids in parts.items():
        end = start + len(ids)
        found[part] = rows[(rows >= start) & (rows < end)] - start
        start = end
    return found


def multiplications(sizes: Sequence[int]) -> int:
    """How many multiplications all parties do together."""
    return len(sizes) * sum(sizes)


def check_points(points: Any, count: int | None = None, valid: bool = False) -> Array:
    """A set as it travels, or a WireError. `valid`: nobody will multiply these, so look at each."""
    if not isinstance(points, np.ndarray) or points.dtype != np.uint8 or points.ndim != 2:
        raise WireError("a set of points is an array of bytes, one row a point")
    if points.shape[1] != SIZE:
        raise WireError(f"a point has {SIZE} bytes, these have {points.shape[1]}")
    if count is not None and len(points) != count:
        raise WireError(f"{len(points)} points came back, {count} were sent")
    order = _sorted(points)
    if (points[order[1:]] == points[order[:-1]]).all(axis=1).any():
        raise WireError("a point comes twice in a set")
    if valid:
        check = _group().crypto_core_ristretto255_is_valid_point
        if not all(point.any() and check(point.tobytes()) for point in points):
            raise WireError("bytes in a set are no point of the group")
    return points


def _each(function: Callable[[bytes], bytes], pieces: Sequence[bytes], tick: Tick) -> Array:
    """All pieces through `function`, on all cores: the group's library lets other threads run."""
    chunks = [pieces[at : at + CHUNK] for at in range(0, len(pieces), CHUNK)]
    pool = ThreadPoolExecutor(len(cores()))
    done = []
    try:
        for chunk in pool.map(lambda some: b"".join(map(function, some)), chunks):
            done.append(chunk)
            tick(len(chunk) // SIZE)
    except RuntimeError:
        raise WireError("bytes in a set are no point of the group") from None
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
