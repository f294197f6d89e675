"""Random schedules of faults and lies against the secure sum: what the server could open.

    python benchmarks/secure_sum_faults.py [--schedules 20000] [--seed 0]

In every schedule parties vanish at random, some lie about their shares, and the server tells the
parties different things: other members, other lists of live parties, boxes that were swapped,
changed, replayed or left out, keys of its own, sums that were asked for before. Up to c parties
(`Rules.colluders`) give the server all their secrets. Afterwards everything that was sent is used
to open as much as possible. Printed are the number of sums by their end, and

    wrong sums              a sum that the server's half returned and that is not the exact one
    opened alone            groups with fewer than two honest parties whose sum could be computed
    opened too small        groups with fewer honest parties than the rules promise
    two openings of a sum   sums of which two different groups could be computed

All four must be 0. A group that could be computed is computed, and compared with what it should be.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections import Counter
from collections.abc import Iterable, Mapping
from hashlib import blake2b

import numpy as np
from secure_sum_opening import RUN, Masked, Opening, Told, box_for

from fedssca.privacy.sums import Refused
from fedssca.privacy.sums.agreement import statement
from fedssca.privacy.sums.fixed_point import to_fixed
from fedssca.privacy.sums.graph import Rules
from fedssca.privacy.sums.keys import (
    KEY,
    Forged,
    KeyPair,
    as_array,
    pack_fields,
    unpack_fields,
)
from fedssca.privacy.sums.masked_client import MaskedSumClient, digest_of
from fedssca.privacy.sums.masked_server import MaskedSumServer
from fedssca.privacy.sums.shamir import SHARE
from fedssca.rounds.aggregate import Arrays

SIZE = 2


class FastIdentity:
    """Signs with keyed hashes under keys that all parties know and the server does not."""

    def __init__(self, number: int, secret: bytes) -> None:
        self._number, self._secret = number, secret

    def sign(self, data: bytes) -> bytes:
        """This party's signature."""
        return blake2b(pack_fields(self._number, data), key=self._secret).digest()

    def verify(self, who: int, data: bytes, signature: bytes) -> None:
        """Raise Forged unless party `who` signed `data`."""
        if FastIdentity(who, self._secret).sign(data) != signature:
            raise Forged(f"the signature is not that of party {who}")


