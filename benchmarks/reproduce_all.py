"""How long all figures of the paper take in one piece, from an empty cache.

python benchmarks/reproduce_all.py --data FOLDER [--runs 1] [--names fig2a ...]

FOLDER holds the folder mnist. The figures and their cache are in build/reproduce_all.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import time
from pathlib import Path

OUT = Path("build/reproduce_all")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--names", nargs="+", default=["all"])
    args = parser.parse_args()
    shutil.rmtree(OUT, ignore_errors=True)
    command = [sys.executable, "-m", "fedssca", "reproduce", *args.names, "--runs", str(args.runs)]
    command += ["--data", str(args.data / "mnist"), "--out", str(OUT), "--quiet"]
    begun = time.perf_counter()
    subprocess.run(command, check=True)
    minutes = (time.perf_counter() - begun) / 60
    count = len(list((OUT / "cache").glob("*.json")))
    print("| figures | runs of each curve | trainings | minutes |")
    print("|---|---|---|---|")
    print(f"| {' '.join(args.names)} | {args.runs} | {count} | {minutes:.1f} |")


if __name__ == "__main__":
    main()
