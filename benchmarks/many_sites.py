"""A real deployment with many sites and faults in its secure sums: is the model right?

One process per site, mutual TLS, loopback. Some sites are killed in the middle of a sum and some
sleep beyond the deadline. The model is compared with that of plain sums in one process over the
sites that were in each round, and the memory of all processes and the time of a round are stated.

    python benchmarks/many_sites.py --sites 30 --killed 3 --slow 2
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import psutil

sys.path.insert(0, str(Path(__file__).parents[1]))

from fedssca.deploy.engine import Answer, Patience
from fedssca.deploy.engines import nvflare
from fedssca.deploy.local import local_deployment, write_site_files
from fedssca.deploy.server.run import RunOrder, RunServer
from fedssca.deploy.submit import Follower, SubmittedRun, await_sites, follow
from fedssca.rounds.codec import decode
from fedssca.run.config import parse, render
from tests.deploy.loopback import RUN, Loopback, parties

CONFIG = """
[data]
name = "digits"
clients = {sites}
[model]
name = "linear"
[algorithm]
name = "sgd"
rate = 0.1
batch = 10
rounds = 31
[run]
evaluate_every = 30
[deploy]
timeout = 120
deadline = {deadline}
"""
FIRST = 5
"""The round of the first fault."""


def faults(sites: int, killed: int, slow: int) -> tuple[dict[str, int], dict[str, int]]:
    """Site -> the round from which it is gone, and site -> the round from which it sleeps."""
    names = [f"site-{sites - k}" for k in range(killed + slow)]
    return (
        {name: FIRST + 3 * k for k, name in enumerate(names[:killed])},
        {name: FIRST + 2 + 4 * k for k, name in enumerate(names[killed:])},
    )


class Replay(Loopback):
    """Sites in this process, of which some are late in some rounds, as (site, round) says."""

    def __init__(self, sites: Any, missing: set[tuple[str, int]]) -> None:
        super().__init__(sites)
        self._missing = missing

    def ask(
        self, envelopes: Mapping[str, bytes], timeout: float, patience: Patience | None = None
    ) -> Mapping[str, Answer]:
        del patience
        told = {site: decode(data) for site, data in envelopes.items()}
        late = {
            site
            for site, envelope in told.items()
            if envelope.kind == "train/reply" and (site, envelope.round) in self._missing
        }
        here = {site: data for site, data in envelopes.items() if site not in late}
        return {**super().ask(here, timeout), **{site: Answer(None, late=True) for site in late}}


def memory(processes: Any) -> int:
    """The proportional memory of all processes and their children, in bytes."""
    total = 0
    for process in processes:
        family = [psutil.Process(process.pid)]
        family += family[0].children(recursive=True)
        for member in family:
            try:
                total += member.memory_full_info().pss
            except psutil.Error:
                continue
    return total


def main() -> None:
    """Deploy, train with faults, compare."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name, default in (("sites", 30), ("killed", 3), ("slow", 2)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--deadline", type=float, default=20.0)
    said = parser.parse_args()
    warnings.simplefilter("ignore")
    gone, late = faults(said.sites, said.killed, said.slow)
    text = CONFIG.format(sites=said.sites, deadline=said.deadline)
    config = parse(text, ["privacy.secure_sum=true", "privacy.threshold=0.6"])
    mortal = str(Path(__file__).parents[1] / "tests/deploy/mortal")
    environment = {
        "FEDSSCA_DEADLY": ",".join(f"{s} train/reply {r}" for s, r in gone.items()),
        "FEDSSCA_SLOW": ",".join(
            f"{s} train/reply {r} {30 * said.deadline:g}" for s, r in late.items()
        ),
        "PYTHONPATH": os.pathsep.join([mortal, os.environ.get("PYTHONPATH", "")]),
    }
    with tempfile.TemporaryDirectory() as scratch:
        out, begun = Path(scratch) / "run", time.perf_counter()
        with (
            local_deployment(nvflare, config, said.sites, environment=environment) as made,
            nvflare.open_session(made.kits["submit"]) as session,
        ):
            await_sites(session, made.sites, 3600)
            print(f"{said.sites} sites connected after {time.perf_counter() - begun:.0f} s")
            most, ended = [0], threading.Event()

            def watch() -> None:
                while not ended.wait(5):
                    most[0] = max(most[0], memory(made.processes.values()))

            watching = threading.Thread(target=watch)
            watching.start()
            run = SubmittedRun.new(made.sites, render(config))
            run.write(out)
            follow(session, run, out, False, Follower(lambda *_: None, print), 3600.0)
            ended.set()
            watching.join()
        rounds = [json.loads(line) for line in (out / "sites.jsonl").read_text().splitlines()]
        missing = {(site, each["round"]) for each in rounds for site in each["missing"]}
        plain = parse(text)
        files = write_site_files(plain, said.sites, Path(scratch) / "data")
        order = RunOrder(plain, made.sites, RUN, False)
        RunServer(order, Replay(parties(files), missing), Path(scratch) / "plain").run()
        ours, theirs = (
            np.load(folder / "model.npz")["w_last"] for folder in (out, Path(scratch) / "plain")
        )
        error = float(np.linalg.norm(ours - theirs) / np.linalg.norm(theirs))
        calm = [r["seconds"] for r in rounds if not r["missing"] and r["round"] > 2]
        fewer = [r["seconds"] for r in rounds if r["missing"]]
    print(f"relative difference from plain sums over the same sites: {error:.1e}")
    print(f"missing in {len({number for _, number in missing})} rounds: ", end="")
    print(", ".join(sorted({site for site, _ in missing})))
    print(f"seconds per round, median: all sites {statistics.median(calm):.2f}", end=", ")
    print(f"after the faults {statistics.median(fewer):.2f}")
    print(f"memory of all processes: {most[0] / 2**30:.1f} GiB")
    sys.exit(error > 1e-5)


if __name__ == "__main__":
    main()
