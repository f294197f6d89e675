"""A real deployment with many sites and faults in its secure sums: is the model right?

One process per site, mutual TLS, loopback. A first job, without faults, runs rounds with secure
sums and bare exchanges of the engine with as many bytes in turn. In a second one some sites are
killed in the middle of a sum and some sleep for two deadlines. Its model is compared with that of
plain sums in one process over the sites that were in each round. The memory of all processes and
the time of a round are stated.

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

sys.path.insert(0, str(Path(__file__).parents[1]))

from fedssca.deploy.engine import Answer, Patience
from fedssca.deploy.local import write_site_files
from fedssca.deploy.server.run import RunOrder, RunServer
from fedssca.rounds.codec import decode
from fedssca.run.config import parse
from fedssca.studies.bench.sites import HIDDEN, running_sites
from fedssca.studies.bench.sites import RUN as TASK
from tests.deploy.loopback import RUN, Loopback, parties

CALM, ROUNDS = 41, 71
"""The rounds of the first job and of the second one."""
FIRST = 45
"""The round of the first fault, which the first job does not reach."""


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


def main() -> None:
    """Deploy, train with faults, compare."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name, default in (("sites", 30), ("killed", 3), ("slow", 2)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--deadline", type=float, default=20.0)
    parser.add_argument("--logs", type=Path, help="where the output of processes goes if it fails")
    said = parser.parse_args()
    warnings.simplefilter("ignore")
    gone, late = faults(said.sites, said.killed, said.slow)
    text = TASK.format(sites=said.sites, rounds=ROUNDS, every=100)
    text += f"deadline = {said.deadline}\n"
    config, calm = parse(text, HIDDEN), parse(text, [*HIDDEN, f"algorithm.rounds={CALM}"])
    here = Path(__file__).parent
    paths = [str(here.parent / "tests/deploy/mortal")]
    environment = {
        "FEDSSCA_DEADLY": ",".join(f"{s} train/reply {r}" for s, r in gone.items()),
        "FEDSSCA_SLOW": ",".join(
            f"{s} train/reply {r} {2 * said.deadline:g}" for s, r in late.items()
        ),
        "PYTHONPATH": os.pathsep.join([*paths, os.environ.get("PYTHONPATH", "")]),
    }
    with tempfile.TemporaryDirectory() as scratch:
        out, begun = Path(scratch) / "run", time.perf_counter()
        with running_sites(config, said.sites, said.logs, environment) as running:
            made = running.made
            print(f"{said.sites} sites connected after {time.perf_counter() - begun:.0f} s")
            most, ended = [0.0], threading.Event()

            def watch() -> None:
                while not ended.wait(10):
                    most[0] = max(most[0], sum(running.memory().values()))

            watching = threading.Thread(target=watch, daemon=True)
            watching.start()
            measured = running.compare(calm, Path(scratch) / "calm")
            print(f"seconds per round, mean: {measured['ours']:.3f} with secure sums,", end=" ")
            print(f"{measured['bare']:.3f} of the bare engine, d = {measured['dimension']}")
            took = running.submit(config, out)
            ended.set()
            watching.join()
        rounds = [json.loads(line) for line in (out / "sites.jsonl").read_text().splitlines()]
        missing = {(site, each["round"]) for each in rounds for site in each["missing"]}
        plain = parse(text, ["deploy.timeout=86400"])  # no site is dropped by the clock here
        files = write_site_files(plain, said.sites, Path(scratch) / "data")
        order = RunOrder(plain, made.sites, RUN, False)
        RunServer(order, Replay(parties(files), missing), Path(scratch) / "plain").run()
        ours, theirs = (
            np.load(folder / "model.npz")["w_last"] for folder in (out, Path(scratch) / "plain")
        )
        error = float(np.linalg.norm(ours - theirs) / np.linalg.norm(theirs))
        fewer = [r["seconds"] for r in rounds if r["missing"]]
        waits = [str(r["round"]) for r in rounds if r["seconds"] > said.deadline / 2]
    print(f"relative difference from plain sums over the same sites: {error:.1e}")
    print(f"missing in {len({number for _, number in missing})} rounds: ", end="")
    print(", ".join(sorted({site for site, _ in missing})))
    print(f"seconds per round without the missing sites, median {statistics.median(fewer):.3f}")
    print(f"rounds that took more than half a deadline: {', '.join(waits)}", end="; ")
    print(f"the job with faults took {took:.0f} s")
    print(f"memory of all processes: {most[0] / 1e3:.1f} GB")
    sys.exit(error > 1e-5)


if __name__ == "__main__":
    main()
