"""The server's view of the sites: which are alive, which answers are usable, what a round cost.

A site that cannot be reached or does not answer in time is dropped for the rest of the job. If
rounds have a deadline, a site that misses it is late: the round goes on without it, and so do the
next ones until it has answered. It is dropped if it stays silent for as long as a site may take. An
answer that is broken (undecodable, of another round, of a wrong shape, or not finite) is not used,
and a site that sends three in a row is dropped too. Every such event is recorded with the site that
sent the answer, whatever the answer says of other sites.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeVar

import jax
import numpy as np

from fedssca.deploy.engine import Answer, Link, Patience
from fedssca.deploy.notes import check_answer, one_line
from fedssca.deploy.sums import SUM, marked
from fedssca.errors import UserError
from fedssca.rounds.aggregate import Arrays
from fedssca.rounds.codec import (
    Envelope,
    InvalidMessage,
    arrays_of,
    decode,
    encode,
    read_note,
    tree_of,
)

__all__ = ["SiteCosts", "Sites", "SitesMissing", "finite"]

LOG = logging.getLogger(__name__)
Found = TypeVar("Found")
PATIENCE = 3
"""The number of broken answers in a row after which a site is dropped."""


class SitesMissing(UserError):
    """The run cannot go on without these sites."""

    def __init__(self, sites: Sequence[str], why: str) -> None:
        super().__init__(why)
        self.sites = list(sites)


class SiteCosts(NamedTuple):
    """What one site cost in a round."""

    seconds: float = 0.0
    bytes_down: int = 0
    bytes_up: int = 0


def finite(due: Any, arrays: Mapping[str, np.ndarray]) -> Any:
    """A tree of the shapes that are due and of finite numbers; otherwise a InvalidMessage."""
    tree = tree_of(due, arrays)
    if not all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(tree)):
        raise InvalidMessage("its answer holds numbers that are not finite")
    return tree


class Sites:
    """All sites of a run, in the order of the census."""

    def __init__(
        self,
        link: Link,
        names: Sequence[str],
        run: bytes,
        *,
        needed: int,
        timeout: float,
        record_event: Callable[[dict[str, Any]], None],
        patience: Patience | None = None,
    ) -> None:
        """`needed` sites must be alive for the run to go on; `timeout` is in seconds.

        `patience` is the deadline of training rounds.
        """
        self.names, self.live = list(names), list(range(len(names)))
        self._link, self._run = link, run
        self._needed, self._timeout, self._record_event = needed, timeout, record_event
        self._patience = patience
        self._silent_since: dict[int, float] = {}
        """Late sites, and when the first envelope that they have not answered was sent."""
        self._owed: dict[int, set[tuple[str, int]]] = {}
        """What late sites have been asked and not answered: (kind, round)."""
        self._broken_in_a_row = [0] * len(names)
        self._last_event: dict[int, str] = {}
        self.costs: dict[int, SiteCosts] = {}

    def ask(
        self,
        kind: str,
        round_: int,
        arrays: Mapping[int, Mapping[str, np.ndarray]],
        timeout: float = 0.0,
        *,
        fatal: bool = True,
        patience: Patience | None = None,
    ) -> dict[int, Envelope]:
        """Send arrays to sites and return the envelopes that came back, of those that are valid.

        An error that a site reports is raised or, if not `fatal`, counts as a broken answer. If a
        site says that it could not reach a peer, `SitesMissing` names those that do not answer the
        server either or, if all do, the site that says so.
        """
        sent = {
            number: encode(Envelope(kind, self._run, round_, dict(own)))
            for number, own in arrays.items()
            if number in self.live
        }
        begun, limit = time.monotonic(), timeout or self._timeout
        named = {self.names[number]: data for number, data in sent.items()}
        if patience is None:
            back = self._link.ask(named, limit)
        else:
            enough = min(len(sent), patience.enough)
            back = self._link.ask(named, limit, patience._replace(enough=enough))
        found: dict[int, Envelope] = {}
        reported: dict[int, Any] = {}
        for number, data in sent.items():
            answer = back[self.names[number]]
            self._add_costs(number, len(data), answer)
            if answer.data is None:
                self._owed.setdefault(number, set()).add((kind, round_))
                if not answer.late or self._is_silent(number, round_, begun):
                    self.drop(number, round_, answer.error)
                continue
            self._silent_since.pop(number, None)
            self._owed.pop(number, None)
            envelope = self._usable(number, round_, partial(self._read, answer.data, kind, round_))
            if envelope is None:
                continue
            if envelope.kind == "error":
                reported[number] = read_note(envelope)
            else:
                found[number] = envelope
        for number, told in reported.items():
            why = one_line(told["message"])
            if fatal:
                said = f"{self.names[number]}: {why}"
                if "peer" not in told:
                    raise UserError(said)
                silent = [self.names[one] for one in sent if one not in self.live]
                raise SitesMissing(silent or [self.names[number]], f"round {round_}: {said}")
            self._count_broken(number, round_, why)
        return found

    def exchange(
        self,
        kind: str,
        round_: int,
        sent: Mapping[int, Mapping[str, np.ndarray]],
        read: Callable[[int, dict[str, np.ndarray]], Any],
        patience: Patience | None = None,
    ) -> dict[int, Any]:
        """Send arrays to sites and return what `read` makes of the answers that it accepts."""
        found = {}
        answers = self.ask(kind, round_, sent, fatal=False, patience=patience)
        for number, envelope in answers.items():
            made = self._usable(number, round_, partial(read, number, envelope.arrays))
            if made is not None:
                found[number], self._broken_in_a_row[number] = made, 0
        self.check(round_)
        return found

    def late(
        self, stage: str, round_: int, read: Callable[[int, dict[str, np.ndarray]], Any]
    ) -> dict[int, tuple[int, Any]]:
        """What late sites have sent since: for each the round that it answers, and the message."""
        found = {}
        for name, answer in self._link.late_answers().items():
            number = self.names.index(name)
            owed = self._owed.pop(number, set())
            self._silent_since.pop(number, None)
            due = {of for kind, of in owed if kind == f"{stage}/reply"}
            if number not in self.live or not due:
                continue
            self._add_costs(number, 0, answer)
            read_it = partial(self._read_late, answer.data, f"{stage}/reply", due, number, read)
            if (made := self._usable(number, round_, read_it)) is not None:
                found[number], self._broken_in_a_row[number] = made, 0
        return found

    def _read_late(
        self, data: Any, kind: str, due: set[int], number: int, read: Callable[..., Any]
    ) -> tuple[int, Any]:
        of = decode(data).round
        if of not in due:
            raise InvalidMessage(f"its late answer is of round {of}, which it was not asked")
        envelope = self._read(data, kind, of)
        if envelope.kind == "error":
            raise InvalidMessage(one_line(read_note(envelope)["message"]))
        return of, read(number, envelope.arrays)

    def exchange_trees(
        self,
        kind: str,
        round_: int,
        asked: Mapping[int, Any],
        due: Callable[[int], Any],
    ) -> dict[int, Any]:
        """Send trees to sites and return the trees that have the shapes `due`, in site order."""

        def read(number: int, arrays: dict[str, np.ndarray]) -> Any:
            return finite(due(number), arrays)

        return self.exchange(kind, round_, {i: arrays_of(t) for i, t in asked.items()}, read)

    def exchange_for_sum(
        self,
        stage: str,
        round_: int,
        request: Mapping[int, Arrays],
        read: Callable[[int, dict[str, np.ndarray]], Any],
        phase: str,
        sent: Mapping[int, Arrays],
    ) -> dict[int, Any]:
        """One exchange of a sum; the phase "reply" brings the stage's request too.

        `request` has what each site is sent of it.
        """
        kind = f"{stage if phase == 'reply' else SUM}/{phase}"
        arrays = {number: marked(own) for number, own in sent.items()}
        if phase == "reply":
            arrays = {number: request[number] | own for number, own in arrays.items()}
        return self.exchange(kind, round_, arrays, read, self._patience_in(stage))

    def in_time(self, stage: str, round_: int, asked: Iterable[int]) -> list[int]:
        """Those of `asked` that an exchange can have an answer from.

        These are the live ones. Where rounds have a deadline, they are those of them that have
        answered what they were asked before, if these are enough: the others would be late again.
        """
        patience, live = self._patience_in(stage), [one for one in asked if one in self.live]
        if patience is None:
            return live
        still = set(self._link.busy())
        busy = [number for number in live if self.names[number] in still]
        for number in busy:
            if self._is_silent(number, round_, time.monotonic()):
                self.drop(number, round_, f"no answer in {self._timeout:g} seconds")
        self.check(round_)
        free = [one for one in live if one not in busy]
        live = [one for one in live if one in self.live]
        return free if len(free) >= min(len(live), patience.enough) else live

    def _patience_in(self, stage: str) -> Patience | None:
        """Probes wait for all sites unless there is a deadline: step sizes depend on them."""
        probes = self._patience is not None and self._patience.seconds > 0
        return self._patience if stage == "train" or (stage == "probe" and probes) else None

    def check(self, round_: int) -> None:
        """Raise `SitesMissing` if too few sites are alive for the run to go on."""
        if len(self.live) >= self._needed:
            return
        gone = [name for i, name in enumerate(self.names) if i not in self.live]
        raise SitesMissing(
            gone,
            f"round {round_}: {', '.join(gone)} away, {len(self.live)} of {len(self.names)} sites "
            f"left and {self._needed} needed",
        )

    def check_all(self, asked: Iterable[int], found: Mapping[int, Any], round_: int) -> None:
        """Raise `SitesMissing`, with the reasons, unless every site of `asked` is in `found`."""
        missing = [i for i in asked if i not in found]
        if missing:
            # Sites that could not reach one that is gone are not missing themselves.
            missing = [i for i in missing if i not in self.live] or missing
            names = [self.names[i] for i in missing]
            raise SitesMissing(
                names, f"round {round_}: no usable answer from {self.with_reasons(missing)}"
            )

    def with_reasons(self, numbers: Iterable[int]) -> str:
        """The names of these sites, each with its last event."""
        whys = {self.names[i]: self._last_event.get(i, "") for i in numbers}
        return ", ".join(f"{name} ({why})" if why else name for name, why in whys.items())

    def _usable(self, number: int, round_: int, read: Callable[[], Found]) -> Found | None:
        """What `read` makes of an answer; None if that fails, which counts as a broken answer."""
        try:
            return read()
        except InvalidMessage as error:
            why = one_line(str(error))
        except Exception:
            LOG.exception("an answer of %s cannot be read", self.names[number])
            why = "it cannot be read"
        self._count_broken(number, round_, why)
        return None

    def _read(self, data: Any, kind: str, round_: int) -> Envelope:
        envelope = decode(data)
        if envelope.run != self._run:
            raise InvalidMessage("its answer belongs to another run")
        if envelope.round != round_:
            raise InvalidMessage(f"its answer is of round {envelope.round}, due is round {round_}")
        if envelope.kind not in (kind, "error"):
            raise InvalidMessage(f"its answer is {envelope.kind!r}, due is {kind!r}")
        return check_answer(envelope)

    def _add_costs(self, number: int, down: int, answer: Answer) -> None:
        old = self.costs.get(number, SiteCosts())
        up = len(answer.data) if isinstance(answer.data, bytes) else 0
        self.costs[number] = SiteCosts(
            old.seconds + answer.seconds, old.bytes_down + down, old.bytes_up + up
        )

    def _is_silent(self, number: int, round_: int, begun: float) -> bool:
        """Whether a late site has not answered for so long that it is dropped."""
        if number not in self._silent_since:
            self._silent_since[number] = begun
            self._record(number, round_, "late: rounds go on without it until it answers")
        return time.monotonic() - self._silent_since[number] > self._timeout

    def drop(self, number: int, round_: int, why: str) -> None:
        """Leave a site out for the rest of the job, with a line in the record of events."""
        if number not in self.live:
            return
        self.live.remove(number)
        self._record(number, round_, f"dropped: {one_line(why)}")

    def _count_broken(self, number: int, round_: int, why: str) -> None:
        self._broken_in_a_row[number] += 1
        self._record(number, round_, f"answer not used: {why}")
        if self._broken_in_a_row[number] >= PATIENCE:
            self.drop(number, round_, f"{PATIENCE} broken answers in a row")

    def _record(self, number: int, round_: int, what: str) -> None:
        self._last_event[number] = what
        event = {"round": round_, "site": self.names[number], "event": what}
        self._record_event(event | {"time": time.time(), "live": len(self.live)})
