"""A run at the server, from the hand-shake to the result; whoever carries the letters."""

from __future__ import annotations

import gc
import json
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from fedssca.deploy.align import align, same_rows
from fedssca.deploy.census import Asked, Census, Facts, as_note, blank, merge, question
from fedssca.deploy.crew import Away, Crew, Link
from fedssca.deploy.engines.nvflare import Deployed
from fedssca.deploy.judge import joint_scores, remote_judge
from fedssca.deploy.party import fingerprint
from fedssca.deploy.sums import SiteSums
from fedssca.deploy.table import introduce
from fedssca.errors import UserError
from fedssca.methods.algorithm import Algorithm
from fedssca.rounds.codec import Letter, note, read_note
from fedssca.rounds.loop import Runtime
from fedssca.run.build import Job, build, plan
from fedssca.run.config import Config, render
from fedssca.run.execute import carry_out, load_config
from fedssca.run.privacy import noisy
from fedssca.run.record import RunDirectory

__all__ = ["Conductor", "Order"]

SETTING_UP = 600.0
"""Seconds for reading data and building the problem."""
SLOWEST = 1000
"""Ids a second that the slowest site multiplies."""


class Order(NamedTuple):
    """One job as it was submitted."""

    config: Config
    sites: Sequence[str]
    """In the order in which they count: site number 0 first."""
    run: bytes
    """16 bytes: the run, the same when it is resumed."""
    resume: bool = False


