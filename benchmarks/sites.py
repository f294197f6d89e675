"""What sites cost in memory and a round in time, in a deployment on this machine.

`fedssca bench --only sites` for other numbers of sites, as a table.

    python benchmarks/sites.py --sites 50 --rounds 31 --rows 0   # no curve of the memory
    python benchmarks/sites.py --sites 4 --rounds 500
"""

from __future__ import annotations

import argparse
import json
import sys
import warnings
from pathlib import Path

from cells import markdown

from fedssca.studies.bench.sites import measured


def main() -> None:
    """Measure, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name, default in (("sites", 50), ("rounds", 100), ("rows", 10)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--logs", type=Path, help="where the output of processes goes if it fails")
    said = parser.parse_args()
    warnings.simplefilter("ignore")

    def tick(text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    found = measured(said.sites, said.rounds, said.rows, tick, said.logs)
    print(json.dumps(found), file=sys.stderr)
    of, curve = found["sites"], found["sites_memory"]
    shown = f"{of['server_megabytes_end']:.0f}"
    if said.rows:
        told = (curve[0], curve[len(curve) // 2], curve[-1])
        shown = ", ".join(f"{row['server']:.0f} (round {row['round']})" for row in told)
    row = {
        "sites": of["sites"],
        "MB per site": f"{of['megabytes_per_site']:.0f}",
        "one round": f"{of['seconds_per_round']:.2f} s",
        "the bare engine": f"{of['seconds_per_round'] / of['ratio']:.2f} s",
        "ratio": f"{of['ratio']:.2f}",
        "MB of the server": shown,
    }
    print(markdown([row]))


if __name__ == "__main__":
    main()
