"""Lines of text files: the separator is found out, and comments and blank lines are left out."""

from __future__ import annotations

import csv
import gzip
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import IO, Any

from fedssca.errors import UserError

__all__ = ["Lines", "Reading", "is_number", "number_of", "read_lines"]

SEPARATORS = (",", ";", "\t", "|")
MISSING = frozenset({"", "?", "NA", "N/A", "n/a", "NaN", "nan", "NULL", "null", "<NA>", "#N/A"})
"""Cells that mean a missing value in any table."""
SAMPLE = 50
"""The number of lines from which the separator is found out."""
_BROKEN = (OSError, EOFError, zlib.error, UnicodeDecodeError, csv.Error)


@dataclass(frozen=True)
class Reading:
    """What must be known of a table to read it."""

    missing: tuple[str, ...] = ()
    """Cells that mean a missing value, beside the usual ones."""
    columns: tuple[str, ...] = ()
    """The names of the columns, if the file has no header."""
    optional: str = ""
    """The column that a file without a header may lack: the label of new rows."""
    ready_made: str = ""
    """The ready-made data set whose file this is, if its columns are changed after reading."""

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> Reading:
        """The reading whose fields these are, as JSON text gives them back."""
        own = {name: tuple(state[name]) for name in ("missing", "columns")}
        return cls(**{**state, **own})

    @property
    def markers(self) -> frozenset[str]:
        """All cells that mean a missing value."""
        return MISSING | {mark.strip() for mark in self.missing}


@dataclass(frozen=True)
class Lines:
    """A text file of cells."""

    path: Path
    separator: str
    header: list[str]
    first: int
    """The number of lines before the first row of data."""

    def rows(self) -> list[list[str]]:
        """The cells of all rows; a UserError names a row with another number of cells."""
        try:
            with _opened(self.path) as lines:
                found = list(
                    filter(_filled, _cells(islice(lines, self.first, None), self.separator))
                )
        except _BROKEN as error:
            raise _unreadable(self.path, error) from None
        width = len(self.header)
        rows = [row for row in found if len(row) == width or not row[0].startswith("#")]
        for number, row in enumerate(rows, 1):
            if len(row) == width + 1 and row[-1].strip() == "":  # a separator at the end
                row.pop()
            elif len(row) != width:
                raise UserError(
                    f"{self.path}, row {number}: {len(row)} cells for {width} columns; "
                    "mend that row"
                )
        return rows


def read_lines(path: Path, reading: Reading) -> Lines:
    """Find out the separator and the header of a text file, zipped if its name ends in .gz."""
    try:
        with _opened(path) as lines:
            sample = list(islice(lines, SAMPLE))
        separator = _separator(sample)
    except _BROKEN as error:
        raise _unreadable(path, error) from None
    skipped = 0
    for line in sample:
        comment = line.startswith("#") or (line.startswith("|") and separator != "|")
        if line.strip() and not comment:
            break
        skipped += 1
    begin = list(_cells(sample[skipped : skipped + 1], separator))
    if not begin:
        raise UserError(f"{path} is empty; it should hold a header and rows of data")
    first = [name.strip() for name in begin[0]]
    names = list(reading.columns)
    has_header = not names or set(first) <= set(names)
    if not has_header and len(names) == len(first) + 1 and reading.optional in names:
        names.remove(reading.optional)
    if not has_header and len(names) != len(first):
        raise UserError(
            f"{path} has {len(first)} columns, and {len(names)} names are given for them in columns"
        )
    header = first if has_header else names
    if len(set(header)) < len(header):
        if has_header and any(map(is_number, first)):
            raise UserError(
                f"{path}: its first line holds numbers, no names; name the columns: "
                'columns = ["age", ...]'
            )
        raise UserError(f"{path}: the header names a column twice: {', '.join(header)}; rename one")
    rest = sample[skipped + has_header :]
    if not any(line.strip() for line in rest):
        raise UserError(f"{path} is empty; it should hold a header and rows of data")
    return Lines(path, separator, header, skipped + has_header)


def _opened(path: Path) -> IO[str]:
    if path.suffix.lower() == ".gz":
        return gzip.open(path, "rt", newline="", encoding="utf-8-sig")
    return path.open(newline="", encoding="utf-8-sig")


def _cells(lines: Sequence[str] | Iterator[str], separator: str) -> Iterator[list[str]]:
    return csv.reader(lines, delimiter=separator, skipinitialspace=separator != "\t")


def _filled(row: list[str]) -> bool:
    return bool(row) and (len(row) > 1 or bool(row[0].strip()))


def _separator(sample: Sequence[str]) -> str:
    """The character that divides the lines into the same number of cells, most often."""
    lines = [line for line in sample if line.strip() and not line.startswith(("#", "|"))] or sample
    best, score = ",", (0.0, 0)
    for candidate in SEPARATORS:
        widths = [len(row) for row in _cells(lines, candidate) if row]
        if not widths or max(widths) < 2:
            continue
        common = max(set(widths), key=widths.count)
        fit = (widths.count(common) / len(widths), common)
        if common > 1 and fit > score:
            best, score = candidate, fit
    return best


def number_of(text: str) -> float | None:
    """The number that a text is; None if it is none."""
    try:
        return float(text)
    except ValueError:
        return None


def is_number(text: str) -> bool:
    """Whether a text is a plain number."""
    return number_of(text) is not None


def _unreadable(path: Path, error: Exception) -> UserError:
    if isinstance(error, UnicodeDecodeError):
        wide = error.object[:2] in (b"\xff\xfe", b"\xfe\xff")
        form = "UTF-16" if wide else "Latin-1, or no text"
        return UserError(f"{path} is no UTF-8 text, perhaps {form}; save it as UTF-8 CSV")
    if isinstance(error, OSError) and error.strerror:
        return UserError(f"{path} cannot be read: {error.strerror}; check the file")
    return UserError(f"{path} cannot be read as CSV text: {error}; save it as UTF-8 CSV")