class Table:
    """Parties in this process, and a server that lies to them."""

    def __init__(self, chance: random.Random, counts: Counter[str]) -> None:
        self._chance, self._counts = chance, counts
        count = chance.choice([2, 3, 4, 4, 5, 6, 7, 8, 9, 10, 12])
        neighbours, threshold = chance.choice([0, 0, 0, 2, 4]), chance.choice([0, 0, 0.6, 0.9])
        if chance.random() < 0.005:
            count, neighbours = 36, 8
        self._rules = Rules(RUN, count, neighbours, threshold)
        most = self._rules.colluders()
        self._colluders = set(chance.sample(range(count), chance.randint(0, most)))
        self._inputs = [np.array([chance.gauss(0, 10) for _ in range(SIZE)]) for _ in range(count)]
        people = [FastIdentity(i, b"directory") for i in range(count)]
        self._clients = [MaskedSumClient(i, one, self._rules) for i, one in enumerate(people)]
        self._server = MaskedSumServer(self._rules)
        self._lies = chance.random() < 0.75
        self._faults = chance.choice([0.0, 0.0, 0.05, 0.15])
        self._liars = set(chance.sample(range(count), chance.choice([0, 0, 0, 1])))
        self._history: list[tuple[str, int, Arrays]] = []
        self._split: dict[str, list[set[int]]] = {}
        self._sealed: dict[int, bytes] = {}
        self._begin()

    def _begin(self) -> None:
        """Forget the sum before."""
        self._masked: dict[int, Masked] = {}
        self._told: dict[int, list[Told]] = {}

    def play(self) -> None:
        """A few sums, each counted by its end."""
        for _ in range(self._chance.randint(1, 3)):
            everyone = list(range(len(self._clients)))
            try:
                found = self._server.gather(self._ask, everyone, self._inputs[0])
            except Refused:
                self._counts["refused"] += 1
            else:
                exact = sum(np.rint(self._inputs[i] * 2.0**40) for i in found.who) * 2.0**-40
                right = np.array_equal(found.total, exact) and len(found.who) >= self._rules.least
                self._counts["exact" if right else "wrong sums"] += 1
                self._counts["liars named"] += bool(found.liars)
                self._counts["honest named"] += bool(set(found.liars) - self._liars) * (
                    not self._lies
                )
            self._open_all()

    def _ask(self, phase: str, sent: Mapping[int, Arrays]) -> dict[int, Arrays]:
        if phase in ("keys", "reply"):
            self._open_all()
        self._split = {}
        found = {}
        for who, arrays in sent.items():
            if self._chance.random() < self._faults:
                continue
            told = self._lied(phase, who, arrays) if self._lies else arrays
            said = self._deliver(phase, who, told)
            if said is not None:
                found[who] = self._changed(phase, who, said)
            if self._lies and self._history and self._chance.random() < 0.03:
                self._deliver(*self._chance.choice(self._history[-40:]))  # A replay.
        return found

    def _deliver(self, phase: str, who: int, told: Arrays) -> Arrays | None:
        """Hand a request to a party, and keep what it answers."""
        self._history.append((phase, who, told))
        client = self._clients[who]
        seeds, sealed = client._seeds, self._sealed.get(who, b"")
        try:
            said = client.handle(phase, told, lambda: self._inputs[who])
        except Refused:
            self._counts["requests refused"] += 1
            return None
        if phase == "reply":
            assert client._graph is not None
            assert client._pending is not None
            members, held = client._members, dict(client._pending.held)
            self._masked[who] = Masked(
                said, client._graph, members, held, seeds, sealed, client._number
            )
        if "seeds" in said:
            self._sealed[who] = said["seeds"].tobytes()
        if phase == "unmask":
            assert client._graph is not None
            alive, dead = ([int(i) for i in told[name]] for name in ("alive", "dead"))
            names = "sum", RUN, client._epoch, int(told["number"])
            groups = digest_of(client._graph.order), digest_of(client._members)
            words = statement(pack_fields(*names, *groups), alive, dead)
            self._told.setdefault(who, []).append(Told(words, set(alive), said))
        return said

    def _changed(self, phase: str, who: int, said: Arrays) -> Arrays:
        """A lying party sends wrong shares."""
        if who not in self._liars or phase != "unmask":
            return said
        name = self._chance.choice(["pads", "locks", "box"])
        wrong = said[name].copy()
        if self._chance.random() < 0.5:
            wrong ^= 1
        else:
            wrong[: SHARE // 2] ^= 255
        return said | {name: wrong}

    # The lies of the server.

    def _view(self, phase: str, who: int, real: Iterable[int]) -> list[int]:
        """The list that `who` is told: one of a few different ones, each with `who` in it."""
        real = list(real)
        if phase not in self._split:
            many = self._chance.choice([1, 2, 2, 3, len(real)])
            spare = max(1, len(real) - self._rules.least + self._chance.choice([0, 0, 1]))
            self._split[phase] = [
                set(self._chance.sample(real, min(len(real), self._chance.randint(0, spare))))
                for _ in range(many)
            ]
        away = self._chance.choice(self._split[phase])
        return [i for i in real if i not in away or i == who]

    def _lied(self, phase: str, who: int, arrays: Arrays) -> Arrays:
        told = dict(arrays)
        if phase == "shares" and self._chance.random() < 0.1:
            told["members"] = np.array(self._view(phase, who, told["members"].tolist()), np.int32)
            if self._chance.random() < 0.3:  # A member that does not exist.
                told["members"] = np.append(told["members"], np.int32(len(self._clients)))
        if phase == "shares" and self._chance.random() < 0.03:
            keys = bytearray(told["keys"].tobytes())
            own = KeyPair().public
            keys[4 : 4 + KEY] = own  # The server's own key in the place of a party's.
            told["keys"] = as_array(bytes(keys))
        if phase == "reply" and "members" in told and self._chance.random() < 0.2:
            self._other_members(who, told)
        if phase == "unmask" and self._chance.random() < 0.7:
            self._other_lists(who, told)
        if "boxes" in told and self._chance.random() < 0.05:
            told["boxes"] = self._other_boxes(phase, who, told["boxes"])
        return told

    def _other_members(self, who: int, told: Arrays) -> None:
        near = self._clients[who]._neighbours
        real = [int(i) for i in told["members"]]
        view = self._view("reply", who, real)
        here = [i for i in near if i in real]
        try:
            boxes = dict(zip(here, unpack_fields(told["boxes"].tobytes(), len(here)), strict=True))
        except Forged:
            return
        told["members"] = np.array(view, np.int32)
        told["boxes"] = as_array(pack_fields(*(boxes[i] for i in here if i in view)))

    def _other_lists(self, who: int, told: Arrays) -> None:
        """Another division into alive and dead, with the boxes that belong to it."""
        if who not in self._masked:
            return
        own = self._masked[who]
        answered = [i for i in own.members if i in self._masked]
        alive = self._view("unmask", who, answered)
        told["alive"] = np.array(alive, np.int32)
        told["dead"] = np.array([i for i in own.members if i not in alive], np.int32)
        boxes = [box_for(self._masked, i, who) for i in own.held if i in alive]
        told["boxes"] = as_array(pack_fields(*boxes))

    def _other_boxes(self, phase: str, who: int, boxes: np.ndarray) -> np.ndarray:
        old = [a["boxes"] for p, w, a in self._history if p == phase and w == who and "boxes" in a]
        kind = self._chance.choice(["changed", "cut", "old"])
        if kind == "old" and old:
            return self._chance.choice(old)
        if kind == "cut" or not boxes.size:
            return boxes[: boxes.size // 2]
        wrong = boxes.copy()
        wrong[self._chance.randrange(wrong.size)] ^= 1
        return wrong

    # What the server can open.

    def _open_all(self) -> None:
        """Open as much as the answers and the colluders' secrets allow, and judge it."""
        if self._masked:
            self._judge(Opening(self._clients, self._colluders, self._masked, self._told))
        self._begin()

    def _judge(self, opening: Opening) -> None:
        groups = opening.groups()
        self._counts["two openings of a sum"] += len(groups) > 1
        for group, total in groups:
            exact = sum(to_fixed(self._inputs[i], 1) for i in group)
            assert np.array_equal(total, np.asarray(exact)), "the attacker's arithmetic is wrong"
            self._counts["groups opened"] += 1
            self._counts["opened alone"] += len(group) < 2
            promised = self._rules.least - len(self._colluders)
            self._counts["opened too small"] += len(group) < promised


COUNTED = {
    "exact": "sums that were exact",
    "refused": "sums that were refused",
    "requests refused": "requests that clients refused",
    "groups opened": "groups whose sum could be opened",
    "liars named": "clients that lied and were named",
    "wrong sums": "wrong sums",
    "opened alone": "single messages opened",
    "opened too small": "groups that were smaller than promised",
    "two openings of a sum": "sums of which two groups could be opened",
    "honest named": "honest clients that were named",
}


def main() -> None:
    """Play all schedules and print the counts."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--schedules", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    counts: Counter[str] = Counter()
    for schedule in range(options.schedules):
        Table(random.Random(1_000_003 * options.seed + schedule), counts).play()
        if schedule % 500 == 499:
            print(schedule + 1, dict(counts), file=sys.stderr, flush=True)
    print(f"| | count |\n|---|---|\n| schedules | {options.schedules:,} |")
    for name, meaning in COUNTED.items():
        print(f"| {meaning} | {counts[name]:,} |")


if __name__ == "__main__":
    main()
