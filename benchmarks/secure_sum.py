"""What a hidden sum costs: all parties' work in one thread, and the bytes that they send.

    python benchmarks/secure_sum.py [--size 101632] [--parties 3 10 100] [--quick]

Prints seconds per sum (the median of some; CPU time of this process, so that other programs count
less), the bytes up against plain uint64, and CKKS beside it. `--size 1` shows what keys, shares and
boxes cost without the masks.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Collection, Mapping
from typing import Any

import numpy as np

from fedssca.privacy.sums.ckks import EncryptedSumClient, EncryptedSumServer
from fedssca.privacy.sums.graph import Rules
from fedssca.privacy.sums.keys import simulated_identities
from fedssca.privacy.sums.masked_client import MaskedSumClient
from fedssca.privacy.sums.masked_server import MaskedSumServer
from fedssca.rounds.aggregate import Adder, Answerer, Arrays

RUN = bytes(16)
WHEN = {"reply": "before they answer", "unmask": "after they answered"}


class Bench:
    """Parties in this process; who is in `gone` vanishes in that phase."""

    def __init__(self, parties: int, size: int, make: Callable[[int, Any], Answerer]) -> None:
        identities = simulated_identities(parties)
        self.halves = [make(number, identities[number]) for number in range(parties)]
        draw = np.random.default_rng(0).normal
        self.inputs = [draw(size=size).astype(np.float32) for _ in range(parties)]
        self.gone: dict[str, Collection[int]] = {}
        self.up: dict[str, int] = {}

    def ask(self, phase: str, sent: Mapping[int, Arrays]) -> dict[int, Arrays]:
        """Hand over, count what comes back."""
        found = {
            who: self.halves[who].handle(phase, arrays, lambda who=who: self.inputs[who])
            for who, arrays in sent.items()
            if who not in self.gone.get(phase, ())
        }
        self.up[phase] = sum(a.nbytes for said in found.values() for a in said.values())
        return found

    def sums(self, adder: Adder, repeats: int) -> tuple[list[float], float]:
        """Seconds of each sum, and the relative error of the last."""
        seconds, asked = [], range(len(self.inputs))
        for _ in range(repeats):
            begun = time.process_time()
            found = adder.gather(self.ask, asked, np.zeros(len(self.inputs[0])))
            seconds.append(time.process_time() - begun)
        exact = np.sum([self.inputs[who] for who in found.who], axis=0, dtype=float)
        return seconds, float(np.linalg.norm(found.total - exact) / np.linalg.norm(exact))


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--size", type=int, default=101_632)
    parser.add_argument("--parties", type=int, nargs="+", default=[3, 10, 100])
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    size, repeats = options.size, 2 if options.quick else 7
    print("| numbers | clients | neighbours | sum | CPU seconds | bytes up / uint64 |", end="")
    print(" relative error |\n|---|---|---|---|---|---|---|")
    for parties in options.parties:
        rules = Rules(RUN, parties)
        bench = Bench(parties, size, lambda n, who, rules=rules: MaskedSumClient(n, who, rules))
        adder = MaskedSumServer(rules)
        first, error = bench.sums(adder, 1)
        _line(bench, parties, rules, "the first, all keys are new", first, error)
        seconds, error = bench.sums(adder, repeats)
        _line(bench, parties, rules, "a later one", seconds, error)
        for phase, count in (("reply", 3 * parties // 10), ("unmask", parties // 10)):
            if count:  # of three parties none may vanish in "unmask"
                bench.gone = {phase: range(count)}
                seconds, error = bench.sums(adder, 2)
                _line(bench, parties, rules, f"{count} vanish {WHEN[phase]}", seconds, error)
                bench.gone = {}
    for parties in (10,) if 10 in options.parties else ():
        bench = Bench(parties, size, lambda n, who: EncryptedSumClient(n, who, RUN, 1))
        adder = EncryptedSumServer(RUN, 1)
        bench.sums(adder, 1)
        seconds, error = bench.sums(adder, repeats)
        _line(bench, parties, None, "CKKS", seconds, error)


def _line(
    bench: Bench, parties: int, rules: Rules | None, what: str, seconds: list[float], error: float
) -> None:
    up = sum(bench.up.get(phase, 0) for phase in ("reply", "unmask", "open"))
    plain = 8 * len(bench.inputs[0]) * parties
    near = rules.degree(parties) if rules else 0
    print(
        f"| {len(bench.inputs[0]):,} | {parties} | {near or '-'} | {what} | "
        f"{statistics.median(seconds):.2f} | {up / plain:.3f} | {error:.0e} |",
        flush=True,
    )


if __name__ == "__main__":
    main()
