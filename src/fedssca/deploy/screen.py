"""What the submitting side shows: round, objective, constraint values, sites alive."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from fedssca.deploy.submit import Follower

__all__ = ["watching"]


@contextmanager
def watching(console: Console, name: str, rounds: int, sites: int) -> Iterator[Follower]:
    """A progress bar and lines above it; on a quiet console nothing."""
    bar = Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=12),
        MofNCompleteColumn(),
        TextColumn("{task.fields[numbers]}", markup=False),
        console=console,
    )
    task = bar.add_task(name, total=rounds - 1, numbers="starting")

    def row(row: dict[str, Any], live: Sequence[str]) -> None:
        values = "".join(f" {value:+.3f}" for value in row["constraints"][:2])
        numbers = f"F_0 {row['objective']:.4g}" + (f"  F_m{values}" if values else "")
        numbers += f"  ε {row['epsilon']:.3g}" if "epsilon" in row else ""
        pace = row["round"] / row["seconds"] if row["seconds"] > 0 else 0.0
        numbers += f"  {len(live)}/{sites} sites  {pace:.1f} rounds/s"
        bar.update(task, completed=row["round"], numbers=numbers)

    def say(line: str) -> None:
        bar.console.print(f"[yellow]{escape(line)}[/]", highlight=False)

    with bar:
        yield Follower(row, say)
