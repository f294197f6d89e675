"""Hostile bytes at every door: how many exceptions escape. The answer must be 0.

    payloads   to the codec and the schemas of notes: anything but `InvalidMessage` escapes
    requests   from a lying server, and letters from a lying peer, to a site: any exception from
               `handle` escapes, and anything but `InvalidMessage` from `receive`
    answers    from a lying site to the server in every stage: anything but a `UserError` escapes

All are mutations of real envelopes that runs with rows, with columns and with hidden sums
exchanged (`fuzz_mutations.py`). Work is done in pieces of 500, each with its own seed, and
`--state FILE` makes a run resumable: pieces that were counted are not repeated.

    python benchmarks/fuzz.py --payloads 1000000 --requests 100000 --answers 100000 --state F
"""

# ruff: noqa: E402
from __future__ import annotations

import argparse
import json
import logging
import os
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1])]

os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=0")

from fuzz_mutations import Random, hostile

from fedssca.deploy import notes
from fedssca.deploy.project import site_names
from fedssca.deploy.server.column_rounds import ColumnRounds
from fedssca.deploy.server.row_rounds import RowRounds
from fedssca.deploy.server.run import RunOrder, RunServer
from fedssca.errors import UserError
from fedssca.rounds.codec import Envelope, InvalidMessage, decode, encode, note, read_note
from fedssca.run.config import parse
from fedssca.run.privacy import server_half
from tests.deploy.loopback import RUN, Loopback, parties
from tests.deploy.test_sites import BASE, by_columns, by_rows, table

PIECE = 500
COLUMNS = ["data.split=feature", "data.label_holder=0"]
LIMIT = [
    *("algorithm.name=ssca", "algorithm.rho={a=0.9,alpha=0.3}", "algorithm.tau=1.0"),
    *("algorithm.gamma={a=0.5,alpha=0.6}", "algorithm.multipliers=exact"),
    'problem.constraint=[{kind="parity", positive="ill", limit=0.5, column="town"}]',
]
SETTINGS = {
    "rows": LIMIT,
    "hidden rows": [*LIMIT, "privacy.secure_sum=true"],
    "columns": COLUMNS,
    "hidden columns": [*COLUMNS, "privacy.secure_sum=true"],
}
COUNT = {"rows": 3, "hidden rows": 3, "columns": 2, "hidden columns": 2}


class Deployment:
    """Sites in this process, and the server of one run over them; every envelope is recorded."""

    def __init__(self, kind: str, folder: Path) -> None:
        folder.mkdir(parents=True)
        self.config, self._folder = parse(BASE, SETTINGS[kind]), folder
        write = by_columns if "columns" in kind else lambda f, t: by_rows(f, t, COUNT[kind])
        self.files, self.names = write(folder, table(90)), site_names(COUNT[kind])
        self.start()
        RunServer(RunOrder(self.config, self.names, RUN), self.link, folder / "first").run()
        self.requests, self.letters = list(self.link.envelopes), list(self.link.peer_envelopes)
        error = Envelope("error", RUN, 1, note({"message": "no", "peer": self.names[0]}))
        self.answers = [*self.link.answers, encode(error)]
        self.kinds = sorted({decode(data).kind for data in self.requests})

    def start(self) -> None:
        """Sites that know nothing yet."""
        self.link = Loopback(parties(self.files))

    @cached_property
    def sites(self) -> Mapping[str, Any]:
        """Sites that have prepared a run honestly."""
        self.start()
        server = RunServer(RunOrder(self.config, self.names, RUN), self.link, self._folder / "x")
        server.prepare()
        self._ready = {n: dict(vars(p._preparation)) for n, p in self.link.parties.items()}
        return self.link.parties

    def prime(self) -> None:
        """Let all sites know again what they knew after they had prepared the run."""
        for name, site in self.sites.items():
            vars(site._preparation).update(self._ready[name])

    @cached_property
    def server(self) -> tuple[RunServer, Liar, list[Callable[[], Any]]]:
        """A server that has prepared the run, its link, and all ways in which it reads answers."""
        self.start()
        link = Liar(self.link.parties)
        server = RunServer(RunOrder(self.config, self.names, RUN), link, self._folder / "y")
        return server, link, _exchanges(server, *server.prepare())


