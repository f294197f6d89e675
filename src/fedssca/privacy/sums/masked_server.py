"""The server's half of the secure sum: it forwards sealed boxes and adds up masked messages.

A masked message is indistinguishable from random numbers. Only the sum can be opened, and only if
enough parties agree. The module `masked_client` describes the messages.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from fedssca.privacy.sums import Refused
from fedssca.privacy.sums.agreement import Locked, statement, unlock
from fedssca.privacy.sums.graph import MaskGraph, Rules
from fedssca.privacy.sums.keys import (
    Forged,
    MaskStream,
    as_array,
    pack_fields,
    unpack_fields,
)
from fedssca.privacy.sums.mask_seeds import opened_seeds
from fedssca.privacy.sums.masked_client import commitment, digest_of
from fedssca.privacy.sums.shamir import SHARE, recover
from fedssca.privacy.sums.sum_layout import MASKED, SumLayout
from fedssca.rounds.aggregate import Arrays, Ask, Gathered, complete

__all__ = ["MaskedSumServer"]


class Epoch(NamedTuple):
    """What the server knows of an epoch: parties that exchanged keys and share masks."""

    graph: MaskGraph
    """Which parties share masks."""
    near: dict[int, tuple[int, ...]]
    """The neighbours of each party."""
    live: dict[int, tuple[int, ...]]
    """For each party that sent shares: those of its neighbours that also sent shares."""
    seeds: dict[int, bytes]
    """The sealed seeds of each party's masks in the next sum."""
    boxes: dict[int, dict[int, bytes]]
    """Before the first sum: sender -> receiver -> the sealed share of what opens the seeds."""

    @property
    def members(self) -> list[int]:
        """The parties whose messages may be in the sum."""
        return sorted(self.live)


class MaskedReply(NamedTuple):
    """What one party sent for a sum."""

    masked: dict[str, np.ndarray]
    """The vectors of the masked message y_i."""
    commit: bytes
    """The commitment to the seed b_i."""
    seeds: bytes
    """The sealed seeds of its masks in the next sum."""
    boxes: dict[int, bytes]
    """Receiver -> the sealed shares of b_i and of what opens the next seeds."""


