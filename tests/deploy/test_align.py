"""Parties with columns whose rows differ train on the rows that all have."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedssca.deploy.engine import Answer
from fedssca.deploy.project import site_names
from fedssca.deploy.server.run import RunOrder, RunServer
from fedssca.deploy.server.sites import SitesMissing
from fedssca.errors import UserError
from fedssca.rounds.codec import decode, encode
from fedssca.run.config import parse
from tests.deploy.loopback import RUN, Loopback, Tamper, parties
from tests.deploy.test_sites import BASE, COLUMNS, table, write

CONFIG = parse(BASE, [*COLUMNS, "data.label_holder=0"])
BLOCKS = (["id", "age", "y"], ["id", "size"], ["id", "town"])
ROWS = 40
"""That all have."""


def site_files(folder: Path, rows: list[list[int]], new: list[list[int]]) -> list[Path]:
    """Each site its columns of these rows of one table."""
    folder.mkdir(parents=True)
    columns, files = table(80), []
    for number, (names, own, fresh) in enumerate(zip(BLOCKS, rows, new, strict=False)):
        write(folder / f"{number}.csv", {n: [columns[n][i] for i in own] for n in names})
        kept = [name for name in names if name != "y"]
        write(folder / f"new{number}.csv", {n: [columns[n][i] for i in fresh] for n in kept})
        files.append(folder / f"{number}.toml")
        files[-1].write_text(
            f'path = "{number}.csv"\nid = "id"\npredict = "new{number}.csv"\norder = "o{number}"\n'
        )
    return files


def scattered(count: int, sites: int = 3, seed: int = 0) -> list[list[int]]:
    """Rows 0 to count - 1 at all sites, some more at each, in any order."""
    shuffler = random.Random(seed)
    rows = [[*range(count), *range(count + 5 * s, count + 5 * s + 7)] for s in range(sites)]
    for own in rows:
        shuffler.shuffle(own)
    return rows


def in_order(count: int, sites: int = 3) -> list[list[int]]:
    """The same rows, sorted by id."""
    return [sorted(range(count), key=lambda i: f"p{i}")] * sites


def run_server(
    files: list[Path], out: Path, tamper: Tamper | None = None, **link: Any
) -> RunServer:
    carrier = link.get("kind", Loopback)(parties(files), tamper)
    return RunServer(RunOrder(CONFIG, site_names(len(files)), RUN), carrier, out)


def test_scattered_rows_train_as_rows_in_order(tmp_path: Path) -> None:
    made = {}
    for name, arrange in (("loose", scattered), ("tidy", in_order)):
        files = site_files(tmp_path / name, arrange(ROWS), arrange(6))
        run = run_server(files, tmp_path / f"run-{name}")
        run.run()
        made[name] = np.load(tmp_path / f"run-{name}" / "model.npz")["w"], run.predict()["scores"]
    assert made["loose"][0].tobytes() == made["tidy"][0].tobytes()
    assert made["loose"][1] == made["tidy"][1]
    assert len(made["loose"][1]) == 6
    census = json.loads((tmp_path / "run-loose" / "census.json").read_text())
    assert census["left_out"] == [7, 7, 7]
    assert json.loads((tmp_path / "run-tidy" / "census.json").read_text())["left_out"] == []
    events = (tmp_path / "run-loose" / "events.jsonl").read_text().splitlines()
    assert json.loads(events[0])["event"] == (
        "aligned: 40 common rows; site-1 leaves out 7, site-2 leaves out 7, site-3 leaves out 7"
    )
    orders = {(tmp_path / "loose" / f"o{i}" / "new.csv").read_text() for i in range(3)}
    ids = [[line.split(",")[1] for line in each.splitlines()] for each in orders]
    assert ids == [["id", *(f"p{i}" for i in range(6))]] * len(orders)


def test_test_rows_are_aligned_apart(tmp_path: Path) -> None:
    files, rng = [], np.random.default_rng(0)
    for number, order in enumerate(([0, 1, 2, 3, 4, 5], [7, 5, 4, 3, 2, 1])):
        own = np.repeat(np.array(order), 2) * 10 + np.tile([0, 1], 6)
        arrays = {"x": rng.normal(size=(12, 2)), "ids": own}
        arrays |= {"x_test": rng.normal(size=(3, 2)), "ids_test": np.array([100, 101, 40 + number])}
        if number == 0:
            arrays |= {"y": own % 2, "y_test": np.array([0, 1, 0])}
        np.savez(tmp_path / f"{number}.npz", **arrays)
        files.append(tmp_path / f"{number}.toml")
        files[-1].write_text(f'path = "{number}.npz"\n')
    run_server(files, tmp_path / "run").run()
    census = json.loads((tmp_path / "run" / "census.json").read_text())
    assert (census["sizes"], census["held"], census["left_out"]) == ([10], 2, [3, 3])
    lone = dict(np.load(tmp_path / "1.npz"))
    np.savez(tmp_path / "1.npz", **{n: v for n, v in lone.items() if "test" not in n})
    with pytest.raises(UserError, match="site-2: it brings its rows, site-1 brings its rows and"):
        run_server(files, tmp_path / "again").run()


def test_what_cannot_be_aligned_is_one_line(tmp_path: Path) -> None:
    files = site_files(tmp_path / "s", scattered(ROWS), in_order(1))
    file = tmp_path / "s" / "1.csv"
    good = file.read_text().splitlines()

    def said(lines: list[str]) -> str:
        file.write_text("\n".join(lines) + "\n")
        with pytest.raises(UserError) as error:
            run_server(files, tmp_path / "run").run()
        return str(error.value)

    assert said([*good, good[3]]).startswith(
        "site-2: its rows: the id of row 3 occurs again in row"
    )
    assert good[3].split(",")[0] not in said([*good, good[3]])
    decimal = [good[0], *(f"{i}.0,{i}" for i in range(50))]
    assert said(decimal).startswith("site-2: its rows, row 1: the id is a decimal number")
    whole = [good[0], *(f"{i},{i}" for i in range(50))]
    assert said(whole).startswith("the ids of site-1 are text such as p7, those of site-2 whole")
    others = [good[0], *(f"q{i},{i}" for i in range(50))]
    assert said(others).startswith("no id is at all sites (rows: site-1 47, site-2 50, site-3 47)")
    few = [good[0], *others[1:], "p1,0.5", "p2,0.5"]
    assert "2 rows are common to all sites, fewer than algorithm.batch = 4" in said(few)


def test_nothing_that_travels_names_a_row(tmp_path: Path) -> None:
    files = site_files(tmp_path / "s", scattered(ROWS), in_order(1))
    for toml in files:  # ids that no number looks like by chance
        csv = toml.with_suffix(".csv")
        csv.write_text(csv.read_text().replace("\np", "\npatient-"))
    link = Loopback(parties(files))
    RunServer(RunOrder(CONFIG, site_names(3), RUN), link, tmp_path / "run").run()
    assert link.peer_envelopes
    assert not [data for data in (*link.answers, *link.peer_envelopes) if b"patient" in data]


def tampering(kind: str, **arrays: Any) -> Tamper:
    def tamper(site: str, envelope: bytes, answer: bytes) -> bytes:
        del envelope
        got = decode(answer)
        if site != "site-2" or got.kind != kind or not got.arrays:
            return answer
        changed = {name: change(got.arrays[name]) for name, change in arrays.items()}
        return encode(got._replace(arrays=got.arrays | changed))

    return tamper


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda p: p[:-1], "46 points came back, 47 were sent"),
        (lambda p: np.full_like(p, 255), "comes twice"),
        (lambda p: np.concatenate([p[:-1], np.full_like(p[:1], 255)]), "no point of the group"),
        (lambda p: p[:, :16], "a point has 32 bytes"),
    ],
)
def test_a_station_that_sends_nonsense_is_named(change: Any, said: str, tmp_path: Path) -> None:
    files = site_files(tmp_path / "s", scattered(ROWS), in_order(1))
    with pytest.raises(UserError, match=f"site-2: what it sent cannot be aligned: .*{said}"):
        run_server(files, tmp_path / "run", tampering("align/turn", points=change)).run()


class Liar(Loopback):
    """A server that tells site-2 other places than it should."""

    def ask(self, envelopes: Mapping[str, bytes], timeout: float) -> Mapping[str, Answer]:
        told = dict(envelopes)
        envelope = decode(told.get("site-2", next(iter(told.values()))))
        if envelope.kind == "align/keep":
            places = np.roll(envelope.arrays["places"], 1)
            places[0] = (set(range(47)) - set(places.tolist())).pop()
            told["site-2"] = encode(envelope._replace(arrays=envelope.arrays | {"places": places}))
        return super().ask(told, timeout)


def test_sites_do_not_trust_the_server_with_the_rows(tmp_path: Path) -> None:
    files = site_files(tmp_path / "s", scattered(ROWS), in_order(1))
    with pytest.raises(UserError, match="site-1: site-2 found other common rows"):
        run_server(files, tmp_path / "run", kind=Liar).run()


class Replaying(Loopback):
    """Peers' envelopes of the alignment before arrive in place of this one's."""

    old: Mapping[tuple[str, int], bytes]

    def _poster(self, sender: str) -> Any:
        deliver = super()._poster(sender)

        def post(envelopes: Mapping[str, bytes], timeout: float) -> None:
            hop = decode(next(iter(envelopes.values()))).round
            deliver(dict.fromkeys(envelopes, self.old[sender, hop]), timeout)

        return post


class Noting(Loopback):
    """Remembers who sent what to peers."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.sent: dict[tuple[str, int], bytes] = {}

    def _poster(self, sender: str) -> Any:
        deliver = super()._poster(sender)

        def post(envelopes: Mapping[str, bytes], timeout: float) -> None:
            for data in envelopes.values():
                if decode(data).kind == "align":
                    self.sent[sender, decode(data).round] = data
            deliver(envelopes, timeout)

        return post


