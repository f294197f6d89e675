"""The one exception that users meet: one line that says what is wrong and what would be right."""

from __future__ import annotations

__all__ = ["UserError"]


class UserError(ValueError):
    """Bad input. The message is one line: what is wrong, where, and what would be right."""
