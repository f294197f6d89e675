"""Several tables that make one: files with different rows, or with different columns."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from glob import glob, has_magic
from pathlib import Path
from typing import NamedTuple

import numpy as np

from fedssca.data.encode.cells import Array, as_text, is_text, missing_cells, stacked
from fedssca.data.encode.labels import USUAL, LabelName, label_sources
from fedssca.data.ids import canonical, id_cells
from fedssca.data.lines import Reading
from fedssca.data.tables import Table, is_table, read_table, table_name
from fedssca.errors import UserError, nearest

__all__ = [
    "JoinedFiles",
    "by_column",
    "expanded",
    "is_pattern",
    "join_columns",
    "several",
    "stack_rows",
]

MOST_NAMED = 8
"""The most columns that a message names."""


class JoinedFiles(NamedTuple):
    """One table from several files, and which file holds what."""

    table: Table
    owners: Array | None
    """For each row the number of its client, if clients hold rows."""
    parties: dict[str, int]
    """For each column the number of its file, if the files hold columns."""
    notes: tuple[str, ...] = ()
    clients: tuple[str, ...] = ()
    """The names of the clients, if clients hold rows."""
    ids: tuple[str, ...] = ()
    """The id of each row, if the files hold columns."""
    left_out: frozenset[str] = frozenset()
    """Columns that only some of the files have."""


def is_pattern(path: str) -> bool:
    """Whether a path stands for all files that match it, such as sites/*.csv."""
    place = Path(path).expanduser()
    return has_magic(str(place)) and not place.exists()


def expanded(paths: Sequence[str]) -> list[Path]:
    """The files that paths and patterns such as sites/*.csv name; those of a pattern are sorted."""
    found: list[Path] = []
    for each in paths:
        place = Path(each).expanduser()
        if not is_pattern(each):
            found.append(place)
            continue
        matching = sorted(glob(str(place), recursive=True))
        if not matching:
            raise UserError(f"no file matches data.path = {each!r}")
        found += map(Path, matching)
    for place in found if len(found) > 1 else []:
        if not is_table(place):
            raise UserError(f"{place}: several files must be tables, such as .csv or .parquet")
        if found.count(place) > 1:
            raise UserError(f"{place} is named twice in data.path")
    return found


def several(paths: Sequence[Path]) -> str:
    """A name for several files together."""
    more = f" and {len(paths) - 1} more" if len(paths) > 1 else ""
    return f"{table_name(paths[0])}{more}"


def stack_rows(
    paths: Sequence[Path],
    reading: Reading,
    away: Collection[str] = (),
    label: LabelName | None = None,
) -> JoinedFiles:
    """Put the rows of several files below each other; their columns may be in any order.

    The columns `away` are left out of files that have them, if not all have. Every file needs the
    columns of the `label`, or, if that is not given, the one with a usual name.
    """
    tables = [read_table(path, reading) for path in paths]
    somewhere = {name for table in tables for name in table}
    _check_label(label, somewhere, paths, tables)
    rare = frozenset(n for n in away if n in somewhere and not all(n in t for t in tables))
    tables = [{n: cells for n, cells in table.items() if n not in rare} for table in tables]
    names = list(tables[0])
    for path, table in zip(paths, tables, strict=True):
        if odd := sorted(set(names) ^ set(table)):
            more, less = _listed(set(table) - set(names)), _listed(set(names) - set(table))
            has, lacks = (path, paths[0]) if more else (paths[0], path)
            also = f", and it lacks {less}" if more and less else ""
            raise UserError(
                f"{has} has {more or less} and {lacks} has not{also}; files with rows need the "
                f"same columns: set data.drop = {odd[:MOST_NAMED]}, or rename columns"
            )
    owners = np.repeat(np.arange(len(paths), dtype=np.int32), [_rows(table) for table in tables])
    table = {name: _stacked(name, [t[name] for t in tables], paths) for name in names}
    called = [table_name(path) for path in paths]
    clients = called if len(set(called)) == len(called) else [str(path) for path in paths]
    return JoinedFiles(table, owners, {}, clients=tuple(clients), left_out=rare)


def by_column(name: str, joined: JoinedFiles, column: str) -> JoinedFiles:
    """Give each row of a table to the client that its `column` names, in the order of the names."""
    if joined.owners is not None or joined.parties:
        raise UserError(
            f"data.client = {column!r} divides the rows of one table; several files in data.path "
            "are one client each, so leave data.client out"
        )
    cells = joined.table[column]
    if (empty := missing_cells(cells)).any():
        raise UserError(
            f"{name}: {int(empty.sum())} rows have no {column!r}, so they belong to no client of "
            "data.client; fill it in or remove them"
        )
    values, owners = np.unique(cells, return_inverse=True)
    clients = tuple(map(str, as_text(values)))
    return joined._replace(owners=owners.astype(np.int32), clients=clients)


def _check_label(
    label: LabelName | None,
    somewhere: Collection[str],
    paths: Sequence[Path],
    tables: Sequence[Table],
) -> None:
    """Raise a UserError if some of the files have the label's columns and another has not."""
    named = [label] if label else [name for name in USUAL if name in somewhere]
    columns = label_sources(named[0], somewhere) if len(named) == 1 else None
    for path, table in zip(paths, tables, strict=True):
        for column in set(columns or ()) - set(table):
            raise UserError(
                f"{path} has no column {column!r}, which is the label; its columns are "
                f"{', '.join(list(table)[:MOST_NAMED])}: add it, or leave the file out of data.path"
            )


def _listed(columns: Collection[str]) -> str:
    """Names of columns in a message."""
    shown = sorted(columns)[:MOST_NAMED]
    more = f" and {len(columns) - len(shown)} more" if len(columns) > len(shown) else ""
    named = ", ".join(map(repr, shown)) + more
    return f"the column{'s' if len(columns) > 1 else ''} {named}" if columns else ""


def join_columns(paths: Sequence[Path], id_column: str, reading: Reading) -> JoinedFiles:
    """Put the columns of several files beside each other, for the rows whose ids all files have.

    The rows are in the order of the first file. A column that several files have is called "x.1",
    "x.2", ... by the number of its file.
    """
    if not id_column:
        raise UserError("files with different columns are joined by an id: set data.id to it")
    tables = [read_table(path, reading) for path in paths]
    ids: list[list[str]] = []
    for path, table in zip(paths, tables, strict=True):
        if id_column not in table:
            raise UserError(f"{path} has no column {id_column!r}; {nearest(id_column, table)}")
        ids.append(canonical(id_cells(path, id_column, reading), str(path)))
    common = set(ids[0]).intersection(*ids[1:])
    if not common:
        raise UserError(
            f"no id of column {id_column!r} is in all of {', '.join(p.name for p in paths)}; are "
            "they written alike?"
        )
    wanted = [name for name in ids[0] if name in common]
    joined: Table = {}
    parties: dict[str, int] = {}
    for number, (own, held) in enumerate(zip(tables, ids, strict=True)):
        places = {name: row for row, name in enumerate(held)}
        rows = np.array([places[name] for name in wanted])
        for name, cells in own.items():
            if name == id_column:
                continue
            shared = sum(name in other for other in tables) > 1
            called = f"{name}.{number + 1}" if shared else name
            joined[called], parties[called] = cells[rows], number
    away = [
        f"{path.name} leaves out {len(held) - len(common)}"
        for path, held in zip(paths, ids, strict=True)
        if len(held) > len(common)
    ]
    note = f"{len(common)} rows are in all files; {', '.join(away)}"
    return JoinedFiles(joined, None, parties, (note,) if away else (), ids=tuple(wanted))


def _rows(table: Table) -> int:
    return len(next(iter(table.values())))


def _stacked(name: str, parts: Sequence[Array], paths: Sequence[Path]) -> Array:
    column = stacked(parts)
    if column is None:
        text, numbers = (
            next(
                path
                for path, part in zip(paths, parts, strict=True)
                if is_text(part) == kind and not missing_cells(part).all()
            )
            for kind in (True, False)
        )
        raise UserError(
            f"column {name!r} is text in {text} and numbers in {numbers}; write it alike"
        )
    return column
