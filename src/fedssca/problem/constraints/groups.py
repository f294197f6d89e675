"""Groups of rows that limits are about: by the values of columns, or by bins of numbers.

The groups of several columns are their intersections. Groups with few rows have rates that mean
little, so they are merged into one group "other", or refused. With the sizes of clients every
client has groups of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from fedssca.errors import UserError
from fedssca.problem.constraint_kinds import LEAST_ROWS, RareName
from fedssca.problem.constraints.cells import Cell, Mask, cells_of

__all__ = ["Division", "Group", "Groups"]

MOST_LIMITED = 400
"""The largest number of groups, of all clients together."""
SHOWN = 6
"""The largest number of groups that a title or a message lists."""


class Group(NamedTuple):
    """Some of the rows that a limit is about."""

    value: str
    """A part of the name of a constraint, such as "Black"; empty: all rows."""
    title: str
    """The rows in words, such as "race = Black"; empty: all rows."""
    short: str
    """The rows in words beside another group of the same columns, such as "Black"."""
    key: str
    """What tells its means from those of other groups."""
    rows: np.ndarray
    """Which of the training rows belong to it."""
    own: Mask | None = None
    """batch -> which of its rows belong to it; None: all."""


class Division(NamedTuple):
    """The groups of all rows, or of the rows of one client."""

    whole: Group
    """All rows that are divided."""
    groups: list[Group]
    client: int | None = None
    called: str = ""
    """The client in words; empty: all clients."""
    note: str = ""
    """What is to be said of a client that has no groups."""


@dataclass(frozen=True)
class Groups:
    """The groups of rows with the same values in `columns`, given for the training rows by name.

    `kinds` has the names of the values 0, 1, ... of columns that were text. `bins` divides columns
    of numbers: bins={"age": [25, 40]} makes age < 25, 25 <= age < 40 and age >= 40. Groups with
    fewer than `least_rows` training rows (of the class that a rate is about) are merged into one
    group "other", or with rare="refuse" are an error; by default this is so from three groups on,
    with 20 rows. With `sizes`, the numbers of rows of the clients in the order of the rows, every
    client has its own groups, called by `clients`.
    """

    columns: Mapping[str, np.ndarray] = field(default_factory=dict)
    kinds: Mapping[str, Sequence[str]] = field(default_factory=dict)
    bins: Mapping[str, Sequence[float]] = field(default_factory=dict)
    least_rows: int | None = None
    rare: RareName = "merge"
    sizes: Sequence[int] | None = None
    clients: Sequence[str] = ()

    @property
    def column(self) -> str:
        """The columns in the name of a constraint."""
        return "_".join(self.columns)

    def all_rows(self) -> np.ndarray:
        """A mark for each training row."""
        columns = [len(values) for values in self.columns.values()]
        return np.ones(columns[0] if columns else sum(self.sizes or ()), bool)

    def divide(
        self, what: str, base: np.ndarray, words: str = "", two: bool = False
    ) -> list[Division]:
        """The groups among the training rows marked by `base`, which are called `words`.

        `two` says that at least two groups are needed, as for a gap.
        """
        cells = cells_of(what, self.columns, self.kinds, self.bins)
        if self.columns and len(cells) < 2:
            found = f" ({cells[0].title})" if cells else ""
            raise UserError(
                f"{what}: column {self.column!r} has {len(cells)} value{found} in the training "
                "data; groups need two or more: name another column"
            )
        if cells and len(cells[0].rows) != len(base):
            raise UserError(f"{what}: its columns have not as many rows as the labels")
        if self.least_rows is not None and self.least_rows < 1:
            raise UserError(f"{what}: least_rows = {self.least_rows}: it must be at least 1")
        least = self.least_rows or (LEAST_ROWS if len(cells) > 2 or self.sizes else 1)
        rule = _Rule(what, "/".join(self.columns), least, self.rare, words, two)
        if self.sizes is None:
            return [rule.divide(cells, base, np.ones(len(base), bool))]
        if sum(self.sizes) != len(base):
            raise UserError(f"{what}: sizes add up to {sum(self.sizes)}, of {len(base)} rows")
        owners = np.repeat(np.arange(len(self.sizes)), self.sizes)
        made = [
            rule.divide(cells, base, owners == i, i, self._called(i))
            for i in range(len(self.sizes))
        ]
        count = sum(len(each.groups) for each in made)
        if count > MOST_LIMITED:
            raise UserError(
                f"{what}: {count} groups of all clients are too many: at most {MOST_LIMITED}; set "
                "a larger least_rows, or per_client = false"
            )
        if not count:
            raise UserError(f"{what}: no client has {rule.needed}; set a smaller least_rows")
        return made

    def _called(self, client: int) -> str:
        return self.clients[client] if self.clients else f"client {client}"


class _Rule(NamedTuple):
    """Which groups are too small, and what becomes of them."""

    what: str
    heading: str
    least: int
    rare: str
    words: str
    two: bool

    @property
    def needed(self) -> str:
        """The groups that are needed, in words."""
        groups = "two groups with" if self.two else "a group with"
        return f"{groups if self.heading else ''} {self.least} training rows{self.words}".strip()

    def divide(
        self,
        cells: Sequence[Cell],
        base: np.ndarray,
        among: np.ndarray,
        client: int | None = None,
        called: str = "",
    ) -> Division:
        """The groups of all rows or of those of a client, which `among` marks."""
        whole = _owned(Group("", "", "all", "", among), client)
        counts = [int((cell.rows & base & among).sum()) for cell in cells]
        if cells:
            sets = self._merged(cells, counts, called)
            groups = [_owned(self._join([cells[i] for i in each], among), client) for each in sets]
        else:
            groups = [whole] if int((base & among).sum()) >= self.least else []
        if len(groups) <= self.two * bool(cells):
            if client is None:
                raise UserError(
                    f"{self.what} needs {self.needed}; there are: {_counted(cells, counts)}; "
                    "set a smaller least_rows, or name another column"
                )
            return Division(whole, [], client, called, self._left_out(called))
        return Division(whole, groups, client, called)

    def _left_out(self, called: str) -> str:
        if self.rare == "refuse":
            raise UserError(
                f"{self.what}: {called} does not have {self.needed}; set a smaller least_rows, "
                'or rare = "merge" to leave such clients out'
            )
        return f"{self.what} does not limit {called}, which does not have {self.needed}"

    def _merged(self, cells: Sequence[Cell], counts: Sequence[int], called: str) -> list[list[int]]:
        """Which cells make up each group: one each, and the small ones together.

        If these are too few together, the next smallest cells are added to them.
        """
        small = [i for i, count in enumerate(counts) if count < self.least]
        if small and self.rare == "refuse":
            of = f" at {called}" if called else ""
            raise UserError(
                f"{self.what}: groups with fewer than {self.least} training rows{self.words}{of}: "
                f"{_counted([cells[i] for i in small], [counts[i] for i in small])}; set "
                'rare = "merge" or a smaller least_rows'
            )
        rest = sorted((i for i in range(len(cells)) if i not in small), key=lambda i: -counts[i])
        while rest and small and sum(counts[i] for i in small) < self.least:
            small.append(rest.pop())
        merged = [sorted(small)] if sum(counts[i] for i in small) >= self.least else []
        return [*([i] for i in sorted(rest)), *merged]

    def _join(self, cells: Sequence[Cell], among: np.ndarray) -> Group:
        """One group of all rows of these cells."""
        if len(cells) == 1:
            (cell,) = cells
            return Group(
                cell.value, cell.title, cell.short, cell.title, cell.rows & among, cell.own
            )
        names = [cell.short for cell in cells]
        more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
        short = f"other ({'; '.join(names[:SHOWN])}{more})"
        return Group(
            "merged",
            f"{self.heading} = {short}",
            short,
            f"{self.heading} in {names}",
            np.any([cell.rows for cell in cells], axis=0) & among,
            _any([cell.own for cell in cells]),
        )


def _owned(group: Group, client: int | None) -> Group:
    """The group, or that part of it that a client holds."""
    if client is None:
        return group
    own = group.own

    def owned(batch: Mapping[str, Any]) -> Any:
        mine = batch["client"] == client
        return mine if own is None else mine & own(batch)

    return group._replace(key=f"{group.key}, client {client}", own=owned)


def _any(masks: Sequence[Mask]) -> Mask:
    def own(batch: Mapping[str, Any]) -> Any:
        found = masks[0](batch)
        for mask in masks[1:]:
            found = found | mask(batch)
        return found

    return own


def _counted(cells: Sequence[Cell], counts: Sequence[int]) -> str:
    """The groups with their numbers of rows, in words."""
    order = sorted(range(len(cells)), key=lambda i: counts[i])
    some = ", ".join(f"{cells[i].title} ({counts[i]})" for i in order[:SHOWN])
    return some + (f" and {len(cells) - SHOWN} more" if len(cells) > SHOWN else "")