def test_envelopes_of_another_alignment_do_not_count(tmp_path: Path) -> None:
    files = site_files(tmp_path / "s", scattered(ROWS), in_order(1))
    first = Noting(parties(files))
    RunServer(RunOrder(CONFIG, site_names(3), RUN), first, tmp_path / "run").run()
    again = Replaying(parties(files))
    again.old = first.sent
    with pytest.raises(UserError, match=r"what came in the name of site-1 is not from it"):
        RunServer(RunOrder(CONFIG, site_names(3), RUN), again, tmp_path / "again").run()


def test_a_site_away_is_named(tmp_path: Path) -> None:
    files = site_files(tmp_path / "s", scattered(ROWS), in_order(1))

    def silent(site: str, envelope: bytes, answer: bytes) -> bytes | None:
        away = site == "site-3" and decode(envelope).kind == "align/turn"
        return None if away else answer

    with pytest.raises(SitesMissing, match="no answer from site-3"):
        run_server(files, tmp_path / "run", silent).run()


def test_without_certificates_nothing_is_sent(tmp_path: Path) -> None:
    files = site_files(tmp_path / "s", scattered(ROWS), in_order(1))
    link = Loopback(parties(files, secure=False))
    with pytest.raises(UserError, match="site-1: this kit has no certificates"):
        RunServer(RunOrder(CONFIG, site_names(3), RUN), link, tmp_path / "run").run()
    assert not link.peer_envelopes
