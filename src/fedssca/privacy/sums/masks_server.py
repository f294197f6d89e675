"""The server's half of the secure sum: sealed boxes are passed on, what is masked is added up.

Nothing else reaches it: what a party sends looks like noise, and only what all of it adds up to can
be opened, once enough parties say so. See `secure_sum` for the messages.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from fedssca.privacy.sums.fixed_point import Layout, from_fixed
from fedssca.privacy.sums.graph import Circle, Rules
from fedssca.privacy.sums.keys import Forged, KeyPair, Masks, context, parts_of
from fedssca.privacy.sums.masks import Refused, as_array, commitment
from fedssca.privacy.sums.shamir import SHARE, combine
from fedssca.rounds.aggregate import Arrays, Ask, Gathered, complete

__all__ = ["Opener"]


class Group(NamedTuple):
    """The server's view of an epoch."""

    circle: Circle
    near: dict[int, tuple[int, ...]]
    """The neighbours of each,"""
    live: dict[int, tuple[int, ...]]
    """and, of all who gave shares, those of their neighbours who did."""
    publics: dict[int, bytes]
    """The mask keys of the coming sum."""
    boxes: dict[int, dict[int, bytes]]
    """Before the first sum: sender -> receiver -> the sealed share of the sender's key."""

    @property
    def members(self) -> list[int]:
        """Those whose messages may be in the sum."""
        return sorted(self.live)


class Reply(NamedTuple):
    """What one party sent for a sum."""

    masked: np.ndarray
    commit: bytes
    public: bytes
    boxes: dict[int, bytes]


class Opener:
    """Adds up and opens the sum."""

    def __init__(self, rules: Rules) -> None:
        self._rules, self._masks = rules, Masks()
        self._epoch = self._number = 0
        self._group: Group | None = None

    def gather(self, ask: Ask, asked: Sequence[int], like: Any) -> Gathered:
        """The sum over those of `asked` who answer; `like` has the shape of a message."""
        layout = Layout.of(like)
        while True:
            group, self._group = self._group, None
            if group is None or set(group.live) != set(asked):
                group = self._set_up(ask, asked)
            replies = self._masked(ask, group, layout.size)
            if group.circle.thin(replies):
                asked = sorted(replies)  # nothing was opened: new keys for those who live
                continue
            total = self._opened(ask, group, replies, layout.size)
            return Gathered(layout.unpack(from_fixed(total)), tuple(sorted(replies)))

    def _set_up(self, ask: Ask, asked: Sequence[int]) -> Group:
        """New keys for all of `asked`."""
        while True:
            self._epoch += 1
            epoch = {"epoch": np.asarray(self._epoch, np.int64)}
            keys = {
                who: [said[name].tobytes() for name in ("channel", "mask", "sign")]
                for who, said in complete(
                    ask("keys", dict.fromkeys(asked, epoch)), "channel", "mask", "sign"
                ).items()
            }
            self._check_enough(keys)
            circle = self._rules.circle(self._epoch, keys)
            near = {who: circle.neighbours(who) for who in keys}
            epoch["members"] = np.array(sorted(keys), np.int32)
            theirs = {who: context(*(k for j in near[who] for k in keys[j])) for who in keys}
            shared = ask("shares", {who: epoch | {"keys": as_array(theirs[who])} for who in keys})
            boxes = {
                who: found
                for who, said in complete(shared, "boxes").items()
                if (found := _addressed(said["boxes"], near[who])) is not None
            }
            self._check_enough(boxes)
            if not circle.thin(boxes):
                live = {who: tuple(j for j in near[who] if j in boxes) for who in boxes}
                publics = {who: keys[who][1] for who in boxes}
                return Group(circle, near, live, publics, boxes)
            asked = sorted(boxes)

    def _masked(self, ask: Ask, group: Group, size: int) -> dict[int, Reply]:
        """What the parties answer, of those whose answer has the right form."""
        self._number += 1
        letters = dict.fromkeys(group.members, self._order())
        if group.boxes:  # the first sum of an epoch
            members = {"members": np.array(group.members, np.int32)}
            for who, near in group.live.items():
                own = as_array(context(*(group.boxes[j][who] for j in near)))
                letters[who] = letters[who] | members | {"boxes": own}
        replies = {}
        names = ("masked", "mask", "commit", "boxes")
        for who, said in complete(ask("reply", letters), *names).items():
            boxes = _addressed(said["boxes"], group.live[who])
            masked = said["masked"]
            if boxes is not None and masked.dtype == np.uint64 and masked.shape == (size,):
                replies[who] = Reply(
                    masked, said["commit"].tobytes(), said["mask"].tobytes(), boxes
                )
        self._check_enough(replies)
        return replies

    def _opened(
        self, ask: Ask, group: Group, replies: Mapping[int, Reply], size: int
    ) -> np.ndarray:
        """The sum of those who replied, without masks."""
        alive = sorted(replies)
        dead = [who for who in group.members if who not in replies]
        lists = self._order() | {
            "alive": np.array(alive, np.int32),
            "dead": np.array(dead, np.int32),
        }
        letters = {}
        for who in alive:
            own = context(*(replies[j].boxes[who] for j in group.live[who] if j in replies))
            letters[who] = lists | {"boxes": as_array(own)}
        said = complete(ask("unmask", letters), "seed", "alive", "dead")
        self._check_enough(said)
        shares = _collected(group, replies, said)
        total = np.zeros(size, np.uint64)
        for who in alive:
            total += replies[who].masked
            fits = partial(self._fits, replies[who])
            own = said[who]["seed"].tobytes() if who in said else b""
            seed = own if fits(own) else _joined(group, who, shares, fits)
            self._masks.add(total, seed, -1)
        for who in dead:
            self._cancel(total, group, who, shares, replies)
        if not dead and len(said) == len(alive):
            publics = {who: reply.public for who, reply in replies.items()}
            self._group = group._replace(publics=publics, boxes={})
        return total

    def _fits(self, reply: Reply, seed: bytes) -> bool:
        return commitment(self._number, seed) == reply.commit

    def _cancel(
        self,
        total: np.ndarray,
        group: Group,
        gone: int,
        shares: Mapping[int, dict[int, bytes]],
        replies: Mapping[int, Reply],
    ) -> None:
        """Take out the masks that the neighbours of one who did not answer put in."""
        public = group.publics[gone]
        key = KeyPair(_joined(group, gone, shares, lambda secret: KeyPair(secret).public == public))
        for who in group.live[gone]:
            if who in replies:
                pair = sorted((gone, who))
                about = context("mask", self._rules.run, self._epoch, self._number, *pair)
                seed = key.agree(group.publics[who], about)
                self._masks.add(total, seed, -1 if who < gone else 1)

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
    """Receiver -> box; None: there is not one for each."""
    try:
        return dict(zip(receivers, parts_of(boxes.tobytes(), len(receivers)), strict=True))
    except Forged:
        return None


