"""Which client holds which rows (horizontal) or which columns (vertical)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedssca.data.dataset import Array
from fedssca.data.encode.targets import as_strata
from fedssca.errors import UserError, nearest

__all__ = ["Columns", "Rows", "by_feature", "by_owner", "by_sample"]


@dataclass(frozen=True)
class Rows:
    """Clients that hold different rows: client i has offsets[i] : offsets[i] + sizes[i].

    With `order`, client i has the rows order[offsets[i] : offsets[i] + sizes[i]]. So data can be
    split without being moved, even on disk.
    """

    columns: dict[str, Array]
    sizes: tuple[int, ...]
    order: Array | None = None
    """(total,) int32 row numbers, client by client, without the rows that no client holds."""
    names: tuple[str, ...] = ()
    """The names of the clients; empty: they have numbers only."""

    def __post_init__(self) -> None:
        if not self.sizes or min(self.sizes) < 1:
            raise UserError(f"client sizes are {list(self.sizes)}; each client needs a row")
        stored = {len(values) for values in self.columns.values()}
        held = stored if self.order is None else {len(self.order)}
        if held != {self.total} or len(stored) != 1:
            raise UserError(
                f"columns {', '.join(self.columns)} have {sorted(stored)} rows, {sorted(held)} of "
                f"them held by clients; sizes sum to {self.total}"
            )

    @property
    def count(self) -> int:
        """The number of clients."""
        return len(self.sizes)

    @property
    def total(self) -> int:
        """The number of rows of all clients together."""
        return sum(self.sizes)

    @property
    def offsets(self) -> tuple[int, ...]:
        """The first row of each client."""
        return tuple(int(o) for o in np.cumsum((0, *self.sizes[:-1])))

    def client(self, i: int) -> dict[str, Array]:
        """Return the rows of client i: views, or copies if there is an `order`."""
        _in_range(i, self.count, "client")
        start = int(sum(self.sizes[:i]))
        own: Any = slice(start, start + self.sizes[i])
        own = own if self.order is None else self.order[own]
        return {name: v[own] for name, v in self.columns.items()}

    def rows_of(self, i: int) -> Array:
        """Return the numbers of the stored rows that client i holds, in its order."""
        _in_range(i, self.count, "client")
        own = np.arange(self.offsets[i], self.offsets[i] + self.sizes[i])
        return own if self.order is None else self.order[own]

    def owners(self) -> Array:
        """Return for each stored row the number of its client, -1 if no client holds it."""
        numbers = np.repeat(np.arange(self.count, dtype=np.int32), self.sizes)
        if self.order is None:
            return numbers
        owner = np.full(len(next(iter(self.columns.values()))), -1, np.int32)
        owner[self.order] = numbers
        return owner

    def beside(self) -> dict[str, Array]:
        """Return all columns but x, of all rows that a client holds."""
        rest = {name: v for name, v in self.columns.items() if name != "x"}
        return rest if self.order is None else {name: v[self.order] for name, v in rest.items()}

    @classmethod
    def of(cls, parts: Sequence[Mapping[str, Array]]) -> Rows:
        """Join the columns of clients, given as one mapping per client."""
        if not parts or not parts[0]:
            raise UserError("there are no clients; give the columns of at least one")
        first = parts[0]
        for i, part in enumerate(parts):
            if set(part) != set(first) or len({len(v) for v in part.values()}) != 1:
                raise UserError(f"client {i} should have {sorted(first)}, equal in rows")
            for name, v in part.items():
                if (v.shape[1:], v.dtype) != (first[name].shape[1:], first[name].dtype):
                    raise UserError(f"client {i}: column {name!r} should be shaped as client 0's")
        sizes = tuple(len(next(iter(part.values()))) for part in parts)
        return cls({name: np.concatenate([p[name] for p in parts]) for name in first}, sizes)


@dataclass(frozen=True)
class Columns:
    """Clients that hold different columns: client i has the features blocks[i] of all rows."""

    columns: dict[str, Array]
    blocks: tuple[Array, ...]
    """Integer arrays that are a partition of range(P)."""
    label_holder: int | None = None
    """The only party that knows the labels; None if every party knows them."""
    collection: str = "exchange"
    """ "exchange": h_i are sent to the other parties; "open": h_i and dh_i/dw_i to the server."""

    def __post_init__(self) -> None:
        width = self.columns["x"].shape[1]
        joined = np.concatenate(self.blocks) if self.blocks else np.zeros(0, int)
        if not np.array_equal(np.sort(joined), np.arange(width)) or not all(map(len, self.blocks)):
            raise UserError(f"each of the {width} features should be in one block, no block empty")
        if self.collection not in ("exchange", "open"):
            raise UserError(f'collection = {self.collection!r}; it should be "exchange" or "open"')
        if self.label_holder is not None:
            _in_range(self.label_holder, self.count, "label_holder")

    @property
    def count(self) -> int:
        """The number of clients."""
        return len(self.blocks)

    @property
    def total(self) -> int:
        """The number of rows, which all clients have."""
        return len(self.columns["x"])

    def beside(self) -> dict[str, Array]:
        """Return all columns but x."""
        return {name: v for name, v in self.columns.items() if name != "x"}

    def client(self, i: int) -> dict[str, Array]:
        """Return the features of client i, and the other columns if it knows the labels."""
        _in_range(i, self.count, "client")
        block = self.blocks[i]
        start, stop = int(block[0]), int(block[0]) + len(block)
        plain = np.array_equal(block, np.arange(start, stop))
        held = {"x": self.columns["x"][:, slice(start, stop) if plain else block]}
        if self.label_holder in (None, i):
            held |= {name: v for name, v in self.columns.items() if name != "x"}
        return held


def by_sample(
    columns: Mapping[str, Array],
    clients: int,
    partition: str = "iid",
    seed: int = 0,
    concentration: float = 0.5,
    sizes: Sequence[float] | None = None,
    minimum: int = 1,
    classes_per_client: int = 2,
) -> Rows:
    """Split the rows among clients, without a copy.

    `partition` is "iid" (at random), "contiguous" (in their order), "dirichlet" (label skew: the
    rows of each label are divided in Dirichlet(concentration) proportions, and each client gets at
    least `minimum` rows) or "classes" (each client has rows of `classes_per_client` labels only).
    If y is a number, the ten tenths of the rows in its order are its labels.
    `sizes` gives the rows of each client, as counts (rows left over are not used) or as fractions
    that sum to 1.
    """
    _check_columns(columns)
    n = len(next(iter(columns.values())))
    _known(partition, ("iid", "contiguous", "dirichlet", "classes"))
    skewed = partition in ("dirichlet", "classes")
    if minimum < 1:
        raise UserError(f"minimum is {minimum}; a client needs at least 1 row")
    least = minimum if skewed else 1
    _enough(clients, n // least, "rows" if least == 1 else f"lots of {least} rows")
    if skewed and sizes is not None:
        raise UserError(f'sizes cannot be set with partition "{partition}"; use iid or contiguous')
    rng = np.random.default_rng(seed)
    if not skewed:
        counts = _counts(sizes, clients, n, exact=False)
        used = sum(counts)
        if partition == "contiguous":
            return Rows({name: v[:used] for name, v in columns.items()}, counts)
        return Rows(dict(columns), counts, rng.permutation(n)[:used].astype(np.int32))
    if "y" not in columns:
        raise UserError(f'partition "{partition}" needs the labels: a column named y')
    if partition == "dirichlet":
        owner = _dirichlet(as_strata(columns["y"]), clients, concentration, minimum, rng)
    else:
        owner = _classes(as_strata(columns["y"]), clients, classes_per_client, minimum, rng)
    order = np.argsort(owner, kind="stable")
    counts = tuple(int(c) for c in np.bincount(owner, minlength=clients))
    return Rows(dict(columns), counts, order.astype(np.int32))


def by_owner(columns: Mapping[str, Array], owners: Array, names: tuple[str, ...] = ()) -> Rows:
    """Give each row to the client whose number is in `owners`, without a copy."""
    counts = np.bincount(owners)
    if not counts.all():
        number = int(counts.argmin())
        client = names[number] if names else number
        raise UserError(f"client {client} has no training row; leave its rows out of data.path")
    order = np.argsort(owners, kind="stable").astype(np.int32)
    return Rows(dict(columns), tuple(int(c) for c in counts), order, names)


def by_feature(
    columns: Mapping[str, Array],
    clients: int,
    partition: str = "contiguous",
    seed: int = 0,
    sizes: Sequence[float] | None = None,
    label_holder: int | None = None,
    collection: str = "exchange",
) -> Columns:
    """Split the features of x among clients, without a copy.

    `partition` is "contiguous" (in their order) or "iid" (at random). `sizes` gives the features of
    each client, as counts that sum to P or as fractions that sum to 1.
    """
    _check_columns(columns)
    width = columns["x"].shape[1]
    _known(partition, ("contiguous", "iid"))
    _enough(clients, width, "features")
    counts = _counts(sizes, clients, width, exact=True)
    rng = np.random.default_rng(seed)
    order = rng.permutation(width) if partition == "iid" else np.arange(width)
    blocks = tuple(np.sort(b) for b in np.split(order, np.cumsum(counts)[:-1]))
    return Columns(dict(columns), blocks, label_holder, collection)


def _dirichlet(y: Array, clients: int, a: float, minimum: int, rng: np.random.Generator) -> Array:
    if not (math.isfinite(a) and a >= 1e-6):
        raise UserError(f"concentration is {a}; it should be positive, 0.1 (skewed) to 100 (even)")
    owner = np.empty(len(y), np.intp)
    for label in np.unique(y):
        rows = rng.permutation(np.flatnonzero(y == label))
        cuts = np.cumsum(rng.dirichlet(np.full(clients, a)))[:-1]
        for i, part in enumerate(np.split(rows, np.rint(cuts * len(rows)).astype(int))):
            owner[part] = i
    counts = np.bincount(owner, minlength=clients)
    while counts.min() < minimum:  # move rows from the largest client to the smallest
        poor, rich = int(counts.argmin()), int(counts.argmax())
        move = min(minimum - counts[poor], counts[rich] - minimum)
        owner[rng.choice(np.flatnonzero(owner == rich), move, replace=False)] = poor
        counts[poor], counts[rich] = counts[poor] + move, counts[rich] - move
    return owner


def _classes(y: Array, clients: int, k: int, minimum: int, rng: np.random.Generator) -> Array:
    labels = rng.permutation(np.unique(y))
    least, most = math.ceil(len(labels) / clients), len(labels)
    if not least <= k <= most:
        raise UserError(f"classes_per_client is {k}; it should be {least} to {most}")
    owner = np.empty(len(y), np.intp)
    for j, label in enumerate(labels):  # client i has the labels i*k .. i*k + k-1, cyclically
        holders = [i for i in range(clients) if (j - i * k) % len(labels) < k]
        rows = rng.permutation(np.flatnonzero(y == label))
        for i, part in zip(holders, np.array_split(rows, len(holders)), strict=True):
            owner[part] = i
    counts = np.bincount(owner, minlength=clients)
    if counts.min() < minimum:
        raise UserError(
            f"client {counts.argmin()} would get {counts.min()} rows, fewer than {minimum}; "
            "use fewer clients or a larger classes_per_client"
        )
    return owner


def _counts(sizes: Sequence[float] | None, clients: int, n: int, exact: bool) -> tuple[int, ...]:
    """Return the count of each client: equal up to one, or as `sizes` says."""
    if sizes is None:
        return tuple(n // clients + (i < n % clients) for i in range(clients))
    if len(sizes) != clients:
        raise UserError(f"sizes has {len(sizes)} entries for {clients} clients; give one each")
    if not all(math.isfinite(s) and s > 0 for s in sizes):
        raise UserError(f"sizes is {list(sizes)}; every entry should be positive")
    if all(isinstance(s, int | np.integer) for s in sizes):
        used = int(sum(sizes))
        if used > n or (exact and used != n):
            limit = "exactly" if exact else "at most"
            raise UserError(f"sizes sum to {used}; they should sum to {limit} {n}")
        return tuple(int(s) for s in sizes)
    if abs(sum(sizes) - 1) > 1e-3:
        raise UserError(f"sizes sum to {sum(sizes):g}; fractions should sum to 1 (or give counts)")
    ends = [round(n * c / sum(sizes)) for c in np.cumsum(sizes)]
    counts = tuple(int(c) for c in np.diff([0, *ends]))
    if min(counts) < 1:
        raise UserError(f"sizes give client {counts.index(min(counts))} nothing of {n}")
    return counts


def _check_columns(columns: Mapping[str, Array]) -> None:
    if not isinstance(columns, Mapping) or not all(hasattr(v, "shape") for v in columns.values()):
        raise UserError(
            "the columns of the rows should be a mapping of arrays, such as data.train of a "
            f'Dataset or {{"x": ..., "y": ...}}, not a {type(columns).__name__}'
        )


def _known(partition: str, names: tuple[str, ...]) -> None:
    if partition not in names:
        raise UserError(f"no partition {partition!r}: {nearest(partition, names)}")


def _enough(clients: int, n: int, what: str) -> None:
    if not isinstance(clients, int | np.integer) or not 1 <= clients <= n:
        raise UserError(f"clients is {clients!r}; there are {n} {what}: it should be 1 to {n}")


def _in_range(i: int, count: int, what: str) -> None:
    if not 0 <= i < count:
        raise UserError(f"{what} is {i}; it should be 0 to {count - 1}")