class MaskedSumServer:
    """Adds up the masked messages and opens the sum."""

    def __init__(self, rules: Rules) -> None:
        self._rules, self._masks = rules, MaskStream()
        self._epoch = self._number = 0
        self._current: Epoch | None = None
        self._misfits: list[tuple[int, int]] = []
        """(holder, owner) of what did not fit in the last sum: one of the two sent it wrong."""

    def gather(self, ask: Ask, asked: Sequence[int], like: Any) -> Gathered:
        """Return the sum over those of `asked` that answer; `like` has the form of a message."""
        layout = SumLayout.of(like)
        while True:
            epoch, self._current = self._current, None
            if epoch is None or set(epoch.live) != set(asked):
                epoch = self._set_up(ask, asked)
            replies = self._masked(ask, epoch, layout)
            if epoch.graph.unprotected(replies):
                asked = sorted(replies)  # Nothing was opened: the parties that answer get new keys.
                continue
            total = self._opened(ask, epoch, replies, layout)
            answered = tuple(sorted(replies))
            wrong = liars(self._misfits, max(1, self._rules.colluders()))
            return Gathered(layout.unpack(total), answered, wrong)

    def _set_up(self, ask: Ask, asked: Sequence[int]) -> Epoch:
        """Start an epoch: new keys for all of `asked`."""
        while True:
            self._epoch += 1
            request = {"epoch": np.asarray(self._epoch, np.int64)}
            keys = {
                who: pack_fields(said["channel"].tobytes(), said["sign"].tobytes())
                for who, said in complete(
                    ask("keys", dict.fromkeys(asked, request)), "channel", "sign"
                ).items()
            }
            self._check_enough(keys)
            graph = self._rules.graph(keys)
            near = {who: graph.neighbours(who) for who in keys}
            request["members"] = np.array(sorted(keys), np.int32)
            theirs = {
                who: as_array(b"".join([keys[j] for j in graph.contacts(who)])) for who in keys
            }
            shared = ask("shares", {who: request | {"keys": theirs[who]} for who in keys})
            given = complete(shared, "boxes", "seeds")
            boxes = {
                who: found
                for who, said in given.items()
                if (found := _addressed(said["boxes"], near[who])) is not None
            }
            self._check_enough(boxes)
            if not graph.unprotected(boxes):
                live = {who: tuple(j for j in near[who] if j in boxes) for who in boxes}
                seeds = {who: given[who]["seeds"].tobytes() for who in boxes}
                return Epoch(graph, near, live, seeds, boxes)
            asked = sorted(boxes)

    def _masked(self, ask: Ask, epoch: Epoch, layout: SumLayout) -> dict[int, MaskedReply]:
        """Return the masked replies that have the right form."""
        self._number += 1
        requests = dict.fromkeys(epoch.members, self._order())
        if epoch.boxes:  # This is the first sum of an epoch.
            members = {"members": np.array(epoch.members, np.int32)}
            for who, near in epoch.live.items():
                own = as_array(pack_fields(*(epoch.boxes[j][who] for j in near)))
                requests[who] = requests[who] | members | {"boxes": own}
        replies = {}
        addends = len(epoch.members)
        names = (MASKED, "seeds", "commit", "boxes")
        for who, said in complete(ask("reply", requests), *names).items():
            boxes = _addressed(said["boxes"], epoch.live[who])
            if boxes is not None and layout.fits(said, addends):
                masked = {name: said[name] for name in layout.nothing(addends)}
                replies[who] = MaskedReply(
                    masked, said["commit"].tobytes(), said["seeds"].tobytes(), boxes
                )
        self._check_enough(replies)
        return replies

    def _opened(
        self, ask: Ask, epoch: Epoch, replies: Mapping[int, MaskedReply], layout: SumLayout
    ) -> dict[str, np.ndarray]:
        """Return the sum of the replies without their masks."""
        alive = sorted(replies)
        dead = [who for who in epoch.members if who not in replies]
        lists = self._order() | {
            "alive": np.array(alive, np.int32),
            "dead": np.array(dead, np.int32),
        }
        requests = {}
        for who in alive:
            own = pack_fields(*(replies[j].boxes[who] for j in epoch.live[who] if j in replies))
            requests[who] = lists | {"boxes": as_array(own)}
        said = complete(ask("unmask", requests), "box", "locks", "pads")
        self._check_enough(said)
        self._misfits = []
        shares = _collected(epoch, replies, self._unlocked(epoch, alive, dead, said))
        total = layout.nothing(len(epoch.members))
        for who in alive:
            for name, added in replies[who].masked.items():
                total[name] += added
            seed = self._joined(epoch, who, shares, partial(self._fits, replies[who]))
            self._masks.add_to_all(total.values(), seed, -1)
        for who in dead:
            self._cancel(total, epoch, who, shares, replies)
        if not dead and len(said) == len(alive):
            seeds = {who: reply.seeds for who, reply in replies.items()}
            self._current = epoch._replace(seeds=seeds, boxes={})
        return total

    def _unlocked(
        self, epoch: Epoch, alive: list[int], dead: list[int], said: Mapping[int, Arrays]
    ) -> dict[int, bytes]:
        """Return party -> the shares that it reveals, of the parties with which a quorum agrees."""
        graph, found = epoch.graph, {}
        about = self._about("sum", digest_of(graph.order), digest_of(epoch.members))
        told = statement(about, alive, dead)
        there = set(alive)
        given: dict[int, dict[int, bytes]] = {}
        for witness in graph.witnesses:
            if witness in said:
                data, others = said[witness]["pads"].tobytes(), [w for w in alive if w != witness]
                for k, owner in enumerate(others):
                    given.setdefault(owner, {})[witness] = data[SHARE * k : SHARE * (k + 1)]
        for who, own in said.items():
            witnesses = graph.witnesses_of(who, there)
            vouched = given.get(who, {})
            opened = unlock(
                Locked(own["box"].tobytes(), own["locks"].tobytes()),
                {k: vouched[witness] for k, witness in enumerate(witnesses) if witness in vouched},
                told,
                graph.needed_for(who),
            )
            self._misfits += [(witnesses[place], who) for place in opened.wrong]
            if opened.secret is not None:
                found[who] = opened.secret
        return found

    def _fits(self, reply: MaskedReply, seed: bytes) -> bool:
        return commitment(self._number, seed) == reply.commit

    def _cancel(
        self,
        total: dict[str, np.ndarray],
        epoch: Epoch,
        gone: int,
        shares: Mapping[int, dict[int, bytes]],
        replies: Mapping[int, MaskedReply],
    ) -> None:
        """Remove the masks that its neighbours share with a party that did not answer."""
        near = epoch.near[gone]

        def fits(secret: bytes) -> bool:
            try:
                opened_seeds(secret, epoch.seeds[gone], len(near))
            except Forged:
                return False
            return True

        secret = self._joined(epoch, gone, shares, fits)
        seeds = opened_seeds(secret, epoch.seeds[gone], len(near))
        for who, seed in zip(near, seeds, strict=True):
            if who in replies:
                self._masks.add_to_all(total.values(), seed, -1 if who < gone else 1)

    def _joined(
        self,
        epoch: Epoch,
        who: int,
        shares: Mapping[int, dict[int, bytes]],
        fits: Callable[[bytes], bool],
    ) -> bytes:
        """Reconstruct the secret of `who`, although some shares may be wrong."""
        held, needed = shares.get(who, {}), epoch.graph.shares
        if len(held) < needed:
            raise Refused(
                f"{len(held)} neighbours of party {who} sent their shares and {needed} are needed: "
                "this sum cannot be opened (privacy.neighbours, privacy.threshold)"
            )
        found = recover(held, needed, fits)
        if found.secret is None:
            raise Refused(
                f"the shares of the secret of party {who} do not fit: this sum cannot be opened"
            )
        self._misfits += [(epoch.near[who][place - 1], who) for place in found.wrong]
        return found.secret

    def _about(self, what: str, *rest: int | bytes) -> bytes:
        return pack_fields(what, self._rules.run, self._epoch, self._number, *rest)

    def _order(self) -> Arrays:
        numbers = {"epoch": self._epoch, "number": self._number}
        return {name: np.asarray(value, np.int64) for name, value in numbers.items()}

    def _check_enough(self, who: Mapping[int, Any]) -> None:
        if len(who) < self._rules.least:
            raise Refused(
                f"{len(who)} of {self._rules.asked} parties answer and {self._rules.least} are "
                "needed to open a secure sum (privacy.threshold)"
            )


