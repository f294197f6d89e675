"""Very many sites: each group makes its own secure sum, and the server adds the sums of groups.

All sites and the server are in one process, and the groups take turns. Times are processor times.

    cost    what a sum costs a site and the server, when all keys are new and later
    risk    how often a group cannot be opened because sites vanish, and how likely any group has
            more colluders than it survives, if sites are put into groups at random

    python benchmarks/tree_of_sums.py               # up to 10,000 sites, several minutes
    python benchmarks/tree_of_sums.py --most 1000
    python benchmarks/tree_of_sums.py --most 0      # the risk alone
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Mapping
from hashlib import sha256
from typing import Any

import numpy as np
from cells import markdown
from scipy.stats import binom, hypergeom

from fedssca.privacy.sums.graph import Rules
from fedssca.privacy.sums.masked_client import MaskedSumClient
from fedssca.privacy.sums.masked_server import MaskedSumServer
from fedssca.rounds.aggregate import Arrays
from fedssca.studies.bench.sums import SumParties

RUN = bytes(16)
NUMBERS = 650
"""The numbers in a message: softmax regression on 8 x 8 images."""
LATER = 1
SHAPES = ((100, 100), (1000, 1000), (1000, 32), (10_000, 32))
"""Sites, and the most sites in a group; the first two are one sum over all."""
MANY, SIZES, PARTS = 10_000, (32, 100), (0.01, 0.05, 0.1, 0.2, 0.3)


class Group(SumParties):
    """The sites of a group, which measure what they themselves spend."""

    def __init__(self, rules: Rules) -> None:
        super().__init__(rules.asked, NUMBERS, lambda n, who: MaskedSumClient(n, who, rules))
        self.spent = 0.0

    def ask(self, phase: str, sent: Mapping[int, Arrays]) -> dict[int, Arrays]:
        """Hand a request over, and note the processor time of all sites."""
        begun = time.process_time()
        found = super().ask(phase, sent)
        self.spent += time.process_time() - begun
        return found


def sizes(sites: int, most: int) -> list[int]:
    """The sizes of the groups, which differ by at most one."""
    groups = math.ceil(sites / most)
    return [sites // groups + (number < sites % groups) for number in range(groups)]


def cost(sites: int, most: int) -> dict[str, Any]:
    """One tree of sums: the first and later ones, each with all groups."""
    spent, used, up = np.zeros(1 + LATER), np.zeros(1 + LATER), np.zeros(1 + LATER)
    total, exact = np.zeros((1 + LATER, NUMBERS)), np.zeros(NUMBERS)
    parts = sizes(sites, most)
    for number, size in enumerate(parts):
        rules = Rules(sha256(RUN + number.to_bytes(4, "big")).digest()[:16], size)
        group, adder = Group(rules), MaskedSumServer(rules)
        exact += np.sum(group.inputs, axis=0, dtype=float)
        for turn in range(1 + LATER):
            group.spent, group.up = 0.0, {}
            begun = time.process_time()
            total[turn] += adder.gather(group.ask, range(size), np.zeros(NUMBERS)).total
            used[turn] += time.process_time() - begun - group.spent
            spent[turn] += group.spent
            up[turn] += sum(group.up.values())
    error = np.linalg.norm(total - exact) / np.linalg.norm(exact)
    assert error < 1e-9, error
    smallest = Rules(RUN, min(parts))
    return {
        "sites": f"{sites:,}",
        "groups": len(parts),
        "sites in a group": " or ".join(map(str, sorted(set(parts)))),
        "least in a sum": smallest.least,
        "colluders c in a group": smallest.colluders(),
        "a site, new keys": f"{1e3 * spent[0] / sites:.1f} ms",
        "a site, later": f"{1e3 * spent[1:].mean() / sites:.1f} ms",
        "the server, new keys": f"{used[0]:.2f} s",
        "the server, later": f"{used[1:].mean():.2f} s",
        "KB up per site, later": f"{up[1:].mean() / sites / 1e3:.1f}",
    }


def risk(part: float) -> dict[str, Any]:
    """What happens to groups of `MANY` sites of which a part vanishes or colludes, at random."""
    row: dict[str, Any] = {"part of all sites": f"{part:.0%}"}
    for size in SIZES:
        rules, groups = Rules(RUN, size), math.ceil(MANY / size)
        lost = binom.sf(size - rules.least, size, part)
        row[f"groups of {size} lost, if they vanish"] = f"{lost:.1g}"
        bad = groups * hypergeom.sf(rules.colluders(), MANY, round(part * MANY), size)
        row[f"some group of {size} open, if they collude"] = f"{min(1.0, bad):.1g}"
    return row


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--most", type=int, default=MANY, help="the most sites that are simulated")
    said = parser.parse_args()
    if shapes := [shape for shape in SHAPES if shape[0] <= said.most]:
        print(markdown([cost(*shape) for shape in shapes]), flush=True)
    print(markdown([risk(part) for part in PARTS]))


if __name__ == "__main__":
    main()
