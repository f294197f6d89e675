"""The server's view of the sites: who lives, whether an answer fits, what a round cost.

A site that cannot be reached or does not answer in time is dropped for the rest of the job. An
answer that is broken (no message of ours, of another round, of a wrong shape, not finite) is not
used; who gives three in a row is dropped too. Every such event is told with the site's name.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import jax
import numpy as np

from fedssca.errors import UserError
from fedssca.rounds.codec import Letter, WireError, arrays_of, decode, encode, read_note, tree_of

__all__ = ["Answer", "Away", "Crew", "Link", "Tally", "finite"]

PATIENCE = 3
"""Broken answers in a row after which a site is dropped."""


class Answer(NamedTuple):
    """What came back from a site; `data` None: nothing, for the reason in `error`."""

    data: Any
    error: str = ""
    seconds: float = 0.0


class Link(Protocol):
    """Carries letters to sites, all at once, and brings back what they answer."""

    def ask(self, letters: Mapping[str, bytes], timeout: float) -> Mapping[str, Answer]:
        """One answer for every site that was asked."""


class Away(UserError):
    """The run cannot go on without these sites."""

    def __init__(self, sites: Sequence[str], why: str) -> None:
        super().__init__(why)
        self.sites = list(sites)


class Tally(NamedTuple):
    """What one site sent and took in a round."""

    seconds: float = 0.0
    bytes_down: int = 0
    bytes_up: int = 0


def finite(due: Any, arrays: Mapping[str, np.ndarray]) -> Any:
    """A tree of the shapes that are due, of finite numbers; else a WireError."""
    tree = tree_of(due, arrays)
    if not all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(tree)):
        raise WireError("its answer holds numbers that are not finite")
    return tree


class Crew:
    """All sites of a run, in the order of the census."""

    def __init__(
        self,
        link: Link,
        names: Sequence[str],
        run: bytes,
        *,
        needed: int,
        timeout: float,
        tell: Callable[[dict[str, Any]], None],
    ) -> None:
        self.names, self.live = list(names), list(range(len(names)))
        self._link, self._run = link, run
        self._needed, self._timeout, self._tell = needed, timeout, tell
        self._strikes = [0] * len(names)
        self._why: dict[int, str] = {}
        self.tallies: dict[int, Tally] = {}

    def ask(
        self,
        kind: str,
        round_: int,
        arrays: Mapping[int, Mapping[str, np.ndarray]],
        timeout: float = 0.0,
        *,
        fatal: bool = True,
    ) -> dict[int, Letter]:
        """The letters that came back, of those that are letters.

        What a site says went wrong there is raised, or (not `fatal`) counts as a broken answer. A
        peer that a party could not reach is Away.
        """
        sent = {
            number: encode(Letter(kind, self._run, round_, dict(own)))
            for number, own in arrays.items()
            if number in self.live
        }
        back = self._link.ask(
            {self.names[number]: data for number, data in sent.items()}, timeout or self._timeout
        )
        found: dict[int, Letter] = {}
        complaints: dict[int, Any] = {}
        for number, data in sent.items():
            answer = back[self.names[number]]
            self._count(number, len(data), answer)
            if answer.data is None:
                self._drop(number, round_, answer.error)
                continue
            try:
                letter = self._checked(decode(answer.data), kind, round_)
            except WireError as error:
                self._strike(number, round_, str(error))
                continue
            if letter.kind == "error":
                complaints[number] = read_note(letter)
            else:
                found[number] = letter
        for number, complaint in complaints.items():
            why = f"{self.names[number]}: {complaint['message']}"
            if complaint.get("peer") in self.names:
                raise Away([complaint["peer"]], f"round {round_}: {why}")
            if fatal:
                raise UserError(why)
            self._strike(number, round_, str(complaint["message"]))
        return found

    def call(
        self,
        kind: str,
        round_: int,
        asked: Mapping[int, Any],
        due: Callable[[int], Any],
    ) -> dict[int, Any]:
        """Trees to sites, trees back; only those that fit, in the order of the sites."""
        packed: dict[int, dict[str, np.ndarray]] = {}
        kept: list[tuple[Any, dict[str, np.ndarray]]] = []
        for number, tree in asked.items():  # the same tree for all is packed once
            same = next((arrays for other, arrays in kept if other is tree), None)
            packed[number] = arrays_of(tree) if same is None else same
            kept.append((tree, packed[number]))

        def read(number: int, arrays: dict[str, np.ndarray]) -> Any:
            return finite(due(number), arrays)

        return self.exchange(kind, round_, packed, read)

    def exchange(
        self,
        kind: str,
        round_: int,
        sent: Mapping[int, Mapping[str, np.ndarray]],
        read: Callable[[int, dict[str, np.ndarray]], Any],
    ) -> dict[int, Any]:
        """Arrays to sites; what `read` makes of those that come back, or a strike."""
        found = {}
        for number, letter in self.ask(kind, round_, sent, fatal=False).items():
            try:
                found[number] = read(number, letter.arrays)
            except WireError as error:
                self._strike(number, round_, str(error))
                continue
            self._strikes[number] = 0
        self.check(round_)
        return found

    def check(self, round_: int) -> None:
        """Enough sites for the run to go on, or Away."""
        if len(self.live) >= self._needed:
            return
        gone = [name for i, name in enumerate(self.names) if i not in self.live]
        raise Away(
            gone,
            f"round {round_}: {', '.join(gone)} away, {len(self.live)} of {len(self.names)} sites "
            f"left and {self._needed} needed",
        )

    def all_or_away(self, asked: Iterable[int], found: Mapping[int, Any], round_: int) -> None:
        """Where everybody is needed: raise Away with who is missing, and why."""
        missing = [i for i in asked if i not in found]
        if missing:
            names = [self.names[i] for i in missing]
            raise Away(names, f"round {round_}: no usable answer from {self.told(missing)}")

    def told(self, numbers: Iterable[int]) -> str:
        """These sites by name, each with what was last wrong with it."""
        whys = {self.names[i]: self._why.get(i, "") for i in numbers}
        return ", ".join(f"{name} ({why})" if why else name for name, why in whys.items())

    def _checked(self, letter: Letter, kind: str, round_: int) -> Letter:
        if letter.run != self._run:
            raise WireError("its answer belongs to another run")
        if letter.round != round_:
            raise WireError(f"its answer is of round {letter.round}, due is round {round_}")
        if letter.kind not in (kind, "error"):
            raise WireError(f"its answer is {letter.kind!r}, due is {kind!r}")
        return letter

    def _count(self, number: int, down: int, answer: Answer) -> None:
        old = self.tallies.get(number, Tally())
        up = len(answer.data) if isinstance(answer.data, bytes) else 0
        self.tallies[number] = Tally(
            old.seconds + answer.seconds, old.bytes_down + down, old.bytes_up + up
        )

    def _drop(self, number: int, round_: int, why: str) -> None:
        self.live.remove(number)
        self._say(number, round_, f"dropped: {why}")

    def _strike(self, number: int, round_: int, why: str) -> None:
        self._strikes[number] += 1
        self._say(number, round_, f"answer not used: {why}")
        if self._strikes[number] >= PATIENCE:
            self._drop(number, round_, f"{PATIENCE} broken answers in a row")

    def _say(self, number: int, round_: int, what: str) -> None:
        self._why[number] = what
        event = {"round": round_, "site": self.names[number], "event": what}
        self._tell(event | {"time": time.time(), "live": len(self.live)})
