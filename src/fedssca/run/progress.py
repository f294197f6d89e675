"""How long work tells its progress, without knowing where it is shown."""

from __future__ import annotations

from typing import Protocol

__all__ = ["ProgressDisplay"]


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
