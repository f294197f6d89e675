"""What the server records of a run besides its metrics: costs of rounds, and events at sites."""

from __future__ import annotations

import json
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

from fedssca.run.record import RunDirectory

__all__ = ["RunLog"]


class RunLog:
    """Rows, events and costs so far; other threads may read them while the run goes on."""

    def __init__(self, out: Path) -> None:
        self._out, self._lock = out, threading.Lock()
        self._rows: list[dict[str, Any]] = []
        self._events: list[dict[str, Any]] = []
        self._costs: list[dict[str, Any]] = []
        self._written = 0

    def add_rows(self, *rows: dict[str, Any]) -> None:
        """Rows of metrics, which the caller has written."""
        with self._lock:
            self._rows += rows
        self.flush()

    def add_event(self, event: dict[str, Any]) -> None:
        """An event at a site."""
        with self._lock:
            self._events.append(event)
        self.flush()

    def add_costs(self, costs: dict[str, Any]) -> None:
        """The costs of a round; they are written with the next row or event."""
        with self._lock:
            self._costs.append(costs)

    def since(self, row: int) -> dict[str, Any]:
        """The rows from number `row` on, and all events."""
        with self._lock:
            return {"rows": self._rows[row:], "events": list(self._events)}

    def forget_costs_after(self, round_: int) -> None:
        """Remove the costs of later rounds: a resumed run goes through some rounds again."""
        file = self._out / "sites.jsonl"
        if not file.exists():
            return
        kept = []
        for line in file.read_text().splitlines(keepends=True):
            with suppress(ValueError):  # the last line may be incomplete
                if json.loads(line)["round"] <= round_:
                    kept.append(line)
        RunDirectory(self._out).write(
            "sites.jsonl", lambda file: file.write("".join(kept).encode())
        )

    def flush(self) -> None:
        """Append what is new to the files of the run directory, once it exists."""
        if not (self._out / "config.toml").exists():
            return
        with self._lock:
            costs, self._costs = self._costs, []
            events, self._written = self._events[self._written :], len(self._events)
            for name, lines in (("sites.jsonl", costs), ("events.jsonl", events)):
                if lines:
                    with open(self._out / name, "a") as file:
                        file.write("".join(json.dumps(line) + "\n" for line in lines))
