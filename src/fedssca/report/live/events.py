"""What is new in runs, as events for the page.

run    a whole run: at first, after it was started again, and when its state or its result changed
rows   the rows that were added since the last event
sites  what is known of the sites of a deployed run, after new lines about them
gone   the folder of the run was deleted
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fedssca.report.gather import (
    LARGEST_ROWS,
    columns,
    gather,
    is_recent,
    open_file,
    read_row,
)
from fedssca.report.live.folder import RunFolder
from fedssca.report.live.form import field_of
from fedssca.report.live.processes import RunProcesses
from fedssca.report.sites import SiteRecord

__all__ = ["RowReader", "RunEvents", "events_of", "failure_of"]

Row = dict[str, Any]
WATCHED = ("config.toml", "problem.json", "result.json", "audit.json", "attack.png")
"""A change of one of these files makes the whole run an event."""
TAIL = 64
"""Bytes before the reading position by which a replaced file is recognised."""


class RowReader:
    """Reads the new rows of a file that may grow, be truncated, replaced, deleted or created."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._position, self._tail, self._inode = 0, b"", 0

    def read(self) -> tuple[bool, list[Row]]:
        """Whether the file is another one than at the last call, and the rows that are new."""
        try:
            with open_file(self._path.parent, self._path.name, LARGEST_ROWS) as file:
                stat = os.fstat(file.fileno())
                replaced = stat.st_ino != self._inode or stat.st_size < self._position
                if not replaced:
                    file.seek(self._position - len(self._tail))
                    replaced = file.read(len(self._tail)) != self._tail
                begin = 0 if replaced else self._position
                file.seek(begin)
                data = file.read()
        except OSError:
            deleted = self._position > 0
            self._position, self._tail, self._inode = 0, b"", 0
            return deleted, []
        whole = data[: data.rfind(b"\n") + 1]
        tail = whole[-TAIL:] if whole or replaced else self._tail
        self._position, self._tail, self._inode = begin + len(whole), tail, stat.st_ino
        rows = [row for line in whole.splitlines() if (row := read_row(line)) is not None]
        return replaced, rows


class RunEvents:
    """The events of one run for one page."""

    def __init__(self, folder: RunFolder, processes: RunProcesses, name: str) -> None:
        self._processes, self._name = processes, name
        self._path = folder.path_for(name)
        self._reader = RowReader(self._path / "metrics.jsonl")
        self._site_rows = RowReader(self._path / "sites.jsonl")
        self._site_events = RowReader(self._path / "events.jsonl")
        self._sites = SiteRecord()
        self._signature: Any = None
        self._rows: list[Row] = []
        self._constraints: list[Row] = []

    def new(self) -> Iterator[tuple[str, Row]]:
        """(kind, data) of everything that changed since the last call."""
        process = self._processes.state(self._name)
        exists = (self._path / "config.toml").is_file()
        if not exists and process is None:
            if self._signature != "gone":
                self._signature = "gone"
                yield "gone", {"name": self._name}
            return
        replaced, rows = self._reader.read()
        sites_changed = self._read_sites()
        state = state_of(self._path, process, exists)
        signature = (process, state, *(_signature(self._path / name) for name in WATCHED))
        first = not self._rows and bool(rows)
        self._rows = rows if replaced else self._rows + rows
        if signature != self._signature or replaced or first:
            self._signature = signature
            yield "run", self._whole(state, exists)
            return
        if rows:
            yield "rows", {"name": self._name, "series": columns(rows, self._constraints)}
        if sites_changed:
            yield "sites", {"name": self._name} | self._sites.shown()

    def _read_sites(self) -> bool:
        """Read the new lines about sites; whether there were any."""
        anew, lines = self._site_rows.read()
        self._sites.add_rounds(lines, anew)
        again, events = self._site_events.read()
        self._sites.add_events(events, again)
        return anew or again or bool(lines or events)

    def _whole(self, state: str, exists: bool) -> Row:
        run = gather(self._path, name=self._name, rows=self._rows, sites=self._sites)
        run["state"], run["ours"] = state, self._processes.started(self._name)
        ended = state in ("failed", "paused")
        run["error"] = failure_of(self._processes, self._name) if ended else None
        run["trouble"] = run["trouble"] if exists else []
        self._constraints = run["constraints"]
        return run


def failure_of(processes: RunProcesses, name: str) -> Row | None:
    """The error that ended a run, and the field of the form that it is about, if it is known."""
    error = processes.error(name)
    if error is None:
        return None
    return {"message": str(error), "field": field_of(error.key) if error.key else None}


def events_of(watched: list[RunEvents]) -> list[tuple[str, Row]]:
    """The new events of several runs."""
    return [event for run in watched for event in run.new()]


def state_of(path: Path, process: str | None, exists: bool) -> str:
    """The state of a run: from its process if that is known, else from its files."""
    if process in ("running", "stopping"):
        return "starting" if process == "running" and not exists else process
    if (path / "result.json").is_file():
        return "complete"
    if not exists:
        return "failed"
    return "running" if process is None and is_recent(path) else "paused"


def _signature(path: Path) -> tuple[int, int] | None:
    try:
        stat = path.stat()
    except OSError:
        return None
    return stat.st_mtime_ns, stat.st_size
