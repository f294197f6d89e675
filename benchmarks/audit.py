"""What an observer rebuilds on the paper's network (784-128-10, MNIST, ten clients), B = 1 to 100.

Run: python benchmarks/audit.py FOLDER [batches ...]; batches default to 1 10 32 100. Each size
is one `fedssca audit --attack` and leaves FOLDER/<batch>/audit.json and audit.png; sizes that are
there already are not done again. Prints the table of docs/audit.md. Minutes on two cores.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

RUN = """
[data]
name = "mnist"
clients = 10

[model]
hidden = 128

[problem]
objective = "loss"
"""


def audit(folder: Path, batch: int) -> dict:
    out = folder / str(batch)
    if not (out / "audit.json").exists():
        folder.mkdir(parents=True, exist_ok=True)
        run = folder / "run.toml"
        run.write_text(RUN)
        place = os.environ.get("FEDSSCA_DATA")
        more = ["--set", f"data.dir={Path(place) / 'mnist'}"] if place else []
        command = [
            sys.executable,
            "-m",
            "fedssca",
            "audit",
            str(run),
            "--attack",
            "--quiet",
        ]
        command += ["--set", f"algorithm.batch={batch}", *more, "--out", str(out)]
        subprocess.run(command, check=True)
    return json.loads((out / "audit.json").read_text())


def main(folder: Path, batches: list[int]) -> None:
    heads = (
        "B, seen by, what, rows, unknowns, equations, rank, AUC, rebuilt, chance, control, verdict"
    )
    print("| " + heads.replace(", ", " | ") + " |")
    print("| --- " * 12 + "|")
    for batch in batches:
        for entry in audit(folder, batch)["observers"]:
            rank, fight = entry["rank"], entry.get("attack")
            sign = "" if entry["rank_exact"] else ">= "
            cells = [
                batch,
                entry["observer"],
                entry["protection"],
                entry["rows"],
                f"{entry['unknowns']:,}",
                f"{entry['equations']:,}",
                "" if rank is None else f"{sign}{rank:,} of {entry['rank_needed']:,}",
                f"{entry['membership']['auc']:.2f}",
                f"{fight['correlation']:.3f}" if fight else "",
                f"{fight['chance']:.2f}" if fight else "",
                f"{fight['control']:.2f}" if fight else "",
                entry["level"],
            ]
            print("| " + " | ".join(map(str, cells)) + " |", flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), [int(b) for b in sys.argv[2:]] or [1, 10, 32, 100])
