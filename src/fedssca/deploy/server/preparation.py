"""Before round 1 at the server: all sites fit together, or one line names the one that does not.

terms            the sites learn the run's config, and refuse what their limits do not allow
offer, meet      sites with columns exchange keys (`server.introduce`)
ids, align/...   sites with columns find the rows that all of them have (`server.alignment`)
facts, count     the sites describe their data, and the server joins it (`server.census`)
census/reply     the same under masks, if the run hides sums (`server.hidden_census`)
prepare          all sites build the same problem; their fingerprints are compared
fresh            for a prediction: the sites read their new rows
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

import numpy as np

from fedssca.deploy.census import START, Census, Facts, blank, fingerprint, job_of, question
from fedssca.deploy.server.alignment import align, same_rows
from fedssca.deploy.server.census import check_facts, merge, plainly_told
from fedssca.deploy.server.hidden_census import hidden_totals
from fedssca.deploy.server.introduce import introduce
from fedssca.deploy.server.sites import Sites, SitesMissing
from fedssca.errors import UserError
from fedssca.rounds.codec import Envelope, note, read_note
from fedssca.run.build import Job, start_of
from fedssca.run.config import Config, render
from fedssca.run.privacy import hides_sums

__all__ = ["PREPARING", "ServerPreparation"]

PREPARING = 600.0
"""The seconds that sites have for reading data and building the problem."""

SLOWEST = 1000
"""The number of ids that the slowest site multiplies per second."""


class ServerPreparation:
    """The preparation of all sites for one run."""

    def __init__(
        self,
        sites: Sites,
        config: Config,
        run: bytes,
        record_event: Callable[[dict[str, Any]], None],
    ) -> None:
        self._sites, self._config, self._run = sites, config, run.hex()
        self._record_event = record_event
        self.commitments: list[dict[str, Any]] = []
        """What the sites commit themselves to before training: their calibration rows."""

    def census(self) -> Census:
        """Ask all sites about their data and join what they tell."""
        config = self._config
        names, asked = self._sites.names, question(config, self._run)
        self._ask_all("terms", {"config": render(config), "names": names})
        left_out: list[int] = []
        if config.data.split == "feature":
            introduce(self._sites, PREPARING)
            left_out = self._align("rows")
        facts = self._ask_all("facts", {})
        check_facts(names, facts, asked)
        if hides_sums(config):
            run = bytes.fromhex(self._run)
            told = hidden_totals(self._sites, config, run, facts, asked)
        else:
            told = plainly_told(names, facts, asked, lambda all_: self._ask_all("count", all_))
        census = replace(merge(names, facts, asked, told), left_out=left_out)
        for column, why in (census.encoder or {}).get("left_out", {}).items():
            self.record(f"column {column!r} is left out: {why}")
        return census

    def prepare(self, config: Config, census: Census) -> Job:
        """Let all parties build the problem; a UserError names the first that has another."""
        start = start_of(config, *blank(census, config))
        job = job_of(config, census, start)
        own = fingerprint(job, census)
        told = {"config": render(config), "census": asdict(census)}
        arrays = {} if start is None else {START: start}
        answers = self._ask_all("prepare", told, arrays)
        for name, said in zip(self._sites.names, answers, strict=True):
            if said["fingerprint"] != own:
                raise UserError(
                    f"{name}: it built another problem from the same config; install the same "
                    "versions of fedssca, jax and numpy everywhere"
                )
        if census.calibration:
            self._keep_commitments(census, answers)
        return job

    def _keep_commitments(self, census: Census, answers: Sequence[Facts]) -> None:
        names = self._sites.names
        sizes = census.calibration[:1] * len(names) if census.columns else census.calibration
        found = [
            {"site": name, "rows": rows, "sha256": said.get("commitment", "")}
            for name, rows, said in zip(names, sizes, answers, strict=True)
        ]
        for before, now in zip(self.commitments, found, strict=False):
            if before != now:
                raise UserError(f"{now['site']}: it commits itself to other calibration rows now")
        self.commitments = found

    def new_rows(self) -> tuple[int, dict[str, Any] | None]:
        """Let the parties read their new rows.

        Returns the number of rows that all of them have, and their ids if a party tells them.
        """
        names = self._sites.names
        self._align("new")
        answers = self._ask_all("fresh", {"label": self._config.data.label})
        told = [ids for said in answers if (ids := said.pop("told", None)) is not None]
        for name, said in zip(names, answers, strict=True):
            if said != answers[0]:
                raise UserError(
                    f"{name}: its new rows are not those of {names[0]}: the same ids "
                    "in the same order are needed"
                )
        return int(answers[0]["rows"]), told[0] if told else None

    def _align(self, which: str) -> list[int]:
        """Keep the rows that all parties have; returns how many each of them leaves out."""
        names, config = self._sites.names, self._config
        told = {"which": which, "label": config.data.label, "run": self._run}
        said = self._ask_all("ids", told)
        if not config.deploy.align or same_rows(names, said):
            return []
        seconds = PREPARING + max(each["count"] for each in said) / SLOWEST

        def ask(kind: str, hop: int, arrays: Sequence[dict[str, np.ndarray]]) -> list[Envelope]:
            return self._exchange(kind, hop, dict(enumerate(arrays)), seconds)

        common = align(ask, names, said, seconds)
        left_out = [each["count"] - common for each in said]
        if which == "rows" and common < config.algorithm.batch:
            raise UserError(
                f"{common} rows are common to all sites, fewer than algorithm.batch = "
                f"{config.algorithm.batch}; are the ids written alike, and of the same people?"
            )
        away = ", ".join(f"{n} leaves out {k}" for n, k in zip(names, left_out, strict=True) if k)
        what = f"aligned: {common} common rows" + (f"; {away}" if away else "")
        self.record(what)
        return left_out

    def record(self, what: str) -> None:
        """Record what concerns all sites, before round 1."""
        event = {"round": 0, "site": "all sites", "event": what}
        self._record_event(event | {"time": time.time(), "live": len(self._sites.live)})

    def _ask_all(
        self, kind: str, told: dict[str, Any], arrays: Mapping[str, np.ndarray] | None = None
    ) -> list[Facts]:
        sent = note(told) | dict(arrays or {})
        everyone = dict.fromkeys(range(len(self._sites.names)), sent)
        return [read_note(answer) for answer in self._exchange(kind, 0, everyone, PREPARING)]

    def _exchange(
        self, kind: str, hop: int, arrays: dict[int, dict[str, np.ndarray]], seconds: float
    ) -> list[Envelope]:
        sites = self._sites
        answers = sites.ask(kind, hop, arrays, seconds)
        missing = [name for number, name in enumerate(sites.names) if number not in answers]
        if missing:
            raise SitesMissing(missing, f"before round 1: no answer from {', '.join(missing)}")
        return [answers[number] for number in range(len(sites.names))]
