"""How long parties take to find their common ids, all of them on the cores of this machine."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import Any

from fedssca.privacy import require_privacy

__all__ = ["align_ids", "measure_psi"]

SIZES = ((100_000, 2), (100_000, 5), (1_000_000, 2))
QUICK = ((2_000, 2), (2_000, 5))


def align_ids(ids: int, parties: int, tick: Callable[[int], None]) -> dict[str, float]:
    """Align tables of which half of the ids are common; `tick` gets finished multiplications.

    Returns the elapsed and the processor seconds. The result is compared with Python's own
    intersection.
    """
    from fedssca.privacy.psi.protocol import intersect

    sets = _sets_of(parties, ids)
    begun, spent = time.perf_counter(), time.process_time()
    found = intersect(sets, tick)
    seconds = {
        "seconds": time.perf_counter() - begun,
        "processor_seconds": time.process_time() - spent,
    }
    right = sorted(set(sets[0]).intersection(*sets[1:]))
    for own, rows in zip(sets, found, strict=True):
        assert [own[row] for row in rows] == right, "the common ids are wrong"
    return seconds


def measure_psi(quick: bool, tick: Callable[[str], None]) -> dict[str, Any]:
    """Return `psi`: the seconds of alignments, by the number of ids and of parties."""
    require_privacy("rbcl")
    details = {}
    for ids, parties in QUICK if quick else SIZES:
        name, work, done = f"{parties} parties, {ids:,} ids each", parties * parties * ids, 0

        def told(count: int, name: str = name, work: int = work) -> None:
            nonlocal done
            done += count
            tick(f"{name}: {done / work:.0%}")

        details[name] = align_ids(ids, parties, told)
    return {"psi": {n: row["seconds"] for n, row in details.items()}, "psi_seconds": details}


def _sets_of(parties: int, ids: int) -> list[list[str]]:
    shuffler = random.Random(0)
    common = [f"patient-{number:09d}" for number in range(ids // 2)]
    sets = [
        common + [f"only-{party}-{number:09d}" for number in range(ids - len(common))]
        for party in range(parties)
    ]
    for own in sets:
        shuffler.shuffle(own)
    return sets