class Tally:
    """What came of the hostile bytes."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.examples: dict[str, str] = {}

    def escaped(self, error: BaseException) -> None:
        """Count an exception that nobody caught, and keep one example of each place."""
        self.counts["escaped"] += 1
        last = traceback.extract_tb(error.__traceback__)[-1]
        place = f"{type(error).__name__} at {Path(last.filename).name}:{last.lineno}"
        self.examples.setdefault(place, "".join(traceback.format_exception(error))[-1500:])


def payloads(made: Mapping[str, Deployment], rng: Random, count: int, tally: Tally) -> None:
    real = [
        data
        for one in made.values()
        for data in (*one.requests[:40], *one.answers[:40], *one.letters[:20])
    ]
    checks = (notes.check_request, notes.check_answer, notes.check_peer)
    for _ in range(count):
        data = hostile(rng, real)
        try:
            envelope = decode(data)
            for check in checks:
                try:
                    read_note(check(envelope))
                    tally.counts["sound"] += 1
                except InvalidMessage:
                    tally.counts["refused"] += 1
        except InvalidMessage:
            tally.counts["refused"] += 1
        except Exception as error:
            tally.escaped(error)


def requests(made: Mapping[str, Deployment], rng: Random, count: int, tally: Tally) -> None:
    one = list(made.values())[int(rng.integers(len(made)))]
    sites = one.sites
    for number in range(count):
        name = one.names[int(rng.integers(len(one.names)))]
        if number % 100 == 0 or sites[name]._preparation.prepared is None:
            one.prime()
        if one.letters and rng.random() < 0.2:
            try:
                sites[name].receive(one.names[0], hostile(rng, one.letters))
                tally.counts["taken"] += 1
            except InvalidMessage:
                tally.counts["refused"] += 1
            except Exception as error:
                tally.escaped(error)
            continue
        try:
            data = hostile(rng, one.requests)
            answer = decode(sites[name].handle(data, one.link._poster(name)))
            if answer.kind != "error":
                tally.counts["answered"] += 1
            else:
                generic = "see the log of this site" in read_note(answer)["message"]
                tally.counts["generic" if generic else "refused"] += 1
        except Exception as error:
            tally.escaped(error)


def answers(made: Mapping[str, Deployment], rng: Random, count: int, tally: Tally) -> None:
    one = list(made.values())[int(rng.integers(len(made)))]
    server, link, exchanges = one.server
    everyone = list(range(len(one.names)))
    for _ in range(count):
        server.sites.live[:] = everyone
        server.sites._broken_in_a_row[:] = [0] * len(everyone)
        which = int(rng.integers(len(exchanges)))
        link.lie(rng, one.answers, one.names[int(rng.integers(len(one.names)))])
        try:
            exchanges[which]()
            tally.counts["went on"] += 1
        except UserError:
            tally.counts["refused"] += 1
        except Exception as error:
            tally.escaped(error)
        link.lie(rng, (), "")


class Liar(Loopback):
    """A link on which one site answers hostile bytes; honest answers are computed once."""

    def __init__(self, sites: Mapping[str, Any]) -> None:
        super().__init__(sites)
        self._known: dict[tuple[str, bytes], Any] = {}
        self._rng, self._real, self._liar = np.random.default_rng(), (), ""

    def lie(self, rng: Random, real: Any, liar: str) -> None:
        """From now on `liar` answers variants of `real` and of its own answers."""
        self._rng, self._real, self._liar = rng, real, liar

    def ask(self, envelopes: Mapping[str, bytes], timeout: float) -> Mapping[str, Any]:
        found = {}
        for site, data in envelopes.items():
            if (site, data) not in self._known:
                answer = super().ask({site: data}, timeout)[site]
                if decode(data).kind.startswith("sum") or len(self._known) > 3000:
                    found[site] = answer
                    continue
                self._known[site, data] = answer
            found[site] = self._known[site, data]
        if self._liar in found and found[self._liar].data is not None:
            true = found[self._liar]
            own = self._rng.random() < 0.8
            some = [true.data] if own else self._real
            found[self._liar] = true._replace(data=hostile(self._rng, some))
        self.envelopes.clear()
        self.answers.clear()
        self.peer_envelopes.clear()
        return found


def _exchanges(server: RunServer, job: Any, census: Any) -> list[Callable[[], Any]]:
    """Every way in which the server reads answers of sites."""
    w = np.asarray(job.problem.start)
    adder = server_half(job.config, RUN, len(server.sites.names))
    found: list[Callable[[], Any]] = [server.prepare]
    if not census.columns:
        evaluated = {"measure", "tally", "slope"}
        for stage in ("probe", "train", *sorted(evaluated)):
            rounds = RowRounds(server.sites, stage, job, adder)
            if stage in evaluated:
                found.append(lambda r=rounds: r.gather(1, {"w": w}, [0, 1, 2], double=True))
            else:
                asked = _request(stage, job)
                found.append(lambda r=rounds, a=asked: r.call("reply", a))
        return found
    from fedssca.deploy.server.introduce import introduce

    found.append(lambda: introduce(server.sites, 60.0))
    rows = np.arange(8, dtype=np.int32)
    train = ColumnRounds(server.sites, "train", job, job.algorithm.batch)
    measure = ColumnRounds(server.sites, "measure", job)
    test = np.asarray(0, np.int32)
    found.append(lambda: train.message_on(1, w, rows))
    found.append(lambda: measure.answer_on(1, w, rows, test=test))
    return found


def _request(stage: str, job: Any) -> Any:
    from fedssca.deploy.stages import method_of

    method = method_of(stage, job)[0]
    return method.request(method.init(job.problem.start))


PARTS = {"payloads": payloads, "requests": requests, "answers": answers}


def fuzz(wanted: Mapping[str, int], seed: int, state: Path | None) -> dict[str, dict[str, Any]]:
    """Send so many hostile bytes to each door and count what came of them."""
    logging.disable(logging.CRITICAL)
    warnings.simplefilter("ignore")
    done: dict[str, Any] = json.loads(state.read_text()) if state and state.exists() else {}
    with tempfile.TemporaryDirectory() as scratch:
        made = {kind: Deployment(kind, Path(scratch) / kind) for kind in SETTINGS}
        for part in PARTS:
            done.setdefault(part, {"sent": 0, "seconds": 0.0, "counts": {}, "examples": {}})
        while waiting := [part for part in PARTS if done[part]["sent"] < wanted[part]]:
            part = min(waiting, key=lambda part: done[part]["sent"] / wanted[part])
            own, number = done[part], list(PARTS).index(part)
            count = min(PIECE, wanted[part] - own["sent"])
            rng, tally = np.random.default_rng([seed, number, own["sent"]]), Tally()
            begun = time.perf_counter()
            PARTS[part](made, rng, count, tally)
            own["sent"] += count
            own["seconds"] += time.perf_counter() - begun
            own["counts"] = dict(Counter(own["counts"]) + tally.counts)
            own["examples"] = tally.examples | own["examples"]
            if state:
                state.write_text(json.dumps(done, indent=1))
    return done


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    for part in PARTS:
        parser.add_argument(f"--{part}", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--state", type=Path)
    said = parser.parse_args()
    found = fuzz({part: getattr(said, part) for part in PARTS}, said.seed, said.state)
    for part, own in found.items():
        counts = ", ".join(f"{n} {what}" for what, n in sorted(own["counts"].items()))
        print(
            f"{part:9} {own['sent']:>9,} sent  {own['counts'].get('escaped', 0)} escaped  "
            f"({counts}; {own['seconds']:.0f} s)"
        )
        for example in own["examples"].values():
            print(example)
    sys.exit(any(own["counts"].get("escaped") for own in found.values()))


if __name__ == "__main__":
    main()
