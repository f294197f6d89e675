"""One slow client of eight: the time to the same loss if rounds wait for it, and if they do not.

    python benchmarks/stragglers.py              # simulated, on the clock of the simulation
    python benchmarks/stragglers.py --deployed   # eight real sites (NVFlare), in seconds

The slow client takes ten times as long for a message as the others. In the deployment every site
sleeps before it answers, so that what is measured is waiting and not the speed of this machine.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import warnings
from pathlib import Path
from typing import Any

from fedssca.run.build import build
from fedssca.run.config import parse, render
from fedssca.run.execute import train

CLIENTS, FACTOR, TARGET = 8, 10, 0.35
SLEEP = 0.3
"""The seconds that a deployed site sleeps before it answers; the slow one ten times as long."""
CONFIG = """
[data]
name = "digits"
clients = 8
[model]
hidden = 16
[problem]
objective = "loss"
[algorithm]
batch = 20
rounds = {rounds}
[run]
evaluate_every = {every}
"""
STALE = ["algorithm.staleness=30", "algorithm.enough=0.75"]
BASE, WAITING = "without a slow client", "rounds that wait"
CASES: dict[str, tuple[bool, list[str]]] = {
    BASE: (False, []),
    WAITING: (True, []),
    "rounds that do not wait": (True, STALE),
}


def reached(rows: list[dict[str, Any]], time: str) -> float:
    """The time of the first evaluated round whose training loss is at most the target."""
    return next((row[time] for row in rows if row["train_cost"] <= TARGET), float("nan"))


def simulated(slow: bool, settings: list[str], seed: int) -> float:
    """Time units until the loss is reached; rounds that wait take as long as the slowest client."""
    text = CONFIG.format(rounds=401, every=5)
    if settings:
        settings = [*settings, f"algorithm.delays=[{'1,' * (CLIENTS - 1)}{FACTOR}]"]
    job = build(parse(text, [*settings, f"run.seed={seed}"]))
    rows = train(job).rows
    if settings:
        return reached(rows, "clock")
    return reached(rows, "round") * (FACTOR if slow else 1)


def deployed(slow: bool, settings: list[str], seed: int) -> float:
    """Seconds of training until the loss is reached, with eight sites in processes of their own."""
    from fedssca.deploy.engines import nvflare
    from fedssca.deploy.local import local_deployment
    from fedssca.deploy.submit import Follower, SubmittedRun, await_sites, follow
    from fedssca.system import keep_compiled_programs

    def tell(line: str) -> None:
        print(line, file=sys.stderr, flush=True)  # the table alone goes to stdout

    keep_compiled_programs()  # once for all sites
    config = parse(CONFIG.format(rounds=41, every=20), [*settings, f"run.seed={seed}"])
    folder = Path(__file__).parents[1] / "tests/deploy/mortal"
    sleeps = {f"site-{i + 1}": SLEEP for i in range(CLIENTS)}
    if slow:
        sleeps[f"site-{CLIENTS}"] = FACTOR * SLEEP
    environment = {
        "FEDSSCA_SLOW": ",".join(f"{site} train/reply * {s}" for site, s in sleeps.items()),
        "PYTHONPATH": os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")]),
    }
    with (
        tempfile.TemporaryDirectory() as out,
        local_deployment(nvflare, config, CLIENTS, environment=environment) as made,
        nvflare.open_session(made.kits["submit"]) as session,
    ):
        await_sites(session, made.sites, 600)
        run = SubmittedRun.new(made.sites, render(config))
        run.write(Path(out) / "run")
        follow(session, run, Path(out) / "run", False, Follower(lambda *_: None, tell), 600.0)
        lines = (Path(out) / "run/metrics.jsonl").read_text().splitlines()
    rows = [json.loads(line) for line in lines]
    first = rows[0]["seconds"]
    return reached(rows, "seconds") - first


def main() -> None:
    """Measure all cases and print the ratio to the run without a slow client."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--deployed", action="store_true")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--brief", action="store_true", help="leave out the rounds that wait")
    said = parser.parse_args()
    warnings.simplefilter("ignore")
    measure = deployed if said.deployed else simulated
    print(f"| training loss <= {TARGET} | time | ratio |\n|---|---|---|")
    for seed in range(said.seeds):
        base = float("nan")
        for name, case in CASES.items():
            if said.brief and name == WAITING:
                continue
            time = measure(*case, seed)
            base = time if name == BASE else base
            print(f"| {name}, seed {seed} | {time:.4g} | {time / base:.2f} |", flush=True)


if __name__ == "__main__":
    main()
