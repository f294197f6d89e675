"""Clients whose rows come from iterators: a log, a queue, a growing file. Each row is used once.

A source gives blocks of any number of rows, and a round needs a fixed number of rows. `Reader`
copies rows from the blocks into the arrays of the round, and stores the rest of at most one block.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from fedssca.data.dataset import Array
from fedssca.data.split import Rows
from fedssca.errors import UserError

__all__ = ["Block", "Reader", "Streams"]

Block: TypeAlias = Mapping[str, Any]
"""Some rows of one client: {"x": (n, P), "y": (n,), ...} for any n."""


class Streams:
    """Clients whose rows are streams: one source per client, each read once.

    A source is any iterable of blocks {"x": (n, P), "y": (n,), ...}. Rows of a stream are not
    stored, so the model and its limits are evaluated on the held-out rows `check`: columns, or
    `Rows` with one part per client if a limit depends on the client. `weights` are the clients'
    shares of the objective, by default equal, because the length of a stream is not known.
    """

    def __init__(
        self,
        sources: Sequence[Iterable[Block]],
        *,
        check: Rows | Mapping[str, Array] | None = None,
        weights: Sequence[float] | None = None,
    ) -> None:
        if not isinstance(sources, Sequence) or not sources:
            raise UserError("sources should be a list of iterables of blocks, one per client")
        self.check: Rows = _held_out(check, len(sources))
        self.share: Array = _shares(weights, len(sources))
        self.readers: tuple[Reader, ...] = tuple(
            Reader(i, s, self.check.columns) for i, s in enumerate(sources)
        )

    @property
    def count(self) -> int:
        """The number of clients."""
        return len(self.readers)

    @property
    def sample(self) -> Rows:
        """One row of `check` per client, from which the shapes of messages are read."""
        first = {name: np.repeat(v[:1], self.count, 0) for name, v in self.check.columns.items()}
        return Rows(first, (1,) * self.count)


class Reader:
    """The rows of one client, in order, as many at a time as are asked for."""

    def __init__(self, number: int, source: Iterable[Block], like: Mapping[str, Array]) -> None:
        if isinstance(source, Mapping) or not isinstance(source, Iterable):
            raise UserError(
                f"client {number}: a source is an iterable of blocks of rows, "
                f"not {type(source).__name__}; a single block goes into a list: [block]"
            )
        self.number = number
        self.taken = 0
        """The number of rows that were read so far."""
        self._blocks: Iterator[Block] = iter(source)
        self._like = {name: column[:0] for name, column in like.items()}
        self._rest: dict[str, Array] = {}
        self._left = 0

    def fill(self, out: Mapping[str, Array]) -> int:
        """Copy the next rows into the arrays of `out`; return how many there were.

        There are fewer than the arrays hold if the source ends. All rows of a block are copied
        before the next block is asked for, so a source may reuse its arrays.
        """
        wanted, done = len(next(iter(out.values()))), 0
        while done < wanted:
            if not self._left and not self._next():
                break
            n = min(wanted - done, self._left)
            for name, values in self._rest.items():
                start = len(values) - self._left
                out[name][done : done + n] = values[start : start + n]
            done, self._left = done + n, self._left - n
            if not self._left:
                self._rest = {}
        self.taken += done
        return done

    def _next(self) -> bool:
        """Read the next block that has rows; return False at the end of the source."""
        for block in self._blocks:
            self._rest = self._checked(block)
            self._left = len(next(iter(self._rest.values())))
            if self._left:
                return True
        return False

    def _fits(self, block: dict[str, Any]) -> bool:
        """Whether a block needs no conversion; this is fast, for sources that give single rows."""
        rows = -1
        for name, like in self._like.items():
            values = block.get(name)
            if type(values) is not np.ndarray or values.dtype != like.dtype:
                return False
            if values.ndim != like.ndim or values.shape[1:] != like.shape[1:]:
                return False
            if rows >= 0 and len(values) != rows:
                return False
            rows = len(values)
        return len(block) == len(self._like)

    def _checked(self, block: Block) -> dict[str, Array]:
        """Return the block as arrays that fit the held-out rows."""
        if isinstance(block, dict) and self._fits(block):
            return block
        who, like = f"client {self.number}", self._like
        if not isinstance(block, Mapping) or set(block) != set(like):
            has = sorted(map(str, block)) if isinstance(block, Mapping) else type(block).__name__
            raise UserError(f"{who}: a block should have the columns {sorted(like)}, it is {has}")
        rows = {name: np.asarray(block[name]) for name in like}
        for name, values in rows.items():
            shape, wanted = values.shape, like[name].shape[1:]
            if values.ndim == 0 or shape[1:] != wanted:
                raise UserError(
                    f"{who}: column {name!r} has the shape {shape}, "
                    f"it should be {('n', *wanted)} as in check; a single row is a block of 1"
                )
            if not np.can_cast(values.dtype, like[name].dtype, "same_kind"):
                raise UserError(
                    f"{who}: column {name!r} is {values.dtype}, in check it is "
                    f"{like[name].dtype}; give both the same type"
                )
        if len({len(values) for values in rows.values()}) != 1:
            lengths = {name: len(values) for name, values in rows.items()}
            raise UserError(f"{who}: the columns of a block differ in rows: {lengths}")
        return rows


def _held_out(check: Rows | Mapping[str, Array] | None, clients: int) -> Rows:
    if check is None:
        raise UserError(
            "check is missing: a stream is not kept, so held-out rows {'x': ..., 'y': ...} are "
            "needed to evaluate the model and to prove its limits"
        )
    if isinstance(check, Rows):
        if check.count != clients:
            raise UserError(
                f"check has rows of {check.count} clients for {clients} sources; "
                "give columns, or one part per client"
            )
        return check
    columns = {name: np.asarray(values) for name, values in check.items()}
    lengths = {name: len(values) for name, values in columns.items()}
    if len(set(lengths.values())) != 1 or not all(lengths.values()):
        raise UserError(f"check should have columns of the same length, at least 1 row: {lengths}")
    return Rows(columns, (len(next(iter(columns.values()))),))


def _shares(weights: Sequence[float] | None, clients: int) -> Array:
    given = [1.0] * clients if weights is None else list(weights)
    if len(given) != clients:
        raise UserError(f"weights has {len(given)} entries for {clients} sources; give one each")
    if not all(math.isfinite(p) and p > 0 for p in given):
        raise UserError(f"weights is {given}; every entry should be positive")
    return np.asarray(given, float) / sum(given)
