"""What sites of a deployment cost: real processes on this machine, mutual TLS, secure sums.

A first job runs rounds and bare calls of the engine in turn (`turns`). A second one trains; the
memory of all processes is read at each of its rows. Memory is proportional: pages that processes
share count in parts.
"""

from __future__ import annotations

import json
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

from fedssca.deploy.engine import Session
from fedssca.deploy.engines import chosen_engine
from fedssca.deploy.local import LocalDeployment, local_deployment
from fedssca.deploy.submit import Follower, SubmittedRun, await_sites, follow
from fedssca.privacy import require_privacy
from fedssca.run.config import Config, parse, render
from fedssca.system import keep_compiled_programs

__all__ = ["HIDDEN", "RUN", "SERVER", "RunningSites", "measure_sites", "running_sites"]

SITES, ROUNDS, ROWS = 10, 200, 10
"""The sites, the rounds of training, and the rows of metrics at which memory is read."""
QUICK = 3, 20, 4

RUN = """
[data]
name = "digits"
clients = {sites}
[model]
name = "linear"
[algorithm]
name = "sgd"
rate = 0.1
batch = 10
rounds = {rounds}
[run]
evaluate_every = {every}
[deploy]
timeout = 120
"""
HIDDEN = ["privacy.secure_sum=true", "privacy.threshold=0.6"]
SERVER = "fedssca.studies.bench.site_rounds.BenchServer"
"""The server's object of a job in which bare calls and rounds take turns."""
PATIENCE = 3600.0
PAUSE = 15.0
"""The seconds between two looks at the memory of a job that has no rows of metrics."""


class RunningSites(NamedTuple):
    """A deployment on this machine, and the submitter's connection to it."""

    made: LocalDeployment
    session: Session

    def submit(
        self, config: Config, folder: Path, row: Callable[[dict[str, Any]], None] = lambda _: None
    ) -> float:
        """Carry out a job and return its seconds; `row` is called with each row of metrics."""
        run, since = SubmittedRun.new(self.made.sites, render(config)), time.perf_counter()
        run.write(folder)
        tell = Follower(lambda said, live: row(said), lambda _: None)
        follow(self.session, run, folder, False, tell, PATIENCE)
        return time.perf_counter() - since

    def compare(self, config: Config, folder: Path) -> dict[str, Any]:
        """Carry out a job of rounds and bare calls in turn; see `turns.in_turn`."""
        from fedssca.deploy.engines.nvflare.echo import echo_jobs

        with echo_jobs(SERVER):
            self.submit(config, folder)
        found: dict[str, Any] = json.loads((folder / "result.json").read_text())
        return found

    def memory(self) -> dict[str, float]:
        """Party -> the proportional memory of its processes, in megabytes."""
        return {party: _megabytes(each.pid) for party, each in self.made.processes.items()}


@contextmanager
def running_sites(
    config: Config,
    sites: int,
    logs: Path | None = None,
    environment: Mapping[str, str] | None = None,
) -> Iterator[RunningSites]:
    """Run a server and sites on NVFlare, all connected; they end with the block."""
    require_privacy("cryptography")
    engine = chosen_engine("nvflare")
    keep_compiled_programs()  # once for all sites
    from fedssca.deploy.engines.nvflare.echo import echo_allowed

    with ExitStack() as stack:
        stack.enter_context(echo_allowed(SERVER))
        made = stack.enter_context(local_deployment(engine, config, sites, logs, environment))
        session = stack.enter_context(engine.open_session(made.kits["submit"]))
        await_sites(session, made.sites, PATIENCE)
        yield RunningSites(made, session)


def _megabytes(process: int) -> float:
    """The proportional memory of a process and its children, in megabytes (10^6 bytes)."""
    import psutil  # comes with the engine

    total = 0
    with suppress(psutil.Error):
        top = psutil.Process(process)
        for member in (top, *top.children(recursive=True)):
            with suppress(psutil.Error):
                total += getattr(member.memory_full_info(), "pss", 0)
    return total / 1e6


def measure_sites(quick: bool, tick: Callable[[str], None]) -> dict[str, Any]:
    """Return `sites`: what a site costs in memory and a round in time, with secure sums."""
    return measured(*(QUICK if quick else (SITES, ROUNDS, ROWS)), tick)


def measured(
    sites: int, rounds: int, rows: int, tick: Callable[[str], None], logs: Path | None = None
) -> dict[str, Any]:
    """Return `sites` and `sites_memory`, the memory at each row of metrics but the first.

    The first row comes before the sites have compiled what they need. Without rows there is no
    second job, and the memory is the largest during the first one.
    """
    every = rounds // rows if rows else rounds
    config = parse(RUN.format(sites=sites, rounds=rounds + 1, every=every), HIDDEN)
    curve: list[dict[str, float]] = []
    tick(f"starting {sites} sites")
    with (
        tempfile.TemporaryDirectory(prefix="fedssca-bench-") as scratch,
        running_sites(config, sites, logs) as running,
    ):
        out = Path(scratch)

        def note(round_: int) -> None:
            tick(f"{sites} sites: round {round_} of {rounds}")
            used = running.memory()
            server = used.pop("server")
            site = statistics.mean(used.values())
            curve.append({"round": round_, "server": server, "site": site})

        tick(f"{sites} sites: rounds and bare calls in turn")
        with _every(0 if rows else PAUSE, lambda: note(0)):
            medians = running.compare(config, out / "turns")["medians"]
        if rows:
            running.submit(config, out / "training", lambda row: note(row["round"]))
            curve = curve[1:]
    return {
        "sites": {
            "sites": sites,
            "rounds": rounds,
            "megabytes_per_site": max(line["site"] for line in curve),
            "seconds_per_round": medians["ours"],
            "ratio": medians["ours"] / medians["bare"],
            "server_megabytes_start": curve[0]["server"],
            "server_megabytes_end": curve[-1]["server"],
        },
        "sites_memory": curve,
    }


@contextmanager
def _every(seconds: float, look: Callable[[], None]) -> Iterator[None]:
    """Look every so many seconds while the block runs; never if that is 0."""
    ended = threading.Event()

    def watch() -> None:
        while not ended.wait(seconds):
            look()

    watching = threading.Thread(target=watch, daemon=True)
    if seconds:
        watching.start()
    try:
        yield
    finally:
        ended.set()
        if seconds:
            watching.join()