def _collected(
    group: Group, replies: Mapping[int, Reply], said: Mapping[int, Arrays]
) -> dict[int, dict[int, bytes]]:
    """Whose secret -> place of the holder among the owner's neighbours -> share."""
    found: dict[int, dict[int, bytes]] = {}
    for holder, own in said.items():
        owners = {
            "alive": [j for j in group.live[holder] if j in replies],
            "dead": [j for j in group.live[holder] if j not in replies],
        }
        for name, whose in owners.items():
            data = own[name].tobytes()
            if len(data) == SHARE * len(whose):  # else: as good as none
                for k, owner in enumerate(whose):
                    place = group.near[owner].index(holder) + 1
                    found.setdefault(owner, {})[place] = data[SHARE * k : SHARE * (k + 1)]
    return found


def _joined(
    group: Group,
    who: int,
    shares: Mapping[int, dict[int, bytes]],
    fits: Callable[[bytes], bool],
) -> bytes:
    """The secret of `who` from its shares; a wrong one is left out, as long as there are more."""
    held, needed = shares.get(who, {}), group.circle.shares
    if len(held) < needed:
        raise Refused(
            f"{len(held)} neighbours of party {who} gave their shares and {needed} are needed: "
            "this sum stays closed (privacy.neighbours, privacy.threshold)"
        )
    points = sorted(held)
    for begin in range(len(points) - needed + 1):
        secret = combine({x: held[x] for x in points[begin : begin + needed]}, needed)
        if fits(secret):
            return secret
    raise Refused(f"the shares of party {who}'s secret do not fit it: this sum stays closed")
