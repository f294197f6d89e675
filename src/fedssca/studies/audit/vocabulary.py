"""The words of an audit that decide something: observers, phases and levels of protection."""

from __future__ import annotations

from enum import StrEnum

__all__ = ["Level", "Observer", "Phase"]


class Observer(StrEnum):
    """Who receives a message with gradients."""

    SERVER = "server"
    PEER = "peer"


class Phase(StrEnum):
    """The phase of a round in which an observer receives something."""

    REPLY = "reply"
    OPEN_REPLY = "reply (open collection)"
    PUBLISH = "publish"
    SHARE = "share"
    MASKED_SHARE = "share (masked)"
    HEAD = "head"


class Level(StrEnum):
    """How well rows are protected from an observer, from best to worst."""

    PROTECTED = "protected"
    AT_RISK = "at risk"
    OPEN = "open"

    @property
    def severity(self) -> int:
        """The position in the order from best (0) to worst."""
        return list(Level).index(self)
