"""Seconds to align tables by their ids: all parties on this machine, each as it would be alone.

Run: python benchmarks/psi.py [ids of each party x parties ...]; default 100000x2 100000x3 100000x5
1000000x2. Half of the ids are common. "elapsed" is the whole protocol by the clock, every party's
work on the cores of this machine; "CPU per party" is what one party does, hashing and multiplying
I sets, which it shares out over its own cores. Results are checked against Python's intersection.
"""

from __future__ import annotations

import sys

from fedssca.privacy.psi.protocol import multiplications
from fedssca.studies.bench.align import align_ids
from fedssca.system import cores


def main(sizes: list[tuple[int, int]]) -> None:
    print(f"{len(cores())} cores")
    print(
        "| ids per party | parties | multiplications | elapsed | CPU of all | CPU per party |",
        end="",
    )
    print(" sent per party |\n|---|---|---|---|---|---|---|")
    for ids, parties in sizes:
        took = align_ids(ids, parties, lambda count: None)
        seconds, busy = took["seconds"], took["processor_seconds"]
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
