"""Runs as they grow: what is new in their folders, as events for a page.

run    a whole run: the first time, when it began anew, when its state or result changed
rows   rows that came since
gone   the run's folder is no more
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fedssca.errors import UserError
from fedssca.report.gather import columns, gather, going, inside, read_row
from fedssca.report.live.jobs import Jobs
from fedssca.report.live.shelf import Shelf

__all__ = ["Tail", "Watch"]

Row = dict[str, Any]
SIGNS = ("config.toml", "problem.json", "result.json", "audit.json", "attack.png")
"""Files whose change makes a run be told again; rows are told as they come."""
MARK = 64


class Tail:
    """New whole lines of a file that grows, is cut short, replaced, deleted and made again."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._at, self._mark, self._inode = 0, b"", 0

    def read(self) -> tuple[bool, list[Row]]:
        """Whether the file began anew since the last time, and the rows that came."""
        try:
            with open(inside(self._path.parent, self._path.name), "rb") as file:
                stat = os.fstat(file.fileno())
                anew = stat.st_ino != self._inode or stat.st_size < self._at
                if not anew:
                    file.seek(self._at - len(self._mark))
                    anew = file.read(len(self._mark)) != self._mark
                begin = 0 if anew else self._at
                file.seek(begin)
                data = file.read()
        except OSError:
            anew = self._at > 0
            self._at, self._mark, self._inode = 0, b"", 0
            return anew, []
        whole = data[: data.rfind(b"\n") + 1]
        mark = whole[-MARK:] if whole or anew else self._mark
        self._at, self._mark, self._inode = begin + len(whole), mark, stat.st_ino
        rows = [row for line in whole.splitlines() if (row := read_row(line)) is not None]
        return anew, rows


class Watch:
    """Some runs, watched for one page."""

    def __init__(self, shelf: Shelf, jobs: Jobs, names: list[str]) -> None:
        self._runs = [_Watched(shelf, jobs, name) for name in names]

    def news(self) -> Iterator[tuple[str, Row]]:
        """(event, data) of all that changed since the last time."""
        for run in self._runs:
            yield from run.news()


class _Watched:
    def __init__(self, shelf: Shelf, jobs: Jobs, name: str) -> None:
        self._jobs, self._name = jobs, name
        self._path = shelf.place(name)
        self._tail = Tail(self._path / "metrics.jsonl")
        self._signs: Any = None
        self._rows: list[Row] = []
        self._limits: list[Row] = []

    def news(self) -> Iterator[tuple[str, Row]]:
        job = self._jobs.state(self._name)
        there = (self._path / "config.toml").is_file()
        if not there and job is None:
            if self._signs != "gone":
                self._signs = "gone"
                yield "gone", {"name": self._name}
            return
        anew, rows = self._tail.read()
        view = state_of(self._path, job, there)
        signs = (job, view, *(_sign(self._path / name) for name in SIGNS))
        first = not self._rows and bool(rows)
        self._rows = rows if anew else self._rows + rows
        if signs != self._signs or anew or first:
            self._signs = signs
            whole = gather(self._path, name=self._name, rows=self._rows)
            whole["state"], whole["ours"] = view, self._jobs.knows(self._name)
            whole["error"] = self._jobs.error(self._name) if view in ("failed", "paused") else None
            whole["trouble"] = whole["trouble"] if there else []
            self._limits = whole["constraints"]
            yield "run", whole
        elif rows:
            yield "rows", {"name": self._name, "series": columns(rows, self._limits)}


def state_of(path: Path, job: str | None, there: bool) -> str:
    """What a run is doing: its process knows best, else its files tell."""
    if job in ("starting", "going", "stopping"):
        return "starting" if job == "going" and not there else job
    if (path / "result.json").is_file():
        return "complete"
    if not there:
        return "failed"
    return "going" if job is None and going(path) else "paused"


def check_names(shelf: Shelf, names: list[str], most: int = 100) -> list[str]:
    """Names of runs that a page asks for."""
    if not names or len(names) > most:
        raise UserError(f"ask for 1 to {most} runs, not {len(names)}")
    for name in names:
        shelf.place(name)
    return names


def _sign(path: Path) -> tuple[int, int] | None:
    try:
        stat = path.stat()
    except OSError:
        return None
    return stat.st_mtime_ns, stat.st_size
