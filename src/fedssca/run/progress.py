"""How long work tells its progress: the protocol, and a line on the screen that follows it."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["ProgressDisplay", "ProgressLine", "row_numbers", "showing_rounds"]

Row = dict[str, Any]
LONGEST_NAME = 20
STEADY = 900.0
"""Seconds over which the time left is estimated where the steps are unequal."""


class ProgressDisplay(Protocol):
    """A display of progress, such as the progress line of the commands."""

    def update(
        self,
        done: float,
        numbers: str = "",
        *,
        total: float | None = None,
        name: str | None = None,
    ) -> None:
        """Show that `done` of `total` is done, with a few numbers; None keeps what is shown."""

    def note(self, text: str) -> None:
        """Show a line that stays."""


class ProgressLine:
    """One line on stderr while a command works; use it as a context manager.

    Before the first `update` it shows what is being prepared, afterwards a bar. Notes wait for the
    first `update`, so that bad input is answered with one line only; a note that is in `shown` is
    not shown again. With `percent` the bar shows a percentage in place of a count, and a
    `transient` bar vanishes when it is complete.
    """

    def __init__(
        self,
        console: Console,
        name: str,
        total: float | None = None,
        *,
        percent: bool = False,
        transient: bool = False,
        shown: set[str] | None = None,
    ) -> None:
        from rich.progress import (
            BarColumn,
            MofNCompleteColumn,
            Progress,
            TextColumn,
            TimeRemainingColumn,
        )

        self._console = console
        self._counted_from: tuple[int, float] | None = None
        self._waiting: list[str] = []
        self._shown = set() if shown is None else shown
        self._bar = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=8),
            TextColumn("{task.percentage:>3.0f} %") if percent else MofNCompleteColumn(),
            TextColumn("{task.fields[numbers]}", markup=False),
            TimeRemainingColumn(compact=True),
            console=console,
            speed_estimate_period=STEADY if percent else 30.0,
            transient=transient,
            disable=transient and not console.is_terminal,
        )
        self._task = self._bar.add_task(_short(name), total=total, numbers="")
        self._status = console.status(f"preparing {_plain(_short(name))}")

    def __enter__(self) -> ProgressLine:
        if not self._bar.disable:
            self._status.start()
        return self

    def __exit__(self, kind: object, *error: object) -> None:
        """Leave the terminal as it was; after success show notes that still wait."""
        self._status.stop()
        if kind is None:
            self._print_waiting()
            self._bar.update(self._task, numbers="")  # those of the last row are not the result
        if self._bar.live.is_started:
            self._bar.stop()

    def preparing(self, text: str) -> None:
        """Say what is being prepared; the bar is not there yet."""
        self._status.update(_plain(text))

    def update(
        self,
        done: float,
        numbers: str = "",
        *,
        total: float | None = None,
        name: str | None = None,
    ) -> None:
        """Show the bar at `done` with a few numbers; None keeps the total and the name."""
        self._start_bar()
        self._bar.update(self._task, completed=done, numbers=numbers, total=total, description=name)

    def advance(self, steps: float) -> None:
        """Show the bar `steps` further on."""
        self._start_bar()
        self._bar.update(self._task, advance=steps)

    def show_row(self, row: Row, more: str = "") -> None:
        """Show the bar at an evaluated round, with its numbers and `more`.

        The time before the second row is not counted as speed: programs are compiled in it.
        """
        if self._counted_from is None and row["round"] > 0:
            self._counted_from = row["round"], row["seconds"]
        numbers = filter(None, [row_numbers(row), more, self._speed(row)])
        self.update(row["round"] + 1, "  ".join(numbers))

    def _speed(self, row: Row) -> str:
        first, begun = self._counted_from or (row["round"], row["seconds"])
        if row["round"] <= first or row["seconds"] <= begun:
            return ""
        speed = (row["round"] - first) / (row["seconds"] - begun)
        return f"{speed:.{0 if speed >= 10 else 1}f} rounds/s"

    def note(self, text: str) -> None:
        """Print a note above the bar, as soon as the bar is there."""
        if self._bar.live.is_started:
            self._print_note(text)
        else:
            self._waiting.append(text)

    @contextmanager
    def noting_warnings(self) -> Iterator[None]:
        """Show warnings as notes."""
        with warnings.catch_warnings():
            warnings.simplefilter("always")
            warnings.showwarning = lambda message, *_, **__: self.note(str(message))
            yield

    def warn(self, text: str) -> None:
        """Print a line above the bar at once."""
        self._console.print(f"[yellow]{_plain(text)}[/]", highlight=False)

    def _start_bar(self) -> None:
        if not self._bar.live.is_started:
            self._status.stop()
            self._print_waiting()
            self._bar.start()

    def _print_waiting(self) -> None:
        for text in self._waiting:
            self._print_note(text)
        self._waiting.clear()

    def _print_note(self, text: str) -> None:
        if text not in self._shown:
            self._shown.add(text)
            self._console.print(f"[yellow]note:[/] {_plain(text)}", highlight=False)


@contextmanager
def showing_rounds(
    rounds: int, show: bool | None, on_row: Callable[[Row], None] | None
) -> Iterator[Callable[[Row], None]]:
    """A function that takes every row: it shows a progress line, and passes the row on.

    `show` None means: if stderr is a terminal. The line vanishes when training ends.
    """
    visible = sys.stderr.isatty() if show is None else show
    if not visible:
        yield on_row or (lambda row: None)
        return
    from rich.console import Console

    with ProgressLine(Console(stderr=True), "rounds", rounds, transient=True) as line:

        def shown(row: Row) -> None:
            line.show_row(row)
            if on_row:
                on_row(row)

        yield shown


def row_numbers(row: Row) -> str:
    """Return objective, limits and epsilon in few words."""
    numbers = [f"objective {row['objective']:.4g}"]
    if row["constraints"]:
        over = max(row["constraints"])
        numbers.append(f"limits {'broken' if over > 0 else 'kept'} by {abs(over):.3f}")
    if "epsilon" in row:
        numbers.append(f"ε {row['epsilon']:.3g}")
    return "  ".join(numbers)


def _plain(text: str) -> str:
    """The text, in which brackets are no markup."""
    from rich.markup import escape

    return escape(text)


def _short(name: str) -> str:
    return name if len(name) <= LONGEST_NAME else "…" + name[-LONGEST_NAME + 1 :]