def _addressed(boxes: np.ndarray, receivers: Sequence[int]) -> dict[int, bytes] | None:
    """Return receiver -> box, or None unless there is one box for each receiver."""
    try:
        return dict(zip(receivers, unpack_fields(boxes.tobytes(), len(receivers)), strict=True))
    except Forged:
        return None


def _collected(
    epoch: Epoch, replies: Mapping[int, MaskedReply], revealed: Mapping[int, bytes]
) -> dict[int, dict[int, bytes]]:
    """Return owner of a secret -> position of the holder among its neighbours -> share."""
    found: dict[int, dict[int, bytes]] = {}
    for holder, data in revealed.items():
        near = epoch.live[holder]
        owners = [j for j in near if j in replies] + [j for j in near if j not in replies]
        if len(data) == SHARE * len(owners):  # Shares of a wrong size are ignored.
            for k, owner in enumerate(owners):
                place = epoch.near[owner].index(holder) + 1
                found.setdefault(owner, {})[place] = data[SHARE * k : SHARE * (k + 1)]
    return found


def liars(misfits: Sequence[tuple[int, int]], most: int) -> tuple[int, ...]:
    """Return the parties that must have lied, if at most `most` parties lie.

    A misfit says that one of two parties lied, and not which. What two honest parties send fits, so
    an honest party has misfits with `most` others at most; whoever has them with more has lied.
    """
    others: dict[int, set[int]] = {}
    for left, right in misfits:
        others.setdefault(left, set()).add(right)
        others.setdefault(right, set()).add(left)
    return tuple(sorted(who for who, with_whom in others.items() if len(with_whom) > most))
