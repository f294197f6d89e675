"""Sources of rows for `Streams`: a CSV file that grows, and a queue."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np

from fedssca.data.stream import Block
from fedssca.errors import UserError

__all__ = ["follow_csv", "from_queue"]

CHUNK = 1 << 20
"""The number of bytes that are read at a time."""


def from_queue(rows: queue.Queue[Any], wait: float | None = None) -> Iterator[Block]:
    """Yield the blocks of a queue, until None or until `wait` seconds pass without a block.

    Clients are read one after another, several rounds at a time. A thread that feeds several
    queues must therefore not wait for a full queue: create them without maxsize.
    """
    while True:
        try:
            block = rows.get(timeout=wait)
        except queue.Empty:
            return
        if block is None:
            return
        yield block


def follow_csv(
    path: str | Path,
    *,
    label: str,
    columns: Sequence[str] | None = None,
    dtype: Any = np.float32,
    wait: float = 0.1,
    idle: float | None = None,
    stop: threading.Event | None = None,
) -> Iterator[Block]:
    """Yield the rows of a CSV file of numbers with a header, and rows that are appended later.

    x holds `columns` (by default all but the label) as `dtype`, y the `label` as whole numbers.
    The file is read every `wait` seconds. The source ends when nothing was appended for `idle`
    seconds, or when `stop` is set and everything is read; without both it never ends. A line is
    used once its newline is written.
    """
    place = Path(path).expanduser()
    if not place.is_file():
        raise UserError(f"{place} is not there; follow_csv needs a file, which may be empty yet")
    return _rows(place, label, columns, np.dtype(dtype), _lines(place, wait, idle, stop))


def _rows(
    path: Path, label: str, columns: Sequence[str] | None, dtype: Any, texts: Iterator[list[str]]
) -> Iterator[Block]:
    use: list[int] = []
    number = 1  # the number of the next line in the file
    for text in texts:
        lines = text
        if not use:
            use, lines = _places(path, lines[0], label, columns), lines[1:]
            number += 1
        if any(line.strip() for line in lines):
            table = _numbers(path, lines, number, use)
            yield {"x": table[:, :-1].astype(dtype), "y": _whole(path, label, table[:, -1])}
        number += len(lines)


def _lines(
    path: Path, wait: float, idle: float | None, stop: threading.Event | None
) -> Iterator[list[str]]:
    """Yield the complete lines that have been appended."""
    half, quiet_since = b"", time.monotonic()
    with path.open("rb") as file:
        while True:
            last = stop is not None and stop.is_set()  # read after this check: no line is missed
            half, lines = _more(file, half)
            if lines:
                yield lines
                quiet_since = time.monotonic()
            elif last or (idle is not None and time.monotonic() - quiet_since >= idle):
                return
            elif stop is not None:
                stop.wait(wait)
            else:
                time.sleep(wait)


def _more(file: IO[bytes], half: bytes) -> tuple[bytes, list[str]]:
    """Read on after the incomplete line `half`; return the new incomplete line and the lines."""
    while chunk := file.read(CHUNK):
        whole, newline, rest = (half + chunk).rpartition(b"\n")
        if newline:
            text = whole.decode("utf-8-sig", errors="replace").replace("\r", "")
            return rest, text.split("\n")
        half = rest
    return half, []


def _places(path: Path, header: str, label: str, columns: Sequence[str] | None) -> list[int]:
    """Return the positions of the wanted columns, the label last."""
    names = [name.strip().strip('"') for name in header.split(",")]
    wanted = [*([n for n in names if n != label] if columns is None else columns), label]
    lacking = [name for name in wanted if name not in names]
    if lacking:
        raise UserError(
            f"{path} has no column {lacking[0]!r}; it has {', '.join(names)}: "
            "check label and columns"
        )
    return [names.index(name) for name in wanted]


def _numbers(path: Path, lines: Sequence[str], first: int, use: Sequence[int]) -> np.ndarray:
    def parse(some: Sequence[str]) -> np.ndarray:
        table = np.loadtxt(some, delimiter=",", quotechar='"', comments=None, usecols=use, ndmin=2)
        if not np.isfinite(table).all():
            raise ValueError("nan or inf")
        return table

    try:
        return parse(lines)
    except (ValueError, IndexError):
        for number, line in enumerate(lines, first):
            try:
                if line.strip():
                    parse([line])
            except (ValueError, IndexError):
                raise UserError(
                    f"{path}, line {number}: not all numbers: {line!r}; "
                    "give columns that are, with columns=[...]"
                ) from None
        raise


def _whole(path: Path, label: str, values: np.ndarray) -> np.ndarray:
    labels = values.astype(np.int32)
    if not np.array_equal(labels, values):
        wrong = values[labels != values][0]
        raise UserError(f"{path}: label {label!r} is {wrong:g}; labels are whole numbers 0, 1, ...")
    return labels
