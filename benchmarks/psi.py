"""Seconds to align tables by their ids: all parties on this machine, each as it would be alone.

Run: python benchmarks/psi.py [ids of each party] [parties ...]; default 100000 ids, 2, 3 and 5
parties. Half of the ids are common. "all" is the whole protocol by the clock, every party's work on
the cores of this machine; "CPU of each" is what one party does, hashing and multiplying I sets,
which it shares out over its own cores. Results are checked against Python's own intersection.
"""

from __future__ import annotations

import random
import sys
import time

from fedssca.privacy.psi.protocol import intersect, multiplications
from fedssca.system import cores


def sets_of(parties: int, ids: int) -> list[list[str]]:
    shuffler = random.Random(0)
    common = [f"patient-{number:09d}" for number in range(ids // 2)]
    sets = [
        common + [f"only-{party}-{number:09d}" for number in range(ids - len(common))]
        for party in range(parties)
    ]
    for own in sets:
        shuffler.shuffle(own)
    return sets


def main(ids: int, counts: list[int]) -> None:
    print(f"{len(cores())} cores, {ids:,} ids a party, half of them common")
    print("parties  multiplications   all (s)  CPU of all (s)  CPU of each (s)  MB sent by each")
    for parties in counts:
        sets = sets_of(parties, ids)
        begun, spent = time.perf_counter(), time.process_time()
        found = intersect(sets)
        seconds, busy = time.perf_counter() - begun, time.process_time() - spent
        right = sorted(set(sets[0]).intersection(*sets[1:]))
        for own, rows in zip(sets, found, strict=True):
            if [own[row] for row in rows] != right:
                raise SystemExit("the result is wrong")
        work = multiplications([ids] * parties)
        sent = parties * ids * 32 / 1e6
        print(
            f"{parties:>7} {work:>16,} {seconds:>9.1f} {busy:>15.1f} {busy / parties:>16.1f} "
            f"{sent:>16.1f}",
            flush=True,
        )


if __name__ == "__main__":
    numbers = [int(argument) for argument in sys.argv[1:]]
    main(numbers[0] if numbers else 100_000, numbers[1:] or [2, 3, 5])