class Conductor:
    """Runs one order into a run directory and keeps account of it, for who asks meanwhile."""

    def __init__(self, order: Order, link: Link, out: Path) -> None:
        config = order.config
        data = replace(config.data, clients=len(order.sites))
        self._config, self._order, self._out = replace(config, data=data), order, out
        self._vertical = config.data.split == "feature"
        everyone = len(order.sites)
        each = any(entry.kind.startswith("client_loss") for entry in config.problem.constraint)
        needed = config.deploy.min_sites or everyone // 2 + 1
        self.crew = Crew(
            link,
            order.sites,
            order.run,
            # A limit on every site's own loss cannot be judged without that site.
            needed=everyone if self._vertical or each else min(needed, everyone),
            timeout=config.deploy.timeout,
            tell=self._tell,
        )
        self._events: list[dict[str, Any]] = []
        self._written = 0
        self._settled = False
        self._costs: list[dict[str, Any]] = []
        self._lock = threading.Lock()
        self.rows: list[dict[str, Any]] = []
        self.round = 0

    def run(self, on_row: Callable[[dict[str, Any]], None] = lambda row: None) -> dict[str, Any]:
        """Hand-shake, calibration, rounds, result; Away when too few sites are left."""
        if self._config.data.collection == "open" and self._vertical:
            raise UserError(
                'data.collection = "open" would hand the parties\' data to the server: '
                'deployments use "exchange"'
            )
        if self._order.resume and (done := RunDirectory.open(self._out).result()) is not None:
            self.rows = RunDirectory.open(self._out).rows()
            return done
        if not self._order.resume:
            RunDirectory.check_free(self._out)
        with jax.enable_x64(self._config.run.precision == "float64"):
            try:
                return self._run(on_row)
            finally:
                self._flush()

    def predict(self) -> dict[str, Any]:
        """Scores of the parties' new rows under the trained model of this run, (rows, classes)."""
        if not self._vertical:
            raise UserError("sites with rows have the whole model: fedssca deploy predict RUN FILE")
        folder = RunDirectory.open(self._out)
        if folder.result() is None:
            raise UserError("this run is not complete: resume it first")
        w = np.load(self._out / "model.npz")["w"]
        with jax.enable_x64(self._config.run.precision == "float64"):
            census = self._shake_hands()
            job = self._prepare(self._config, census)
            self._align("new")
            introduce(self.crew, job, SETTING_UP)
            new = self._everyone("fresh", {"label": self._config.data.label})
            for name, each in zip(self.crew.names, new, strict=True):
                if each != new[0]:
                    raise UserError(
                        f"{name}: its new rows are not those of {self.crew.names[0]}: the same ids "
                        "in the same order are needed"
                    )
            scores = joint_scores(self.crew, job, w, new[0]["rows"])
        return {"labels": census.labels, "scores": scores.tolist()}

    def status(self, rows_from: int = 0) -> dict[str, Any]:
        """What the submitting side shows: rows it has not seen, sites, events, the round."""
        with self._lock:
            return {
                "round": self.round,
                "rows": self.rows[rows_from:],
                "live": [self.crew.names[number] for number in self.crew.live],
                "events": list(self._events),
            }

    def _run(self, on_row: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
        census = self._shake_hands()
        config, crew, again = self._config, self.crew, 0
        if self._order.resume and noisy(config.privacy):
            config, again = load_config(self._out), self._sent_again(config)
        first = self._prepare(config, census)
        introduce(crew, first, SETTING_UP)
        sums = SiteSums(crew, config, self._order.run, sum(census.sizes))

        def probing(problem: Any, clients: Any, algorithm: Algorithm, *_: Any) -> Runtime:
            del problem, clients
            return Deployed(crew, "probe", first, algorithm, sums=sums)

        job = build(config, *blank(census, config), engine=probing)
        if job.config != config:
            self._prepare(job.config, census)
        if (noise := job.noise) is not None and noise.ledger is not None:
            job = job._replace(noise=noise._replace(ledger=noise.ledger.also(again)))

        def training(problem: Any, clients: Any, algorithm: Algorithm, *_: Any) -> Runtime:
            del problem, clients
            return Deployed(crew, "train", job, algorithm, self._note_costs, sums)

        def seen(row: dict[str, Any]) -> None:
            with self._lock:
                self.rows.append(row)
            self._flush()
            on_row(row)

        judge = remote_judge(crew, job, census.held, sums)
        result = carry_out(
            job, self._out, self._order.resume, seen, runtime=training, evaluator=judge, test=None
        )
        folder = RunDirectory.open(self._out)
        text = json.dumps(as_note(census), indent=2)
        folder.write("census.json", lambda file: file.write(text.encode()))
        return result

    def _sent_again(self, config: Config) -> int:
        """Messages that resuming may have sent twice, under fresh noise, in all so far.

        Each time at most the rounds between two checkpoints; where there are none, all of them.
        """
        file, every = self._out / "resumes.json", config.run.checkpoint_every
        times = 1 + (int(file.read_text()) if file.exists() else 0)
        RunDirectory(self._out).write(file.name, lambda out: out.write(str(times).encode()))
        rounds = config.algorithm.rounds - 1
        return times * (min(every, rounds) if every else rounds)

    def _shake_hands(self) -> Census:
        """All sites fit, or one line that names the one that does not."""
        asked = question(self._config, self._order.run.hex())
        left_out = self._align("rows") if self._vertical else []
        facts = self._everyone("facts", asked)
        return replace(merge(self.crew.names, facts, asked), left_out=left_out)

    def _align(self, which: str) -> list[int]:
        """Parties with columns keep the rows that all have; how many each leaves out."""
        names, config = self.crew.names, self._config
        told = {"which": which, "label": config.data.label, "run": self._order.run.hex()}
        said = self._everyone("ids", told)
        if not config.deploy.align or same_rows(names, said):
            return []
        seconds = SETTING_UP + max(each["count"] for each in said) / SLOWEST

        def ask(kind: str, hop: int, arrays: Sequence[dict[str, np.ndarray]]) -> list[Letter]:
            return self._all(kind, hop, dict(enumerate(arrays)), seconds)

        common = align(ask, names, said, seconds)
        left_out = [each["count"] - common for each in said]
        if which == "rows" and common < config.algorithm.batch:
            raise UserError(
                f"{common} rows are common to all sites, fewer than algorithm.batch = "
                f"{config.algorithm.batch}; are the ids written alike, and of the same people?"
            )
        away = ", ".join(f"{n} leaves out {k}" for n, k in zip(names, left_out, strict=True) if k)
        what = f"aligned: {common} common rows" + (f"; {away}" if away else "")
        event = {"round": 0, "site": "all sites", "event": what}
        self._tell(event | {"time": time.time(), "live": len(self.crew.live)})
        return left_out

    def _prepare(self, config: Config, census: Census) -> Job:
        """The same problem at all parties, or one line that names the one that has another."""
        job = plan(config, *blank(census, config))
        mark = fingerprint(job, census)
        told = {"config": render(config), "census": as_note(census)}
        for name, said in zip(self.crew.names, self._everyone("prepare", told), strict=True):
            if said["fingerprint"] != mark:
                raise UserError(
                    f"{name}: it built another problem from the same config; install the same "
                    "versions of fedssca, jax and numpy everywhere"
                )
        return job

    def _everyone(self, kind: str, said: Asked) -> list[Facts]:
        everyone = dict.fromkeys(range(len(self.crew.names)), note(said))
        return [read_note(letter) for letter in self._all(kind, 0, everyone, SETTING_UP)]

    def _all(
        self, kind: str, hop: int, arrays: dict[int, dict[str, np.ndarray]], seconds: float
    ) -> list[Letter]:
        crew = self.crew
        letters = crew.ask(kind, hop, arrays, seconds)
        missing = [name for number, name in enumerate(crew.names) if number not in letters]
        if missing:
            raise Away(missing, f"before round 1: no answer from {', '.join(missing)}")
        return [letters[number] for number in range(len(crew.names))]

    def _tell(self, event: dict[str, Any]) -> None:
        with self._lock:
            self._events.append(event)
        self._flush()

    def _note_costs(self, round_: int, seconds: float, crew: Crew, share: float) -> None:
        self.round = round_
        if not self._settled:
            # The engine leaves every round's messages in cycles. What stays for good is put aside,
            # so that looking for them is cheap and therefore happens often.
            gc.collect()
            gc.freeze()
            self._settled = True
            self._forget_after(round_ - 1)
        sites = {crew.names[number]: list(tally) for number, tally in crew.tallies.items()}
        self._costs.append({"round": round_, "seconds": seconds, "share": share, "sites": sites})

    def _forget_after(self, round_: int) -> None:
        """A resumed run goes through some rounds again: their costs are those of the last time."""
        file = self._out / "sites.jsonl"
        if not file.exists():
            return
        kept = []
        for line in file.read_text().splitlines(keepends=True):
            with suppress(ValueError):  # the last one may be half a line
                if json.loads(line)["round"] <= round_:
                    kept.append(line)
        RunDirectory(self._out).write(
            "sites.jsonl", lambda file: file.write("".join(kept).encode())
        )

    def _flush(self) -> None:
        """Costs and events so far into the run directory, once there is one."""
        if not (self._out / "config.toml").exists():
            return
        with self._lock:
            costs, self._costs = self._costs, []
            events, self._written = self._events[self._written :], len(self._events)
            for name, lines in (("sites.jsonl", costs), ("events.jsonl", events)):
                if lines:
                    with open(self._out / name, "a") as file:
                        file.write("".join(json.dumps(line) + "\n" for line in lines))
