"""What a deployed run records of its sites: answers, seconds and bytes in rounds, and events."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from fedssca.report.limits import number

__all__ = ["SiteRecord"]

Row = dict[str, Any]
MOST_SITES = 1000
"""Sites of which a page tells."""
MOST_BINS = 100
"""Rounds are joined in at most so many groups, whose means are drawn."""
MOST_POINTS = 20_000
"""Numbers of all sites together that are drawn."""
MOST_EVENTS = 50
DROPPED, LATE, UNUSED = "dropped:", "late:", "answer not used:"
"""How the texts of events begin that `deploy/server/sites.py` records."""


class SiteRound(NamedTuple):
    """A round as the server has recorded it."""

    round: float
    seconds: dict[str, float]
    """The seconds of every site that was asked."""
    missing: frozenset[str]
    """The sites whose answers are not in the round."""


class SiteRecord:
    """The record of all sites of a run: lines of sites.jsonl and events.jsonl are added to it."""

    def __init__(self, lines: Iterable[Row] = (), events: Iterable[Row] = ()) -> None:
        self._rounds: list[SiteRound] = []
        self._totals: dict[str, list[float]] = {}
        self._events: list[Row] = []
        self.add_rounds(lines)
        self.add_events(events)

    def add_events(self, events: Iterable[Row], anew: bool = False) -> None:
        """Add lines of events.jsonl; if `anew`, they take the place of those known so far."""
        known = [] if anew else self._events
        self._events = known + [event for event in events if "event" in event]

    def add_rounds(self, lines: Iterable[Row], anew: bool = False) -> None:
        """Add lines of sites.jsonl, one per round; if `anew`, they are the first ones."""
        if anew:
            self._rounds, self._totals = [], {}
        for line in lines:
            sites = line.get("sites")
            costs = {
                str(name): [number(part) or 0.0 for part in tally[:3]]
                for name, tally in (sites.items() if isinstance(sites, dict) else ())
                if isinstance(tally, list) and len(tally) >= 3
            }
            missing = line.get("missing")
            away = frozenset(map(str, missing)) if isinstance(missing, list) else frozenset()
            for name, tally in costs.items():
                old = self._totals.get(name, [0.0, 0.0, 0.0])
                self._totals[name] = [a + b for a, b in zip(old, tally, strict=True)]
            seconds = {name: tally[0] for name, tally in costs.items()}
            self._rounds.append(SiteRound(number(line.get("round")) or 0, seconds, away))

    def shown(self) -> Row:
        """What a page shows: `sites`, one entry each; `site_rounds`, their rounds; `events`."""
        named = {site for entry in self._rounds for site in (*entry.seconds, *entry.missing)}
        names = sorted(named | {str(event.get("site")) for event in self._events}, key=_in_order)
        names = names[:MOST_SITES]
        return {
            "sites": [self._site(name) for name in names],
            "site_rounds": self._bins(names),
            "events": self._events[-MOST_EVENTS:],
        }

    def _site(self, name: str) -> Row:
        """The entry of a site. It counts as asked in a round that has its costs or misses it."""
        asked = sum(name in one.seconds or name in one.missing for one in self._rounds)
        missing = sum(name in one.missing for one in self._rounds)
        seconds, down, up = self._totals.get(name, [0.0, 0.0, 0.0])
        own = [event for event in self._events if str(event.get("site")) == name]

        def count(begin: str) -> int:
            return sum(str(event["event"]).startswith(begin) for event in own)

        dropped = [event for event in own if str(event["event"]).startswith(DROPPED)]
        return {
            "name": name,
            "asked": asked,
            "rounds": asked - missing,
            "seconds": seconds,
            "bytes_down": down,
            "bytes_up": up,
            "late": count(LATE),
            "unused": count(UNUSED),
            "dropped": self._still_dropped(name, dropped[-1]) if dropped else None,
        }

    def _still_dropped(self, name: str, event: Row) -> float | None:
        """The round in which a site was dropped; None if it has answered in a later one."""
        at = number(event.get("round")) or 0
        back = any(
            one.round > at and name in one.seconds and name not in one.missing
            for one in self._rounds
        )
        return None if back else at

    def _bins(self, names: Sequence[str]) -> Row:
        """Groups of rounds: the last round of each, and per site its mean seconds and its misses.

        A site that was not asked in a group has None.
        """
        most = max(10, min(MOST_BINS, MOST_POINTS // max(1, len(names))))
        size = max(1, math.ceil(len(self._rounds) / most))
        groups = [self._rounds[k : k + size] for k in range(0, len(self._rounds), size)]
        return {
            "round": [group[-1].round for group in groups],
            "seconds": {name: [_mean_seconds(group, name) for group in groups] for name in names},
            "missing": {name: [_missing(group, name) for group in groups] for name in names},
        }


def _mean_seconds(group: Sequence[SiteRound], name: str) -> float | None:
    found = [one.seconds[name] for one in group if name in one.seconds and name not in one.missing]
    return float(f"{sum(found) / len(found):.4g}") if found else None


def _missing(group: Sequence[SiteRound], name: str) -> float | None:
    """The share of the rounds in which a site was asked whose answer is missing."""
    asked = [one for one in group if name in one.seconds or name in one.missing]
    return round(sum(name in one.missing for one in asked) / len(asked), 3) if asked else None


def _in_order(name: str) -> tuple[Any, ...]:
    """Names with numbers in the order of the numbers: site-2 before site-10."""
    head = name.rstrip("0123456789")
    tail = name[len(head) :]
    return head, int(tail[:18] or 0), name
