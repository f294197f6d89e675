"""Sites in this process: the whole path of a deployed run but for the engine and the network."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import jax

from fedssca.deploy.census import Census, job_of
from fedssca.deploy.engine import Answer, Post
from fedssca.deploy.local import write_site_files
from fedssca.deploy.project import site_names
from fedssca.deploy.server.run import RunOrder, RunServer
from fedssca.deploy.site import preparation
from fedssca.deploy.site.ledger import ledger_of
from fedssca.deploy.site.party import Party
from fedssca.deploy.site.raw_table import read_source
from fedssca.privacy.sums.keys import simulated_identities
from fedssca.run.config import Config
from fedssca.run.schema import SiteFile, SiteLimits

RUN = bytes(range(16))
Tamper = Callable[[str, bytes, bytes], Any]
"""(site, envelope, its answer) -> the answer that arrives; None: none does."""


JOBS: dict[str, Any] = {}
"""The job of the last config and census: sites that share it compile its programs once."""


def _one_job(config: Config, census: Census, start: Any = None) -> Any:
    key = repr((config, census, jax.config.jax_enable_x64))
    if key not in JOBS:
        JOBS.clear()
        JOBS[key] = job_of(config, census, start)
    return JOBS[key]


class Loopback:
    """A `Link` to parties in this process; `tamper` may change what they answer."""

    def __init__(self, parties: Mapping[str, Party], tamper: Tamper | None = None) -> None:
        self.parties, self._tamper = parties, tamper
        self.peer_envelopes: list[bytes] = []
        self.answers: list[bytes] = []
        self.envelopes: list[bytes] = []

    def ask(self, envelopes: Mapping[str, bytes], timeout: float) -> Mapping[str, Answer]:
        del timeout
        answers = {}
        for site, data in envelopes.items():
            begun = time.perf_counter()
            self.envelopes.append(data)
            with mock.patch.object(preparation, "job_of", _one_job):
                back: Any = self.parties[site].handle(data, self._poster(site))
            if self._tamper:
                back = self._tamper(site, data, back)
            error = "timed out" if back is None else ""
            answers[site] = Answer(back, error, time.perf_counter() - begun)
            if back is not None:
                self.answers.append(back)
        return answers

    def busy(self) -> Collection[str]:
        return ()

    def late_answers(self) -> Mapping[str, Answer]:
        return {}

    def _poster(self, sender: str) -> Post:
        def post(envelopes: Mapping[str, bytes], timeout: float) -> None:
            del timeout
            for peer, data in envelopes.items():
                self.peer_envelopes.append(data)
                self.parties[peer].receive(sender, data)

        return post


ANYTHING = SiteLimits(
    least_rows=1,
    most_kinds=1000,
    least_batch=1,
    least_sites=1,
    least_neighbours=1,
    censuses=1000,
    open_blocks=True,
)
"""The limits of sites that state none in these tests, whose tables are small."""


def site_source(file: Path) -> SiteFile:
    source = read_source(file)
    return source if "[limits]" in file.read_text() else replace(source, limits=ANYTHING)


def parties(files: list[Path], secure: bool = True) -> dict[str, Party]:
    names = site_names(len(files))
    known = dict(zip(names, simulated_identities(len(files)), strict=True))
    return {
        name: Party(name, site_source(f), secure, lambda _, name=name: known[name], ledger_of(f))
        for name, f in zip(names, files, strict=True)
    }


def deployed(
    config: Config,
    sites: int,
    folder: Path,
    *,
    tamper: Tamper | None = None,
    resume: bool = False,
    run: bytes = RUN,
    secure: bool = True,
) -> tuple[dict[str, Any], RunServer, Loopback]:
    files = write_site_files(config, sites, folder / "data")
    link = Loopback(parties(files, secure), tamper)
    order = RunOrder(config, site_names(sites), run, resume)
    server = RunServer(order, link, folder / "run")
    return server.run(), server, link
