"""What a hidden sum costs: all parties' work in one thread, and the bytes that they send.

    python benchmarks/secure_sum.py [--size 101632] [--parties 3 10 100] [--quick]

Prints seconds per sum (the median of some; CPU time of this process, so that other programs count
less), the bytes up against plain uint64, and CKKS beside it. In the first sum of a simulation each
signature is verified once in the process; in all other rows every party does all its own work.
`--size 1` shows what keys, shares and boxes cost without the masks.
"""

from __future__ import annotations

import argparse
import statistics

from fedssca.privacy.sums.ckks import EncryptedSumClient, EncryptedSumServer
from fedssca.privacy.sums.graph import Rules
from fedssca.studies.bench.sums import RUN, SumParties, masked_parties

WHEN = {"reply": "before they answer", "unmask": "after they answered"}


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
        simulated, adder = masked_parties(parties, size, alone=False)
        first, error = simulated.sums(adder, 1)
        _line(simulated, parties, rules, "the first of a simulation", first, error)
        bench, adder = masked_parties(parties, size)
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
        bench = SumParties(parties, size, lambda n, who: EncryptedSumClient(n, who, RUN, 1))
        adder = EncryptedSumServer(RUN, 1)
        bench.sums(adder, 1)
        seconds, error = bench.sums(adder, repeats)
        _line(bench, parties, None, "CKKS", seconds, error)


def _line(
    bench: SumParties,
    parties: int,
    rules: Rules | None,
    what: str,
    seconds: list[float],
    error: float,
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
