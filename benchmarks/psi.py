"""Seconds to align tables by their ids: all parties on this machine, each as it would be alone.

Run: python benchmarks/psi.py [ids of each party x parties ...]; default 100000x2 100000x3 100000x5
1000000x2. Half of the ids are common. "elapsed" is the whole protocol by the clock, every party's
work on the cores of this machine; "CPU per party" is what one party does, hashing and multiplying
I sets, which it shares out over its own cores. Results are checked against Python's intersection.
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


def main(sizes: list[tuple[int, int]]) -> None:
    print(f"{len(cores())} cores")
    print(
        "| ids per party | parties | multiplications | elapsed | CPU of all | CPU per party |",
        end="",
    )
    print(" sent per party |\n|---|---|---|---|---|---|---|")
    for ids, parties in sizes:
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
            f"| {ids:,} | {parties} | {work:,} | {seconds:.0f} s | {busy:.0f} s | "
            f"{busy / parties:.0f} s | {sent:.1f} MB |",
            flush=True,
        )


if __name__ == "__main__":
    asked = sys.argv[1:] or ["100000x2", "100000x3", "100000x5", "1000000x2"]
    main([(int(ids), int(count)) for ids, count in (each.split("x") for each in asked)])
